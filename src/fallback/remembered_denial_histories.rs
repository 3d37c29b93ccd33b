//! Random histories of one client: what it denies without asking, or refuses to wait for, the store
//! would deny too, or the limiter has expired.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::time::{Instant, advance, sleep};

use super::without_redis_tests::{RESPONSE_TIMEOUT, Remote};
use crate::random_cases::cases_of;
use crate::{Error, LimiterOptions, PermitsInUse, Rate, RedissonClient, Result};

const HOUR: Duration = Duration::from_secs(3600);
/// No interval is longer.
const LIFE: Duration = ms(300);
const STEPS: usize = 60;
const RATES: usize = 5;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rate(index: usize) -> Rate {
    match index {
        0 => Rate::overall(3, ms(100)),
        1 => Rate::overall(5, ms(100)),
        2 => Rate::overall(5, ms(250)),
        3 => Rate::overall(12, ms(100)), // more grants than a call removes
        _ => Rate::overall(2, ms(60)).keep_alive(LIFE),
    }
}

/// How a request names the limiter.
#[derive(Debug, Clone, Copy)]
enum Handle {
    Plain,
    WithRate(usize),
    Keyed(usize),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(Handle, u32),
    Wait(Handle, u32, Duration),
    AskJointly(Handle),
    SetRate(usize),
    UpdateRate(usize, PermitsInUse),
    Release(u32),
    Delete,
    Expire(Duration),
    ClearExpire,
    /// A request whose future is dropped while its call is in flight.
    Drop(Handle),
    Pass(Duration),
}

/// The rate at the start, and steps with one or two rates: with more, few answers are remembered
/// for long.
fn histories() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (0..RATES, 0..RATES).prop_flat_map(|(first, other)| (Just(first), steps(vec![first, other])))
}

fn steps(rates: Vec<usize>) -> impl Strategy<Value = Vec<Step>> {
    let rate = prop::sample::select(rates);
    let handle = prop_oneof![
        2 => Just(Handle::Plain),
        2 => rate.clone().prop_map(Handle::WithRate),
        1 => rate.clone().prop_map(Handle::Keyed),
    ];
    let in_use = prop_oneof![Just(PermitsInUse::Keep), Just(PermitsInUse::Reset)];
    let time = prop_oneof![
        6 => (1..70_u64).prop_map(ms),
        2 => (70..300_u64).prop_map(ms),
        1 => Just(RESPONSE_TIMEOUT),
    ];
    let permits = prop_oneof![1..3_u32, 1..8_u32];
    let step = prop_oneof![
        40 => (handle.clone(), permits.clone()).prop_map(|(handle, permits)| Step::Ask(handle, permits)),
        12 => (handle.clone(), permits, (1..300_u64).prop_map(ms))
            .prop_map(|(handle, permits, timeout)| Step::Wait(handle, permits, timeout)),
        4 => handle.clone().prop_map(Step::AskJointly),
        3 => rate.clone().prop_map(Step::SetRate),
        3 => (rate, in_use).prop_map(|(rate, in_use)| Step::UpdateRate(rate, in_use)),
        3 => (1..4_u32).prop_map(Step::Release),
        1 => Just(Step::Delete),
        1 => (20..200_u64).prop_map(|millis| Step::Expire(ms(millis))),
        1 => Just(Step::ClearExpire),
        1 => handle.prop_map(Step::Drop),
        14 => time.prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..STEPS)
}

/// Asks for permits now, or within a time, by a handle made for it.
async fn ask(
    client: &RedissonClient,
    handle: Handle,
    permits: u32,
    timeout: Duration,
) -> Result<bool> {
    let plain = client.rate_limiter("l");
    match handle {
        Handle::Plain => plain.try_acquire_timeout(permits, timeout).await,
        Handle::WithRate(index) => {
            let limiter = plain.with_rate(rate(index))?;
            limiter.try_acquire_timeout(permits, timeout).await
        }
        Handle::Keyed(index) => {
            let keyed = client.keyed_rate_limiter("", rate(index).keep_alive(LIFE))?;
            keyed.try_acquire_timeout("l", permits, timeout).await
        }
    }
}

/// Whether the store grants a request now. It is asked by a handle without a rate, which extends no
/// life, and must have the rate of a handle that sets it.
async fn really(truth: &RedissonClient, handle: Handle, permits: u32) -> Result<bool> {
    let limiter = truth.rate_limiter("l");
    if let Handle::Keyed(index) = handle {
        let of = |rate: Rate| (rate.permits(), rate.interval());
        if let Some(stored) = limiter.config().await? {
            assert_eq!(of(stored), of(rate(index)));
        }
    }
    match limiter.try_acquire(permits).await {
        Err(Error::NotInitialized { .. }) => Ok(false), // it has expired
        answer => answer,
    }
}

async fn take(first: usize, steps: Vec<Step>) {
    let remote = Remote::new();
    let options = LimiterOptions::new().remember_denials(HOUR).fail_fast(true);
    let builder = RedissonClient::builder().default_options(options);
    let client = builder.build(remote.store.clone());
    let truth = remote.at_once();
    let limiter = client.rate_limiter("l");
    limiter.set_rate(rate(first)).await.unwrap();
    for step in steps {
        match step {
            Step::Ask(handle, permits) => {
                remote.take_calls();
                let answer = ask(&client, handle, permits, Duration::ZERO).await;
                if remote.take_calls() == 0 && answer.is_ok() {
                    let really = really(&truth, handle, permits).await;
                    assert!(
                        matches!((answer, &really), (Ok(false), Ok(false))),
                        "{really:?}"
                    );
                }
            }
            Step::Wait(handle, permits, timeout) => {
                let start = Instant::now();
                let answer = ask(&client, handle, permits, timeout).await;
                let until = start + timeout;
                while matches!(answer, Ok(false)) && Instant::now() < until {
                    let really = really(&truth, handle, permits).await;
                    assert!(matches!(really, Ok(false)), "{really:?}");
                    sleep(ms(1)).await;
                }
            }
            Step::AskJointly(handle) => {
                let charge = match handle {
                    Handle::Plain => limiter.charge(1),
                    Handle::WithRate(index) => {
                        limiter.clone().with_rate(rate(index)).unwrap().charge(1)
                    }
                    Handle::Keyed(index) => {
                        let keyed = client
                            .keyed_rate_limiter("", rate(index).keep_alive(LIFE))
                            .unwrap();
                        keyed.charge("l", 1)
                    }
                };
                let _ = client.check_all([charge.unwrap()]).await;
            }
            Step::SetRate(index) => limiter.set_rate(rate(index)).await.unwrap(),
            Step::UpdateRate(index, in_use) => {
                let _ = limiter.update_rate(rate(index), in_use).await.unwrap();
            }
            Step::Release(permits) => match limiter.release(permits).await {
                Ok(()) | Err(Error::NotInitialized { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            Step::Delete => drop(limiter.delete().await.unwrap()),
            Step::Expire(time) => drop(limiter.expire(time).await.unwrap()),
            Step::ClearExpire => drop(limiter.clear_expire().await.unwrap()),
            Step::Drop(handle) => {
                let client = client.clone();
                let asking =
                    tokio::spawn(async move { ask(&client, handle, 1, Duration::ZERO).await });
                tokio::task::yield_now().await;
                asking.abort();
                let _ = asking.await;
            }
            Step::Pass(time) => advance(time).await,
        }
    }
}

#[test]
fn a_client_never_denies_what_the_store_would_grant() {
    let config = Config {
        cases: cases_of(STEPS) * 8,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&histories(), |(first, steps)| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(take(first, steps));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
