//! Acquires dropped at random moments, many at a time, against a server.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Rate, RateLimiter};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clients::patient;
use crate::in_memory::{HOUR, ms};
use crate::keys;
use crate::seeded::Seeded;
use crate::support::Server;

const VALUE: &str = "{limiter}:value";
const PERMITS: &str = "{limiter}:permits";
const TASKS: u64 = 50;

/// How many acquires are cancelled: 10,000, unless `CANCELLED_ACQUIRES` says otherwise.
fn acquires() -> u64 {
    match std::env::var("CANCELLED_ACQUIRES") {
        Ok(number) => number.parse().expect("CANCELLED_ACQUIRES is a number"),
        Err(_) => 10_000,
    }
}

/// Acquires again and again, each time from any of the limiters, and gives each wait up at a random
/// moment. Returns how many permits of each it was granted anyway.
async fn cancel_often(limiters: Arc<[RateLimiter]>, mut random: Seeded, times: u64) -> Vec<i64> {
    let mut granted = vec![0; limiters.len()];
    for _ in 0..times {
        let which = random.below(limiters.len() as u64) as usize;
        let limiter = &limiters[which];
        let permits = random.below(5) as u32 + 1;
        let patience = Duration::from_micros(random.below(3_000));
        let is_granted = match random.below(3) {
            0 => timeout(patience, limiter.try_acquire(permits))
                .await
                .is_ok_and(Result::unwrap),
            1 => timeout(patience, limiter.acquire(permits)).await.is_ok(),
            _ => {
                let turns = random.below(6);
                tokio::select! {
                    biased;
                    result = limiter.acquire(permits) => result.is_ok(),
                    () = yield_often(turns) => false,
                }
            }
        };
        granted[which] += if is_granted { i64::from(permits) } else { 0 };
    }
    granted
}

async fn yield_often(turns: u64) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

/// Waits until nothing works on the queue any more: no task is left but those that were there
/// before.
async fn until_quiet(tasks_before: usize) {
    while Handle::current().metrics().num_alive_tasks() > tasks_before {
        sleep(ms(1)).await;
    }
}

/// Waits until this many of a million permits are in use: what is on its way back is given back in
/// the background.
async fn assert_in_use(
    raw: &mut MultiplexedConnection,
    (value, permits): (&str, &str),
    granted: i64,
    random: &Seeded,
) {
    let expected = (Some(1_000_000 - granted), granted);
    let mut found = None;
    let until_expected = async {
        while found != Some(expected) {
            sleep(ms(10)).await;
            found = Some(keys::left_and_used(raw, value, permits).await);
        }
    };
    let reached = timeout(Duration::from_secs(20), until_expected).await;
    assert!(
        reached.is_ok(),
        "{value}: {found:?}, not {expected:?}: {random}"
    );
}

#[tokio::test]
async fn in_one_window_exactly_what_was_granted_is_gone() {
    let random = Seeded::new();
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = patient(&server.url()).await;
    let limiter = client.rate_limiter("limiter");
    limiter
        .set_rate(Rate::overall(1_000_000, HOUR))
        .await
        .unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(cancel_often(
            [limiter.clone()].into(),
            random.branch(task),
            acquires() / TASKS / 2,
        ));
    }
    let granted: i64 = 1 + tasks.join_all().await.concat().into_iter().sum::<i64>();
    until_quiet(tasks_before).await;
    assert_in_use(&mut raw, (VALUE, PERMITS), granted, &random).await;
}

#[tokio::test]
async fn limiters_that_share_calls_each_lose_exactly_what_was_granted() {
    let random = Seeded::new();
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = patient(&server.url()).await;
    let mut limiters = Vec::new();
    for i in 0..40 {
        let limiter = client.rate_limiter(&i.to_string());
        let rate = Rate::overall(1_000_000, HOUR);
        limiter.set_rate(rate).await.unwrap();
        limiters.push(limiter);
    }
    assert!(limiters[0].try_acquire(1).await.unwrap());
    let limiters: Arc<[_]> = limiters.into();
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let mut tasks = JoinSet::new();
    for task in 0..2 * TASKS {
        tasks.spawn(cancel_often(
            Arc::clone(&limiters),
            random.branch(task),
            acquires() / TASKS / 2,
        ));
    }
    let mut granted = vec![0; limiters.len()];
    granted[0] = 1;
    for of_task in tasks.join_all().await {
        for (all, one) in granted.iter_mut().zip(of_task) {
            *all += one;
        }
    }
    until_quiet(tasks_before).await;
    for (i, granted) in granted.into_iter().enumerate() {
        let (value, permits) = (format!("{{{i}}}:value"), format!("{{{i}}}:permits"));
        assert_in_use(&mut raw, (&value, &permits), granted, &random).await;
    }
    // Each decision and each refund reads its limiter once.
    let read = keys::calls(&mut raw, "hmget").await;
    let calls = keys::calls(&mut raw, "evalsha").await;
    assert!(calls < read, "{calls} calls for {read}");
}

#[tokio::test]
async fn the_invariant_holds_and_all_who_keep_waiting_are_served() {
    over_many_windows(1, 200).await;
}

#[tokio::test]
async fn the_invariant_holds_on_many_limiters_and_all_who_wait_are_served() {
    over_many_windows(40, 20).await;
}

/// Some acquire and give up, others keep waiting, on limiters with a rate for 20 ms.
async fn over_many_windows(limiters: usize, rate: u64) {
    let random = Seeded::new();
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = patient(&server.url()).await;
    let limiters: Arc<[_]> = (0..limiters)
        .map(|i| client.rate_limiter(&i.to_string()))
        .collect();
    for limiter in &*limiters {
        limiter.set_rate(Rate::overall(rate, ms(20))).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    let tasks_before = Handle::current().metrics().num_alive_tasks();
    let mut cancelling = JoinSet::new();
    for task in 0..TASKS {
        cancelling.spawn(cancel_often(
            Arc::clone(&limiters),
            random.branch(task),
            acquires() / TASKS / 2,
        ));
    }
    let mut staying = JoinSet::new();
    for waiter in 0..20 {
        let limiters = Arc::clone(&limiters);
        staying.spawn(async move {
            for turn in 0..20 {
                let which = (waiter + turn) % limiters.len();
                limiters[which].acquire(3).await.unwrap();
            }
        });
    }
    while cancelling.join_next().await.is_some() {
        assert_invariant(&mut raw, limiters.len(), rate, &random).await;
    }
    let served = timeout(Duration::from_secs(30), staying.join_all()).await;
    assert!(served.is_ok(), "a waiter was passed over: {random}");
    until_quiet(tasks_before).await;
    assert_invariant(&mut raw, limiters.len(), rate, &random).await;
}

async fn assert_invariant(
    raw: &mut MultiplexedConnection,
    limiters: usize,
    rate: u64,
    random: &Seeded,
) {
    for i in 0..limiters {
        let (value, permits) = (format!("{{{i}}}:value"), format!("{{{i}}}:permits"));
        let (value, used) = keys::left_and_used(raw, &value, &permits).await;
        assert_eq!(value.unwrap() + used, rate as i64, "{i}: {random}");
    }
}
