//! What is measured: an operation on a limiter of which all permits but one are in use, or were.

use std::time::Duration;

use compat_tests::redisson;
use redisson_rate_limiter::{PermitsInUse, Rate, RateLimiter};

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
    AvailablePermits,
    ReleaseOne,
    /// One fourth of all permits.
    ReleaseMany,
    KeepState,
    ResetState,
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

pub const OPERATIONS: [Operation; 10] = [
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
    operation("updateRate, state kept", Age::Live, Call::KeepState),
    operation("updateRate, state reset", Age::Live, Call::ResetState),
];

impl Call {
    pub async fn ours(self, limiter: &RateLimiter, grants: u32) {
        let rate = Rate::overall(u64::from(grants) + 2, INTERVAL);
        let quarter = (grants / 4).max(1);
        let result = match self {
            Self::Acquire => limiter.try_acquire(1).await.map(drop),
            Self::AcquireMany => limiter.try_acquire(quarter).await.map(drop),
            Self::AvailablePermits => limiter.available_permits().await.map(drop),
            Self::ReleaseOne => limiter.release(1).await,
            Self::ReleaseMany => limiter.release(quarter).await,
            Self::KeepState => limiter
                .update_rate(rate, PermitsInUse::Keep)
                .await
                .map(drop),
            Self::ResetState => limiter
                .update_rate(rate, PermitsInUse::Reset)
                .await
                .map(drop),
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
            Self::KeepState => limiter.update_rate(rate, Some(true)).await.map(drop),
            Self::ResetState => limiter.update_rate(rate, Some(false)).await.map(drop),
        };
        // Its response timeout may be shorter than what its script takes.
        if let Err(error) = result {
            eprintln!("growth: Redisson: {error}");
        }
    }
}
