//! Two and three processes over many short windows: at no moment is more than the rate in use, all
//! callers that wait without giving up are served, and one interval later all permits are back.

use std::time::Duration;

use redisson_rate_limiter::Rate;

use crate::child::Task;
use crate::clients::patient;
use crate::parent::ChildProcess;
use crate::scaled;
use crate::seeded::Seeded;
use crate::state::State;
use crate::support::Server;

const INTERVAL: Duration = Duration::from_millis(20);
const RATE: u64 = 60;

#[tokio::test]
async fn two_processes_exceed_the_rate_in_no_window() {
    processes(2).await;
}

#[tokio::test]
async fn three_processes_exceed_the_rate_in_no_window() {
    processes(3).await;
}

async fn processes(count: u64) {
    let random = Seeded::new();
    let server = Server::start();
    let mut redis = server.connection().await;
    let client = patient(&server.url()).await;
    let names = ["a", "b"];
    for name in names {
        let rate = Rate::overall(RATE, INTERVAL);
        client.rate_limiter(name).set_rate(rate).await.unwrap();
    }
    let states = names.map(|name| State::of(name, RATE));

    let mut children = Vec::new();
    for number in 0..count {
        let task = Task {
            url: server.url(),
            number,
            response_timeout: Duration::from_secs(60),
            limiters: names.map(Into::into).into(),
            steps: scaled(3_000),
            waits: 20,
        };
        children.push(ChildProcess::start(&task, &random).await);
    }
    for child in &mut children {
        child.go().await;
    }
    for child in &mut children {
        let ledgers = child.ledgers();
        tokio::pin!(ledgers);
        let ledgers = loop {
            tokio::select! {
                ledgers = &mut ledgers => break ledgers,
                () = async {
                    for state in &states {
                        state.used(&mut redis).await;
                    }
                } => {}
            }
        };
        println!("{count} processes: {ledgers:?}, {random}");
        for ledger in ledgers {
            assert_eq!((ledger.maybe_back, ledger.maybe_taken), (0, 0), "{random}");
        }
    }
    for child in children {
        child.kill().await;
    }
    for state in &states {
        state.used(&mut redis).await;
        state.assert_is_whole_after(INTERVAL, &server).await;
    }
}
