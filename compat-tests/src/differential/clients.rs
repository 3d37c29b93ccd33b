//! How each client takes a step, and what it answers.

use std::time::{Duration, UNIX_EPOCH};

use crate::redisson::{self, Config, JavaError, Limiter};
use redisson_rate_limiter::{Error, PermitsInUse, Rate, RateLimiter, TimeToLive};

use super::{
    keys::units_up,
    steps::{Condition, Step},
};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Done,
    Is(bool),
    Permits(i64),
    Config(Option<Config>),
    /// In units of 100 s, rounded up; -1 for ever, -2 missing.
    Lives(i64),
    NotInitialized,
    PermitsExceedRate,
    InvalidArgument,
    /// Any other error, which none of the steps should meet.
    Failed(String),
}

pub(super) async fn by_java(limiter: &Limiter, step: &Step) -> Outcome {
    let rate = |rate: &Rate| redisson::Rate::of(rate);
    let keep = |state: &PermitsInUse| Some(*state == PermitsInUse::Keep);
    let millis = |time: &Duration| time.as_millis() as i64;
    let outcome = match step {
        Step::TryAcquire(permits) => limiter
            .try_acquire((*permits).into())
            .await
            .map(Outcome::Is),
        Step::TryAcquireAtOnce(permits) => limiter
            .try_acquire_timeout((*permits).into(), 0)
            .await
            .map(Outcome::Is),
        Step::Release(permits) => done(limiter.release((*permits).into()).await),
        Step::AvailablePermits => limiter.available_permits().await.map(Outcome::Permits),
        Step::TrySetRate(r) => limiter.try_set_rate(rate(r)).await.map(Outcome::Is),
        Step::SetRate(r) => done(limiter.set_rate(rate(r)).await),
        Step::SetRateWith(r, state) => done(limiter.set_rate_args(rate(r), keep(state)).await),
        Step::UpdateRate(r, state) => limiter
            .update_rate(rate(r), keep(state))
            .await
            .map(Outcome::Is),
        Step::Config => limiter.config().await.map(|c| Outcome::Config(Some(c))),
        Step::Exists => limiter.is_exists().await.map(Outcome::Is),
        Step::Delete => limiter.delete().await.map(Outcome::Is),
        Step::Expire(condition, time) => {
            let time = millis(time);
            let done = match condition {
                Condition::Always => limiter.expire(time).await,
                Condition::IfSet => limiter.expire_if_set(time).await,
                Condition::IfNotSet => limiter.expire_if_not_set(time).await,
                Condition::IfGreater => limiter.expire_if_greater(time).await,
                Condition::IfLess => limiter.expire_if_less(time).await,
            };
            done.map(Outcome::Is)
        }
        Step::ExpireAt(time) => limiter
            .expire_at(millis(&time.duration_since(UNIX_EPOCH).unwrap()))
            .await
            .map(Outcome::Is),
        Step::ClearExpire => limiter.clear_expire().await.map(Outcome::Is),
        Step::RemainTimeToLive => limiter.remain_time_to_live().await.map(lives),
        Step::Pass(_) | Step::HashExpires | Step::HashIsOld => unreachable!("taken by the test"),
    };
    outcome.unwrap_or_else(|error| failure_of_java(&error))
}

fn failure_of_java(error: &JavaError) -> Outcome {
    // Some versions add the script, which has both texts, to what the server said.
    let (said, _) = error
        .message
        .split_once("channel:")
        .unwrap_or((&error.message, ""));
    if said.contains("RateLimiter is not initialized") {
        Outcome::NotInitialized
    } else if said.contains("exceed defined rate") {
        Outcome::PermitsExceedRate
    } else if error.class == "IllegalArgumentException" {
        Outcome::InvalidArgument
    } else {
        Outcome::Failed(error.to_string())
    }
}

pub(super) async fn by_rust(limiter: &RateLimiter, step: &Step) -> Outcome {
    let outcome = match step {
        Step::TryAcquire(permits) => limiter.try_acquire(*permits).await.map(Outcome::Is),
        Step::TryAcquireAtOnce(permits) => limiter
            .try_acquire_timeout(*permits, Duration::ZERO)
            .await
            .map(Outcome::Is),
        Step::Release(permits) => done(limiter.release(*permits).await),
        Step::AvailablePermits => limiter
            .available_permits()
            .await
            .map(|permits| Outcome::Permits(permits as i64)),
        Step::TrySetRate(rate) => limiter.try_set_rate(*rate).await.map(Outcome::Is),
        Step::SetRate(rate) => done(limiter.set_rate(*rate).await),
        Step::SetRateWith(rate, state) => done(limiter.set_rate_with(*rate, *state).await),
        Step::UpdateRate(rate, state) => limiter.update_rate(*rate, *state).await.map(Outcome::Is),
        Step::Config => limiter.config().await.map(|rate| {
            Outcome::Config(rate.map(|rate| {
                let redisson::Rate {
                    rate_type,
                    rate,
                    interval,
                    ..
                } = redisson::Rate::of(&rate);
                Config {
                    rate_type,
                    rate,
                    interval,
                }
            }))
        }),
        Step::Exists => limiter.exists().await.map(Outcome::Is),
        Step::Delete => limiter.delete().await.map(Outcome::Is),
        Step::Expire(condition, time) => {
            let done = match condition {
                Condition::Always => limiter.expire(*time).await,
                Condition::IfSet => limiter.expire_if_set(*time).await,
                Condition::IfNotSet => limiter.expire_if_not_set(*time).await,
                Condition::IfGreater => limiter.expire_if_greater(*time).await,
                Condition::IfLess => limiter.expire_if_less(*time).await,
            };
            done.map(Outcome::Is)
        }
        Step::ExpireAt(time) => limiter.expire_at(*time).await.map(Outcome::Is),
        Step::ClearExpire => limiter.clear_expire().await.map(Outcome::Is),
        Step::RemainTimeToLive => limiter.remain_time_to_live().await.map(|left| match left {
            TimeToLive::Missing => lives(-2),
            TimeToLive::Unlimited => lives(-1),
            TimeToLive::Remaining(time) => lives(time.as_millis() as i64),
            other => panic!("Redis has no answer for {other:?}"),
        }),
        Step::Pass(_) | Step::HashExpires | Step::HashIsOld => unreachable!("taken by the test"),
    };
    match outcome {
        Ok(outcome) => outcome,
        Err(Error::NotInitialized { .. }) => Outcome::NotInitialized,
        Err(Error::ExceedsLimit { .. }) => Outcome::PermitsExceedRate,
        Err(Error::InvalidArgument { .. }) => Outcome::InvalidArgument,
        Err(error) => Outcome::Failed(format!("{error:?}")),
    }
}

fn done<E>(result: Result<(), E>) -> Result<Outcome, E> {
    result.map(|()| Outcome::Done)
}

fn lives(millis: i64) -> Outcome {
    Outcome::Lives(if millis < 0 { millis } else { units_up(millis) })
}
