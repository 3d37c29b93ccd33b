//! Processes are stopped in the middle of their work and continued, again and again: the permits in
//! use are those that they hold.

use std::time::{Duration, Instant};

use redisson_rate_limiter::Rate;
use tokio::time::sleep;

use crate::child::{PATIENT, Task};
use crate::clients::patient;
use crate::ledger::Ledger;
use crate::parent::ChildProcess;
use crate::scaled;
use crate::seeded::Seeded;
use crate::state::State;
use crate::support::Server;

const HOUR: Duration = Duration::from_secs(3600);
/// How long what was cancelled last may take to be given back.
const BACKGROUND: Duration = Duration::from_secs(120);

#[tokio::test]
async fn the_permits_in_use_are_those_that_stopped_processes_hold() {
    let random = Seeded::new();
    let mut moments = random.branch(0);
    let server = Server::start();
    let mut redis = server.connection().await;
    let client = patient(&server.url()).await;
    let task = |number| Task {
        url: server.url(),
        number,
        // An attempt takes 250 to 500 ms: some calls are sent again after a stop.
        response_timeout: Duration::from_secs(60),
        limiters: vec![PATIENT.into(), "plenty".into()],
        steps: scaled(2_000),
        waits: 0,
    };
    let permits = 1_000_000 + 2 * u64::from(task(0).to_be_released());
    for name in [PATIENT, "plenty"] {
        let rate = Rate::overall(permits, HOUR);
        client.rate_limiter(name).set_rate(rate).await.unwrap();
    }
    let mut children = Vec::new();
    for number in 0..2 {
        children.push(ChildProcess::start(&task(number), &random).await);
    }
    for child in &mut children {
        child.go().await;
    }
    for stop in 0..scaled(6) {
        let child = &children[stop as usize % 2];
        sleep(Duration::from_millis(moments.below(100))).await;
        child.signal("STOP");
        sleep(Duration::from_millis(moments.below(800))).await;
        child.signal("CONT");
    }
    let mut ledgers = [Ledger::default(); 2];
    for child in &mut children {
        for (all, one) in ledgers.iter_mut().zip(child.ledgers().await) {
            *all += one;
        }
    }
    for (name, ledger) in [PATIENT, "plenty"].into_iter().zip(ledgers) {
        assert_eq!((ledger.maybe_back, ledger.maybe_taken), (0, 0), "{random}");
        let start = Instant::now();
        while State::of(name, permits).used(&mut redis).await != ledger.held {
            let is_late = start.elapsed() > BACKGROUND;
            assert!(!is_late, "{name}: {ledger:?}, {random}");
            sleep(Duration::from_millis(1)).await;
        }
    }
    for child in children {
        child.kill().await;
    }
}
