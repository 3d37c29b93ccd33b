//! The failure policies over a store that goes down and comes back, with tokio's time paused:
//! bounds are exact.

mod breaker;
mod errors;
mod histories;
mod leases;
mod local_limiter;
mod policies;
mod remote;
mod waiters;

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::error::Error;
use crate::store::memory::Loss;
use crate::{
    Decision, FailurePolicy, FixedWindow, Granted, Lease, Limiter, LimiterOptions, LocalShare,
    PermitsInUse, Rate, RateLimiter, RedissonClient, Rule, TokenBucket,
};
pub(super) use remote::Remote;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

fn one_of(clients: u32) -> FailurePolicy {
    FailurePolicy::Local(LocalShare::one_of(clients.try_into().unwrap()))
}

/// How many single permits are granted now.
async fn granted_now(limiter: &RateLimiter) -> u32 {
    let mut granted = 0;
    while limiter.try_acquire(1).await.unwrap() {
        granted += 1;
    }
    granted
}

async fn with_rate(client: &RedissonClient, permits: u64) -> RateLimiter {
    let limiter = client.rate_limiter("limiter");
    let rate = Rate::overall(permits, 10 * SECOND);
    limiter.try_set_rate(rate).await.unwrap();
    limiter.config().await.unwrap();
    limiter
}
