//! Threads of Redisson and tasks of this crate wait for one limiter, which grants no more than its
//! rate and nearly all of it. In a separate binary, so that no other test uses the processors at
//! the same time.
//!
//! The server's own record shows what was granted when: the ZADDs of the scripts, in the order in
//! which it ran them. A grant counts from its score, the time of its request; at each grant, those
//! of the last interval by the server's clock must fit the rate. (Comparing scores would be too
//! strict with Redisson: it scores by the caller's clock when it sends, and a later call may be
//! served before the call arrives.)
//!
//! Utilization is measured over the first 20 intervals from the first grant on, and compared with a
//! limiter that as many threads of Redisson wait for alone, at the same time on the same server: a
//! machine that wakes everybody late delays both. Each permit can be granted 20 times; a part of a
//! time more or less is chance, so two times fewer are accepted.

use std::time::Duration;

use compat_tests::{
    Both, Peer,
    record::{Change, Entry, Record},
    redisson::Version,
};
use redisson_rate_limiter::Rate;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout_at},
};

const RATE: u32 = 40;
const INTERVAL: i64 = 400;
const INTERVALS: i64 = 20;
const THREADS: u32 = 6;
const TASKS: u32 = 12;
/// How many times fewer each permit may be granted on average.
const FEWER: u32 = 2;

#[tokio::test]
async fn no_window_exceeds_the_rate_and_permits_are_used_as_by_redisson_alone() {
    Both::each([Version::V3_17_0, Version::V4_7_0], async |both| {
        let [limiter, alone] = ["n", "alone"].map(|name| both.limiter(name));
        let interval = Duration::from_millis(INTERVAL as u64);
        let rate = Rate::overall(RATE.into(), interval);
        for limiter in [&limiter, &alone] {
            assert!(limiter.try_set_rate(Peer::Rust, rate).await);
        }
        let mut record = Record::start(&both.server, "{n}:permits").await;
        let record_alone = Record::start(&both.server, "{alone}:permits").await;

        // A few intervals more than are evaluated, so that at their end all callers still wait.
        let duration = INTERVAL * (INTERVALS + 2);
        let java = limiter.java.load_waiting(THREADS, 1, duration);
        let java_alone = alone.java.load_waiting(THREADS + TASKS, 1, duration);
        let rust = async {
            // Redisson's first, so that there is one of each in any case.
            record.wait_for_grant().await;
            let end = Instant::now() + Duration::from_millis(duration as u64);
            let mut callers = JoinSet::new();
            for _ in 0..TASKS {
                let limiter = limiter.rust.clone();
                callers.spawn(async move {
                    while timeout_at(end, limiter.acquire(1))
                        .await
                        .is_ok_and(|it| it.is_ok())
                    {}
                });
            }
            callers.join_all().await;
        };
        let (load, load_alone, ()) = tokio::join!(java, java_alone, rust);
        load.unwrap();
        load_alone.unwrap();

        let grants_alone = grants(&record_alone.end(&both.server).await);
        let grants = grants(&record.end(&both.server).await);
        let [used, used_alone] = [&grants, &grants_alone]
            .map(|grants| grants.iter().map(|grant| grant.permits).sum::<u32>());
        let share = |peer| {
            let of_peer = grants.iter().filter(|grant| grant.to == peer);
            of_peer.map(|grant| grant.permits).sum::<u32>()
        };
        let [java, rust] = Peer::ALL.map(share);
        let most = RATE * INTERVALS as u32;
        println!(
            "{used} of {most} permits: {java} to Redisson, {rust} to this crate; {used_alone} to Redisson alone"
        );
        for (place, last) in grants.iter().enumerate() {
            let mut window = 0;
            for grant in &grants[..=place] {
                if grant.score > last.at - INTERVAL {
                    window += grant.permits;
                }
            }
            assert!(
                window <= RATE,
                "{window} permits in the interval up to {}",
                last.at
            );
        }
        assert!(
            java > 0 && rust > 0,
            "{java} to Redisson, {rust} to this crate"
        );
        assert!(
            used + FEWER * RATE >= used_alone.min(most),
            "{used} of {most} permits; {used_alone} to Redisson alone"
        );
    })
    .await;
}

struct Grant {
    to: Peer,
    at: i64,
    score: i64,
    permits: u32,
}

/// The grants of the intervals that are looked at. Nothing was given back in them.
fn grants(entries: &[Entry]) -> Vec<Grant> {
    let end = entries[0].at + INTERVAL * INTERVALS;
    let looked_at = entries.iter().take_while(|entry| entry.at < end);
    let grant = |entry: &Entry| match entry.change {
        Change::Granted { to, score, permits } => Grant {
            to,
            at: entry.at,
            score,
            permits,
        },
        Change::TakenBack => panic!("given back: {entry:?}"),
    };
    looked_at.map(grant).collect()
}
