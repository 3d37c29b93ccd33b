//! A thousand processes that hold permits and wait for more are killed at random moments: what they
//! held is back exactly one interval later, and a process that survives is served all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redisson_rate_limiter::Rate;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::child::Task;
use crate::clients::patient;
use crate::parent::ChildProcess;
use crate::scaled;
use crate::seeded::Seeded;
use crate::state::State;
use crate::support::Server;

const INTERVAL: Duration = Duration::from_millis(100);
const RATE: u64 = 60;
const KILLS: u64 = 1_000;
/// How many processes live at a time, besides the one that is not killed.
const VICTIMS: u64 = 6;
/// After this many kills nobody takes permits until all are back.
const ROUND: u64 = 100;

#[tokio::test]
async fn after_many_kills_all_permits_are_back() {
    let random = Seeded::new();
    let server = Server::start();
    let mut redis = server.connection().await;
    let client = patient(&server.url()).await;
    let rate = Rate::overall(RATE, INTERVAL);
    client.rate_limiter("a").set_rate(rate).await.unwrap();
    let state = State::of("a", RATE);
    let kills = scaled(KILLS);
    let rounds = kills.div_ceil(ROUND);
    for round in 0..rounds {
        let first = round * ROUND;
        let survivor = Task {
            steps: 100,
            ..task(&server, first, 20)
        };
        let mut survivor = ChildProcess::start(&survivor, &random).await;
        survivor.go().await;
        let mut killing = kill(&server, first + 1, ROUND.min(kills - first), &random);
        loop {
            tokio::select! {
                done = killing.join_next() => match done {
                    Some(done) => done.unwrap(),
                    None => break,
                },
                _ = state.used(&mut redis) => sleep(Duration::from_millis(1)).await,
            }
        }
        let ledgers = survivor.ledgers().await;
        println!("round {round}, the survivor: {ledgers:?}, {random}");
        survivor.kill().await;
        state.used(&mut redis).await;
        state.assert_is_whole_after(INTERVAL, &server).await;
    }
}

/// A process that works, and waits for permits, until it is killed.
fn task(server: &Server, number: u64, waits: u64) -> Task {
    Task {
        url: server.url(),
        number,
        response_timeout: Duration::from_secs(60),
        limiters: vec!["a".into()],
        steps: 1_000_000,
        waits,
    }
}

/// Starts `count` processes, a few at a time, and kills each at a random moment of its work.
fn kill(server: &Server, first: u64, count: u64, random: &Seeded) -> JoinSet<()> {
    let next = Arc::new(AtomicU64::new(first));
    let end = first + count;
    let mut killing = JoinSet::new();
    for _ in 0..VICTIMS.min(count) {
        let (next, random) = (Arc::clone(&next), random.clone());
        let task = task(server, 0, 1_000_000);
        killing.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return;
                }
                let task = Task {
                    number,
                    ..task.clone()
                };
                let mut moments = random.branch(number);
                let mut victim = ChildProcess::start(&task, &random).await;
                victim.go().await;
                sleep(Duration::from_micros(moments.below(60_000))).await;
                victim.kill().await;
            }
        });
    }
    killing
}
