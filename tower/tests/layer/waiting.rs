//! Requests that wait for a grant.

use std::time::Duration;

use redisson_rate_limiter::{LeakyBucket, RedissonClient};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Everyone;
use tokio::time::Instant;

use crate::fixture::{MINUTE, ask, per_minute, request};

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_it_is_granted() {
    let limiter = per_minute(&RedissonClient::in_memory(), 1);
    let layer = RateLimitLayer::new(limiter, Everyone).wait_up_to(MINUTE);
    let start = Instant::now();
    for waited in [0, 1, 2] {
        assert_eq!(ask(&layer, request()).await.status(), 200);
        assert_eq!(start.elapsed(), waited * MINUTE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_rejected_at_once() {
    let limiter = || per_minute(&RedissonClient::in_memory(), 1);
    let at_once = RateLimitLayer::new(limiter(), Everyone);
    let by_a_task = RateLimitLayer::with_async_key(limiter(), |_| Box::pin(async { None }));
    for layer in [at_once, by_a_task] {
        let layer = layer.wait_up_to(MINUTE - Duration::from_millis(1));
        let start = Instant::now();
        for status in [200, 429] {
            assert_eq!(ask(&layer, request()).await.status(), status);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_lets_requests_through_at_its_pace() {
    let slow = LeakyBucket::new(1, Duration::from_secs(1)).with_capacity(2);
    let limiter = RedissonClient::in_memory().policy_limiter(slow).unwrap();
    let layer = RateLimitLayer::new(limiter, Everyone);
    let start = Instant::now();
    for waited in [0, 1, 2] {
        assert_eq!(ask(&layer, request()).await.status(), 200);
        assert_eq!(start.elapsed(), Duration::from_secs(waited));
    }
}
