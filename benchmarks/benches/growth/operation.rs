//! What is measured: an operation on a limiter of which all permits but one are in use, or were.

use std::time::Duration;

use compat_tests::redisson;
use redisson_rate_limiter::{
    Decision, FixedWindow, Granted, PermitsInUse, Rate, RateLimiter, RedissonClient,
};

use crate::together::{each_of_many, many_callers};

/// How old the grants are, with an interval of an hour.
#[derive(Clone, Copy)]
pub enum Age {
    Live,
    HalfExpired,
    Expired,
}

#[derive(Clone, Copy)]
pub enum Call {
    /// The first of a client.
    Acquire,
    /// One fourth of all permits.
    AcquireMany,
    /// By callers that share calls.
    AcquireByMany,
    /// On limiters that share calls, with the grants spread over them.
    AcquireOnMany,
    /// Together with another limiter.
    AcquireJointly,
    /// The first answer is lost.
    AcquireAgain,
    AvailablePermits,
    ReleaseOne,
    /// One fourth of all permits.
    ReleaseMany,
    /// Of the last grant.
    Refund,
    SetRate,
    KeepState,
    ResetState,
    /// Its settings are gone, and the grants are left.
    TrySetRate,
}

pub struct Operation {
    pub name: &'static str,
    pub age: Age,
    pub call: Call,
}

pub const INTERVAL: Duration = Duration::from_secs(3600);

const fn operation(name: &'static str, age: Age, call: Call) -> Operation {
    Operation { name, age, call }
}

pub const OPERATIONS: [Operation; 17] = [
    operation("first tryAcquire of a client", Age::Live, Call::Acquire),
    operation(
        "tryAcquire, half of the grants expired",
        Age::HalfExpired,
        Call::Acquire,
    ),
    operation(
        "tryAcquire(a quarter of the rate), half expired",
        Age::HalfExpired,
        Call::AcquireMany,
    ),
    operation(
        "tryAcquire, all expired at once",
        Age::Expired,
        Call::Acquire,
    ),
    operation(
        "tryAcquire by 64 callers, half expired",
        Age::HalfExpired,
        Call::AcquireByMany,
    ),
    operation(
        "tryAcquire on 64 limiters, half expired",
        Age::HalfExpired,
        Call::AcquireOnMany,
    ),
    operation(
        "joint decision, half expired",
        Age::HalfExpired,
        Call::AcquireJointly,
    ),
    operation(
        "tryAcquire, sent again after a lost answer",
        Age::Live,
        Call::AcquireAgain,
    ),
    operation("availablePermits", Age::Live, Call::AvailablePermits),
    operation(
        "availablePermits, half expired",
        Age::HalfExpired,
        Call::AvailablePermits,
    ),
    operation("release(1)", Age::Live, Call::ReleaseOne),
    operation(
        "release(a quarter of the rate)",
        Age::Live,
        Call::ReleaseMany,
    ),
    operation("refund", Age::Live, Call::Refund),
    operation("setRate", Age::Live, Call::SetRate),
    operation("updateRate, state kept", Age::Live, Call::KeepState),
    operation("updateRate, state reset", Age::Live, Call::ResetState),
    operation(
        "trySetRate over what an earlier limiter left",
        Age::Live,
        Call::TrySetRate,
    ),
];

impl Call {
    /// On how many limiters it is made.
    pub fn limiters(self) -> u32 {
        match self {
            Self::AcquireOnMany => 64,
            _ => 1,
        }
    }

    pub fn has_settings(self) -> bool {
        !matches!(self, Self::TrySetRate)
    }

    pub fn loses_answer(self) -> bool {
        matches!(self, Self::AcquireAgain)
    }

    /// Whether Redisson has the operation.
    pub fn is_redissons(self) -> bool {
        !matches!(
            self,
            Self::AcquireByMany
                | Self::AcquireOnMany
                | Self::AcquireJointly
                | Self::AcquireAgain
                | Self::Refund
        )
    }

    /// What comes before it and is not measured: the grant that it gives back.
    pub async fn prepare(self, limiter: &RateLimiter) -> Option<Granted> {
        if !matches!(self, Self::Refund) {
            return None;
        }
        match limiter.check(1).await.expect("our call") {
            Decision::Granted(granted) => Some(granted),
            Decision::Denied(denied) => panic!("{denied:?}"),
        }
    }

    pub async fn ours(
        self,
        client: &RedissonClient,
        limiters: &[RateLimiter],
        prepared: Option<Granted>,
        grants: u32,
    ) {
        let rate = Rate::overall(u64::from(grants) + 2, INTERVAL);
        let quarter = (grants / 4).max(1);
        let limiter = &limiters[0];
        let result = match self {
            Self::Acquire | Self::AcquireAgain => limiter.try_acquire(1).await.map(drop),
            Self::AcquireMany => limiter.try_acquire(quarter).await.map(drop),
            Self::AcquireByMany => many_callers(limiter, 64).await,
            Self::AcquireOnMany => each_of_many(limiters.to_vec()).await,
            Self::AcquireJointly => {
                let other = client.policy_limiter(FixedWindow::new(100, INTERVAL));
                let charges = [
                    limiter.charge(1),
                    other.and_then(|other| other.charge("another", 1)),
                ];
                let charges = charges.map(|charge| charge.expect("a charge"));
                client.check_all(charges).await.map(drop)
            }
            Self::AvailablePermits => limiter.available_permits().await.map(drop),
            Self::ReleaseOne => limiter.release(1).await,
            Self::ReleaseMany => limiter.release(quarter).await,
            Self::Refund => {
                let granted = prepared.expect("a grant");
                limiter.refund(granted.grant).await.map(drop)
            }
            Self::SetRate => limiter.set_rate(rate).await,
            Self::KeepState => limiter
                .update_rate(rate, PermitsInUse::Keep)
                .await
                .map(drop),
            Self::ResetState => limiter
                .update_rate(rate, PermitsInUse::Reset)
                .await
                .map(drop),
            Self::TrySetRate => limiter.try_set_rate(rate).await.map(drop),
        };
        result.expect("our call");
    }

    pub async fn redissons(self, limiter: &redisson::Limiter, grants: u32) {
        let rate = redisson::Rate::overall(i64::from(grants) + 2, INTERVAL.as_millis() as i64);
        let quarter = i64::from((grants / 4).max(1));
        let result = match self {
            Self::Acquire => limiter.try_acquire(1).await.map(drop),
            Self::AcquireMany => limiter.try_acquire(quarter).await.map(drop),
            Self::AvailablePermits => limiter.available_permits().await.map(drop),
            Self::ReleaseOne => limiter.release(1).await,
            Self::ReleaseMany => limiter.release(quarter).await,
            Self::SetRate => limiter.set_rate(rate).await,
            Self::KeepState => limiter.update_rate(rate, Some(true)).await.map(drop),
            Self::ResetState => limiter.update_rate(rate, Some(false)).await.map(drop),
            Self::TrySetRate => limiter.try_set_rate(rate).await.map(drop),
            Self::AcquireByMany
            | Self::AcquireOnMany
            | Self::AcquireJointly
            | Self::AcquireAgain
            | Self::Refund => unreachable!("Redisson has no such operation"),
        };
        // Its response timeout may be shorter than what its script takes.
        if let Err(error) = result {
            eprintln!("growth: Redisson: {error}");
        }
    }
}
