//! The scripts against the pure model: the same random steps through both, and after each the same
//! answer and the same keys, members, scores and times to live.
//!
//! Time is passed in, so nothing sleeps. Times to live are counted by Redis's own clock: each one
//! set here is a multiple of 1000 s that no other step of the case uses, and what is left of it,
//! rounded up, is what was set.
//!
//! `MODEL_STEPS` sets the number of steps.

mod keyspace;
mod sides;
mod steps;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use proptest::prelude::*;
use redis::aio::MultiplexedConnection;

use super::RedisStore;
use super::limiter::RedisLimiter;
use crate::clock::Clock;
use crate::keys::Keys;
use crate::link::limits::Repeat;
use crate::random_cases::{cases_of, run_on_a_server};
use crate::rate::RateType;
use crate::store::{IfMissing, PermitsInUse};
use crate::window::{Condition, Settings, Window};
use keyspace::{of_model, of_redis};
use sides::Sides;
use steps::{
    Corrupt, Request, Step, a_larger_rate, a_rate, a_step, a_step_among_copies,
    a_step_among_many_grants,
};

const STEPS_PER_CASE: usize = 50;
const NAME: &str = "n";
const CLIENTS: [&str; 2] = ["a", "b"];
/// No time to live is shorter than this.
const TTL_UNIT: i64 = 1_000_000;

#[test]
fn the_scripts_and_the_model_give_the_same_answers_and_the_same_state() {
    // Two at a time, each with its own server: client and server take turns.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| compare(cases_of(2 * STEPS_PER_CASE)));
        }
    });
}

/// It is too rare in random cases: a time to live that only the grants have, from before the hash
/// was lost, and a live member without permits as the grants expire.
#[test]
fn a_member_without_permits_keeps_no_time_to_live_of_expired_grants() {
    let settings = Settings {
        rate: 1,
        interval: 851,
        rate_type: RateType::Overall,
        keep_alive: 0,
    };
    let acquire = Step::Acquire(Request {
        runs: vec![(1, 1)],
        fifo: false,
        share: None,
        debt: false,
        newer_than_age: None,
        audited_rate: None,
        set_up: None,
        only_keep_alive: false,
        ahead: None,
    });
    let live = Corrupt::Member {
        age: -100,
        member: Vec::new(),
    };
    let steps = [
        acquire.clone(),
        Step::Expire(Condition::Always),
        Step::Corrupt(Corrupt::LoseHash),
        Step::UpdateRate(settings, PermitsInUse::Keep, IfMissing::Create),
        Step::Corrupt(live),
        Step::Pass(settings.interval),
        acquire,
    ];
    let steps = steps.map(|step| (step, 0)).to_vec();
    run_on_a_server(1, &Just((settings, steps)), compare_case);
}

fn compare(cases: u32) {
    let of = |rate, step| {
        let client = prop_oneof![3 => Just(0_usize), 1 => Just(1)];
        (rate, prop::collection::vec((step, client), STEPS_PER_CASE))
    };
    let case = prop_oneof![
        2 => of(a_rate().boxed(), a_step().boxed()),
        2 => of(a_larger_rate().boxed(), a_step_among_many_grants().boxed()),
        1 => of(a_larger_rate().boxed(), a_step_among_copies().boxed()),
    ];
    run_on_a_server(cases, &case, compare_case);
}

async fn compare_case(
    connection: MultiplexedConnection,
    (rate, steps): (Settings, Vec<(Step, usize)>),
) {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let redis = RedisStore::over(
        connection.clone(),
        Clock::shown_by(&now),
        Duration::from_secs(30),
        Arc::default(),
    );
    let limiter = |client| {
        Arc::new(RedisLimiter::new(
            redis.clone(),
            Arc::new(Keys::new(NAME, client)),
        ))
    };
    let mut sides = Sides {
        limiters: CLIENTS.map(limiter),
        redis,
        connection,
        model: Window::default(),
        now,
        calls: 0,
        last_call: None,
        first_attempt: 0,
        last_attempt: 0,
        grants: Vec::new(),
        next_ttl: 10 * TTL_UNIT,
    };
    let deadline = sides.redis.deadline();
    let attempts = sides.redis.attempts(NAME, deadline, Repeat::Safe);
    let asked = sides.redis.server_deadline(&attempts).await;
    asked.unwrap(); // a shared call needs the server's time
    Box::pin(sides.take(&Step::TrySetRate(rate), 0)).await; // without optimization it is large
    let mut is_untouched = true;
    for (step, client) in steps {
        Box::pin(sides.take(&step, client)).await;
        let keys = sides.keys();
        let redis = of_redis(&mut sides.connection, &keys).await;
        assert_eq!(redis, of_model(&sides.model), "after {step:?}");
        // Both sides might lose a grant.
        is_untouched &= !matches!(step, Step::Corrupt(_));
        if let Some((counted, rate)) = redis.balance().filter(|_| is_untouched) {
            assert_eq!(counted, rate, "after {step:?}");
        }
    }
    for keys in &sides.keys() {
        let mut delete = redis::cmd("DEL");
        delete.arg(&keys.in_order());
        delete.exec_async(&mut sides.connection).await.unwrap();
    }
}
