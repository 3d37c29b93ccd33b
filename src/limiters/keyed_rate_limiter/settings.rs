//! What the limiters of all keys are set to, apart from their rate.

use std::time::Duration;

use super::KeyedRateLimiter;
use crate::failure_policy::FailurePolicy;

impl KeyedRateLimiter {
    /// Sets what requests get while Redis is unavailable, instead of the client's setting. Earlier clones keep theirs.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, LocalShare, Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let half = FailurePolicy::Local(LocalShare::one_of(2)?);
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(10, Duration::from_secs(1)))?
    ///     .with_failure_policy(half);
    /// assert_eq!(limiter.failure_policy(), half);
    /// assert_eq!(limiter.limiter("user:123").failure_policy(), half);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_failure_policy(self, policy: FailurePolicy) -> Self {
        Self {
            limiter: self.limiter.with_failure_policy(policy),
            ..self
        }
    }

    /// As [`RateLimiter::with_remember_denials`](crate::RateLimiter::with_remember_denials), for the limiters of all keys.
    /// The client remembers the 1,024 limiters that were denied last, so that a flood of requests for one key sends
    /// few calls.
    ///
    /// ```
    /// use redisson_rate_limiter::{Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("login:", Rate::overall(1, Duration::from_secs(1)))?
    ///     .with_remember_denials(Duration::from_secs(60));
    /// assert!(limiter.check("mallory", 1).await?.is_granted());
    /// assert!(!limiter.check("mallory", 1).await?.is_granted());
    /// tokio::time::advance(Duration::from_secs(1)).await; // permits that come back are never hidden
    /// assert!(limiter.check("mallory", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_remember_denials(mut self, at_most: Duration) -> Self {
        self.options.remember_denials = at_most;
        self
    }

    /// As [`RateLimiter::with_max_waiters`](crate::RateLimiter::with_max_waiters), for the limiter of each key.
    ///
    /// ```
    /// use redisson_rate_limiter::{Error, Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?
    ///     .with_max_waiters(1);
    /// limiter.acquire("user:123", 1).await?;
    /// let (waited, refused) = tokio::join!(limiter.acquire("user:123", 1), limiter.acquire("user:123", 1));
    /// waited?;
    /// assert!(matches!(refused, Err(Error::QueueFull { .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_max_waiters(mut self, max: usize) -> Self {
        self.options.max_waiters = max;
        self
    }

    /// As [`RateLimiter::with_fail_fast`](crate::RateLimiter::with_fail_fast), for the limiters of all keys.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?
    ///     .with_fail_fast(true);
    /// limiter.acquire("alice", 1).await?;
    /// let start = tokio::time::Instant::now();
    /// assert!(!limiter.try_acquire_timeout("alice", 1, Duration::from_secs(59)).await?);
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_fail_fast(mut self, fail_fast: bool) -> Self {
        self.options.fail_fast = fail_fast;
        self
    }

    /// What requests get while Redis is unavailable.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.limiter.failure_policy()
    }
}
