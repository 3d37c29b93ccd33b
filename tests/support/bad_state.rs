//! Calls on keys with another content than a limiter's state.

use std::fmt::Debug;

use redisson_rate_limiter::{Error, RateLimiter, Result};

/// Asserts that the call failed because of what the keys of `name` hold.
pub fn assert_bad_state<T: Debug>(name: &str, method: &str, result: Result<T>) {
    assert!(
        matches!(&result, Err(Error::BadState { name: of, .. }) if of == name),
        "{method}: {result:?}"
    );
}

/// Asserts that each method that decides or counts permits fails.
pub async fn assert_all_that_count_are_refused(limiter: &RateLimiter) {
    let name = limiter.name();
    let hour = std::time::Duration::from_secs(3600);
    assert_bad_state(name, "try_acquire", limiter.try_acquire(1).await);
    assert_bad_state(name, "acquire", limiter.acquire(1).await);
    let timed = limiter.try_acquire_timeout(1, hour).await;
    assert_bad_state(name, "try_acquire_timeout", timed);
    assert_bad_state(name, "check", limiter.check(1).await);
    assert_bad_state(name, "release", limiter.release(1).await);
    let available = limiter.available_permits().await;
    assert_bad_state(name, "available_permits", available);
}
