//! A limiter in memory on paused time, where waits are exact.

use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};

use crate::by_hand::Pending;

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3600);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub async fn limiter(rate: u64, interval: Duration) -> RateLimiter {
    let limiter = RedissonClient::in_memory().rate_limiter("limiter");
    let rate = Rate::overall(rate, interval);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    limiter
}

/// A wait, for polling by hand.
pub fn wait(limiter: &RateLimiter, permits: u32) -> Pending<'_, redisson_rate_limiter::Result<()>> {
    Box::pin(limiter.acquire(permits))
}

/// Lets the tasks that can go on do so. The clock stands still meanwhile: each turn, somebody is
/// ready.
pub async fn let_others_work() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
