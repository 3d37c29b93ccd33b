//! The fast path against decisions under the lock: the same random steps through two stores, and
//! after each the same answer. A client with its own clock has each request decided under the lock;
//! here that clock shows the store's time.
//!
//! `MODEL_STEPS` sets the number of steps, a quarter of which are taken here. `MODEL_SEED` sets the
//! seed, 1 by default.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::MemoryStore;
use crate::random_cases::cases_of;
use crate::{
    Clock, Decision, Denied, Grant, Granted, PermitsInUse, Rate, RateLimiter, RedissonClient,
};

const STEPS_PER_CASE: usize = 100;

/// What is done to a limiter, and what it answers.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    TryAcquire(u32),
    Check(u32),
    /// The last grant.
    Refund,
    Release(u32),
    AvailablePermits,
    SetRate(Rate, PermitsInUse),
    TimeToLive(u64),
    Delete,
}

/// All rates of a limiter have the same interval: expired grants count again with a longer one,
/// unless they have been removed, and the fast path has fewer grants to remove.
fn a_step(interval: Duration) -> impl Strategy<Value = Step> {
    let rate = (1..60_u64, any::<bool>(), any::<bool>()).prop_map(
        move |(permits, is_overall, is_kept_alive)| {
            let rate = if is_overall {
                Rate::overall(permits, interval)
            } else {
                Rate::per_client(permits, interval)
            };
            if is_kept_alive {
                rate.keep_alive(interval * 2)
            } else {
                rate
            }
        },
    );
    let state = prop_oneof![Just(PermitsInUse::Keep), Just(PermitsInUse::Reset)];
    prop_oneof![
        6 => (1..20_u64).prop_map(Step::Pass),
        30 => (1..4_u32).prop_map(Step::TryAcquire),
        1 => (4..70_u32).prop_map(Step::TryAcquire),
        3 => (1..9_u32).prop_map(Step::Check),
        2 => Just(Step::Refund),
        2 => (1..9_u32).prop_map(Step::Release),
        2 => Just(Step::AvailablePermits),
        2 => (rate, state).prop_map(|(rate, state)| Step::SetRate(rate, state)),
        1 => (1..50_u64).prop_map(Step::TimeToLive),
        1 => Just(Step::Delete),
    ]
}

async fn answer(limiter: &RateLimiter, grants: &mut Vec<Grant>, step: &Step) -> String {
    match step {
        Step::Pass(_) => String::new(),
        Step::TryAcquire(permits) => format!("{:?}", limiter.try_acquire(*permits).await),
        Step::Check(permits) => match limiter.check(*permits).await {
            // What remains is a lower bound where expired grants have not been removed.
            Ok(Decision::Granted(Granted {
                grant,
                remaining,
                reset,
                ..
            })) => {
                grants.push(grant);
                let available = limiter.available_permits().await;
                let available = available.expect("a limiter that has just granted");
                assert!(remaining <= available, "{remaining} of {available}");
                format!("{available} {reset:?}")
            }
            // The time at which a request fits is exact if few grants are in the way, and the fast
            // path has fewer.
            Ok(Decision::Denied(Denied {
                limit,
                remaining,
                retry_after,
                reset,
                ..
            })) => {
                assert!(retry_after <= reset, "{retry_after:?} {reset:?}");
                format!("denied: {remaining} of {limit}, {reset:?}")
            }
            other => format!("{other:?}"),
        },
        Step::Refund => match grants.pop() {
            Some(grant) => format!("{:?}", limiter.refund(grant).await),
            None => String::new(),
        },
        Step::Release(permits) => format!("{:?}", limiter.release(*permits).await),
        Step::AvailablePermits => format!("{:?}", limiter.available_permits().await),
        Step::SetRate(rate, state) => {
            format!("{:?}", limiter.set_rate_with(*rate, *state).await)
        }
        Step::TimeToLive(millis) => {
            let answer = limiter.expire(Duration::from_millis(*millis)).await;
            format!("{answer:?} {:?}", limiter.remain_time_to_live().await)
        }
        Step::Delete => format!("{:?}", limiter.delete().await),
    }
}

async fn compare(steps: &[(Step, usize)]) {
    let offering = MemoryStore::new();
    let deciding = MemoryStore::new();
    let clock = {
        let store = deciding.clone();
        Clock::from_fn(move || store.0.clock.now())
    };
    let sides = [(offering, Clock::server()), (deciding, clock)].map(|(store, clock)| {
        [(); 2].map(|()| {
            let client = RedissonClient::builder().clock(clock.clone());
            (client.in_memory(&store).rate_limiter("limiter"), Vec::new())
        })
    });
    let [mut offering, mut deciding] = sides;
    for (place, (step, client)) in steps.iter().enumerate() {
        if let Step::Pass(millis) = step {
            tokio::time::advance(Duration::from_millis(*millis)).await;
        }
        let (limiter, grants) = &mut offering[*client];
        let offered = answer(limiter, grants, step).await;
        let (limiter, grants) = &mut deciding[*client];
        let decided = answer(limiter, grants, step).await;
        assert_eq!(offered, decided, "at {place}, {step:?}");
    }
}

#[test]
fn the_fast_path_gives_the_same_answers_as_decisions_under_the_lock() {
    let steps = (1..40_u64).prop_flat_map(|millis| {
        let interval = Duration::from_millis(millis);
        let first = Step::SetRate(Rate::overall(40, interval), PermitsInUse::Reset);
        let step = (
            a_step(interval),
            prop_oneof![3 => Just(0_usize), 1 => Just(1)],
        );
        prop::collection::vec(step, STEPS_PER_CASE).prop_map(move |mut steps| {
            steps.insert(0, (first.clone(), 0));
            steps
        })
    });
    let seed = std::env::var("MODEL_SEED").map_or(1, |seed| seed.parse().unwrap());
    let config = ProptestConfig {
        cases: cases_of(STEPS_PER_CASE),
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(compare(&steps));
    });
}
