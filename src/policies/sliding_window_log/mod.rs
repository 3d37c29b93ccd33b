//! `SlidingWindowLog`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

/// Grants no more than `limit` in any time span of the length of `window`, exactly.
///
/// State: the sorted set `key`, with a member for each unit of cost that was granted. Its score is
/// the time of the grant in ms, so that a script that counts members computes the same. The set
/// expires two windows after its last grant: a script on the same key that sets no time to live may
/// have added to it in the meantime. Each member counts 1, including those that scripts wrote.
///
/// A grant writes as many members as it costs, and removes up to three times as many that have
/// expired; those that remain count no more. So that no call holds up the server, a request may
/// cost 500 at most. For limits of many thousands, or costs of hundreds, a
/// [`SlidingWindowCounter`](crate::SlidingWindowCounter) is cheaper.
///
/// A [`set_policy`](crate::PolicyLimiter::set_policy) applies at once to the stored requests: those
/// that are older than a shorter window no longer count, and its grants remove them; a longer one
/// counts those that have not been removed.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"sliding_window_log","rate":"100/1m"}`.
///
/// ```
/// use redisson_rate_limiter::{RedissonClient, SlidingWindowLog};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.policy_limiter(SlidingWindowLog::new(3, Duration::from_secs(60)))?;
/// assert!(limiter.check("user:123", 1).await?.is_granted());
/// tokio::time::advance(Duration::from_secs(20)).await;
/// assert!(limiter.check("user:123", 2).await?.is_granted());
/// let retry_after = limiter.check("user:123", 1).await?.retry_after().expect("denied");
/// assert_eq!(retry_after, Duration::from_secs(40));
/// let retry_after = limiter.check("user:123", 2).await?.retry_after().expect("denied");
/// assert_eq!(retry_after, Duration::from_secs(60));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingWindowLog {
    limit: u32,
    window: Duration,
}

impl SlidingWindowLog {
    /// `limit` (1 to 20,000) in each `window` (whole milliseconds, at least 1).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let policy = SlidingWindowLog::new(100, minute);
    /// assert_eq!(policy.limit(), 100);
    /// assert_eq!(policy.window(), minute);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(limit: u32, window: Duration) -> Self {
        Self { limit, window }
    }
}

numbers! {
    SlidingWindowLog, "sliding window log: {limit} per {window:?}";
    new {
        /// The largest total cost granted in any window.
        limit: u32,
        /// A window's length.
        window: Duration,
    }
    with {}
}
