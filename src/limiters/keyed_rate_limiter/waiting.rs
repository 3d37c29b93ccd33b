//! Requests for the permits of a key that may wait for them.

use std::time::Duration;

use super::KeyedRateLimiter;
use crate::error::Result;
use crate::grant::Grant;

impl KeyedRateLimiter {
    /// Waits for permits of a key, in the order of arrival in this process, as
    /// [`RateLimiter::acquire`](crate::RateLimiter::acquire) does. Creates the limiter as
    /// [`check`](Self::check) does, and again if it expires or is deleted in the meantime.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Rate, RedissonClient};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// let start = tokio::time::Instant::now();
    /// limiter.acquire("user:123", 1).await?;
    /// limiter.acquire("user:123", 1).await?;
    /// assert_eq!(start.elapsed(), Duration::from_secs(1));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`Error::QueueFull`](crate::Error::QueueFull) for a limiter
    /// with a [bound](crate::LimiterOptions::max_waiters).
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    pub async fn acquire(&self, key: &str, permits: u32) -> Result<()> {
        self.acquire_grant(key, permits).await?;
        Ok(())
    }

    /// Waits as [`acquire`](Self::acquire) does, and returns the grant, to settle or refund it, as
    /// [`RateLimiter::acquire_grant`](crate::RateLimiter::acquire_grant).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let tokens = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("model:", Rate::overall(1_000, Duration::from_secs(60)))?;
    /// let estimate = tokens.acquire_grant("alice", 300).await?;
    /// tokens.settle("alice", estimate, 100).await?;
    /// assert_eq!(tokens.check("alice", 900).await?.remaining(), 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`RateLimiter::acquire_grant`](crate::RateLimiter::acquire_grant).
    pub async fn acquire_grant(&self, key: &str, permits: u32) -> Result<Grant> {
        let grant = self.wait(key, permits, None).await?;
        // Without a timeout, waiting ends with a grant or an error.
        Ok(grant.expect("there is no timeout"))
    }

    /// Takes permits of a key if they are available now, and returns whether it did. Creates the
    /// limiter in the same call.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.try_acquire("alice", 1).await?);
    /// assert!(!limiter.try_acquire("alice", 1).await?);
    /// assert!(limiter.try_acquire("bob", 1).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    #[doc(alias = "tryAcquire")]
    #[must_use = "`false`: the permits were not taken"]
    pub async fn try_acquire(&self, key: &str, permits: u32) -> Result<bool> {
        Ok(self.check(key, permits).await?.is_granted())
    }

    /// Waits for permits of a key as [`acquire`](Self::acquire) does; returns `false` if `timeout`
    /// passes first.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.try_acquire_timeout("alice", 1, Duration::from_millis(300)).await?);
    /// assert!(!limiter.try_acquire_timeout("alice", 1, Duration::from_millis(300)).await?);
    /// assert!(limiter.try_acquire_timeout("alice", 1, Duration::from_millis(900)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`Error::QueueFull`](crate::Error::QueueFull) for a limiter
    /// with a [bound](crate::LimiterOptions::max_waiters).
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    #[doc(alias = "tryAcquire")]
    #[must_use = "`false`: the permits were not taken"]
    pub async fn try_acquire_timeout(
        &self,
        key: &str,
        permits: u32,
        timeout: Duration,
    ) -> Result<bool> {
        if timeout.is_zero() {
            return self.try_acquire(key, permits).await;
        }
        Ok(self.wait(key, permits, Some(timeout)).await?.is_some())
    }

    async fn wait(
        &self,
        key: &str,
        permits: u32,
        timeout: Option<Duration>,
    ) -> Result<Option<Grant>> {
        let reported = self.0.reported(permits);
        let queue_time = reported.queue_time();
        let waiting = async {
            let set_up = self.0.read_set_up();
            let current = set_up();
            let name = self.0.validated_name(key, permits, current)?;
            let limiter = self.0.rate_limiter(&name);
            self.0.note_asked(&limiter, current);
            let waiting = limiter.wait_set_up(permits, timeout, Some(set_up), &queue_time);
            waiting.await
        };
        reported.ended(waiting.await)
    }
}
