//! A handle that takes permits ahead of its requests, and decides without a call.

use std::sync::Arc;
use std::time::Duration;

use super::RateLimiter;

/// How permits are leased: an argument of [`RateLimiter::leased`].
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// let lease = Lease::up_to(Duration::from_millis(50));
/// assert_eq!(lease.longest(), Duration::from_millis(50));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    up_to: Duration,
}

impl Lease {
    /// Leases of at most this length, in whole milliseconds, and of at most half of the limiter's
    /// interval. A twentieth of the interval is a good choice: a lease must be several times as
    /// long as a call to Redis takes, and permits that it does not use are denied to others until
    /// it ends. With less than a millisecond nothing is leased.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.rate_limiter("orders:api").leased(Lease::up_to(Duration::from_millis(50)));
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.try_acquire(5).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn up_to(duration: Duration) -> Self {
        Self { up_to: duration }
    }

    /// The greatest length of a lease.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// assert_eq!(Lease::up_to(Duration::from_secs(1)).longest(), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.up_to
    }
}

impl RateLimiter {
    /// This limiter with leases: permits that the client takes from Redis ahead of the requests, as
    /// many as recent requests wanted, and then grants in this process without a call, in less than
    /// a microsecond. Sends nothing.
    ///
    /// A lease is exact: none of its permits is used after its end, and they come back an interval
    /// later, so no window of the interval's length holds more than the rate. At its end one call
    /// gives back what it did not use. The calls are made in the background, so that requests
    /// seldom wait for them; a request that no lease can serve goes to Redis, as without leases.
    /// After Redis has denied a request, nothing is leased for a while, so waiters share the
    /// permits with other processes as without leases. During an outage of Redis, a lease grants
    /// until it ends.
    ///
    /// All handles of this client on this limiter use its leases while one that this method made
    /// exists; [`check_all`](crate::RedissonClient::check_all) does not. The leases end when the
    /// last such handle is dropped, when this client sets the rate, resets or deletes the limiter,
    /// or gives it a time to live, and when the client is [closed](crate::RedissonClient::close).
    ///
    /// [`available_permits`](Self::available_permits) counts the permits left in Redis and those
    /// left in this client's leases. [`remaining`](crate::Granted::remaining) of a request that a
    /// lease granted counts what was left in Redis when the last lease was taken. For Redis and for
    /// other clients, leased permits are in use. The guide to leases (`docs/leases.md`) says what
    /// they cost, and when not to use them.
    ///
    /// In memory every request is decided at once, so there are no leases.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let client = RedissonClient::in_memory(); // or RedissonClient::connect("redis://127.0.0.1:6379").await?
    /// let limiter = client.rate_limiter("orders:api").leased(Lease::up_to(Duration::from_millis(50)));
    /// limiter.try_set_rate(Rate::overall(1_000, Duration::from_secs(1))).await?;
    /// for _ in 0..100 {
    ///     assert!(limiter.try_acquire(1).await?);
    /// }
    /// assert_eq!(limiter.available_permits().await?, 900);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn leased(self, lease: Lease) -> Self {
        self.leased_from(2, lease) // a single request may remain the only one
    }

    /// Like [`leased`](Self::leased), but leases once there are this many requests in the time of
    /// two leases.
    pub(crate) fn leased_from(mut self, fewest_uses: u64, lease: Lease) -> Self {
        let is_long_enough = lease.up_to >= Duration::from_millis(1);
        let hold = is_long_enough.then(|| self.queue.hold_lease(lease.up_to, fewest_uses));
        self._lease = hold.flatten().map(Arc::new);
        self
    }

    /// This limiter, as a handle that does not keep it leased.
    pub(super) fn without_leases(mut self) -> Self {
        self._lease = None;
        self
    }
}
