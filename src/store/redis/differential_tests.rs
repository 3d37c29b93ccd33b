//! The scripts against the pure model: the same random steps through both, and after each the same answer and the same
//! keys, members, scores and times to live.
//!
//! Time is passed in, so nothing sleeps. Times to live are counted by Redis's own clock: each one set here is a
//! multiple of 1000 s that no other step of the case uses, and what is left of it, rounded up, is what was set.
//!
//! `MODEL_STEPS` sets the number of steps, 100,000 by default.

mod keyspace;
mod sides;
mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use redis::aio::MultiplexedConnection;

use super::RedisStore;
use super::limiter::RedisLimiter;
use super::retry::{Attempts, Repeat};
use crate::clock::Clock;
use crate::keys::Keys;
use crate::model::Window;
use crate::model_steps::model_steps;
use crate::rate::ValidRate;
use crate::support::Server;
use keyspace::{of_model, of_redis};
use sides::Sides;
use steps::{Step, a_rate, a_step};

const STEPS_PER_CASE: usize = 50;
const CLIENTS: [&str; 2] = ["a", "b"];
/// No time to live is shorter than this.
const TTL_UNIT: i64 = 1_000_000;

#[test]
fn the_scripts_and_the_model_give_the_same_answers_and_the_same_state() {
    let cases = u32::try_from(model_steps() / STEPS_PER_CASE)
        .unwrap()
        .max(2);
    // Two at a time, each with its own server: client and server take turns.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| compare(cases / 2));
        }
    });
}

/// Runs this many cases and panics with the fewest steps that show a difference.
fn compare(cases: u32) {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connection = runtime.block_on(server.connection());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let step = (a_step(), prop_oneof![3 => Just(0_usize), 1 => Just(1)]);
    let case = (a_rate(), prop::collection::vec(step, STEPS_PER_CASE));
    let names = AtomicI64::new(0);
    let run = |(rate, steps): (ValidRate, Vec<(Step, usize)>)| {
        let name = names.fetch_add(1, Ordering::Relaxed).to_string();
        runtime.block_on(compare_case(&connection, &name, rate, &steps));
        Ok(())
    };
    match TestRunner::new(config).run(&case, run) {
        Ok(()) => {}
        Err(TestError::Fail(why, (rate, steps))) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("{why}\nThe fewest steps: {rate:?}\n{}", steps.join("\n"));
        }
        Err(aborted) => panic!("{aborted}"),
    }
}

async fn compare_case(
    connection: &MultiplexedConnection,
    name: &str,
    rate: ValidRate,
    steps: &[(Step, usize)],
) {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Clock::from_fn({
        let now = Arc::clone(&now);
        move || now.load(Ordering::Relaxed)
    });
    let redis = RedisStore::over(connection.clone(), clock, Duration::from_secs(30));
    let limiter = |client| {
        Arc::new(RedisLimiter::new(
            redis.clone(),
            Arc::new(Keys::new(name, client)),
        ))
    };
    let mut sides = Sides {
        limiters: CLIENTS.map(limiter),
        redis,
        connection: connection.clone(),
        model: Window::default(),
        now,
        calls: 0,
        last_call: None,
        first_attempt: 0,
        last_attempt: 0,
        grants: Vec::new(),
        next_ttl: 10 * TTL_UNIT,
    };
    let mut attempts = Attempts::new(sides.redis.deadline(), Repeat::Safe);
    let asked = sides.redis.server_deadline(name, &mut attempts).await;
    asked.unwrap(); // a shared call needs the server's time
    sides.take(&Step::TrySetRate(rate), 0).await;
    for (step, client) in steps {
        sides.take(step, *client).await;
        let keys = sides.keys();
        let redis = of_redis(&mut sides.connection, &keys).await;
        assert_eq!(redis, of_model(&sides.model), "after {step:?}");
    }
    for keys in &sides.keys() {
        let mut delete = redis::cmd("DEL");
        delete.arg(&keys.in_order());
        delete.exec_async(&mut sides.connection).await.unwrap();
    }
}
