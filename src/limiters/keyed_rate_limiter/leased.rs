//! Leases of the keys that are asked for again and again.

use super::KeyedRateLimiter;
use crate::limiters::Lease;

impl KeyedRateLimiter {
    /// This limiter with leases for its hot keys: the client takes permits of these from Redis
    /// ahead of the requests, and grants them in this process without a call, as
    /// [`RateLimiter::leased`](crate::RateLimiter::leased) does. Sends nothing.
    ///
    /// A key becomes hot with its second request, if there are not many requests of other keys in
    /// between. It stops being hot when no request of it has gone to Redis for the time of two
    /// leases. A key with fewer than 16 requests in that time leases nothing, because a lease costs
    /// two calls. At most 16,384 keys are hot at a time; further keys are decided without leases
    /// until there is room. So a key with a single request takes no memory and no further call,
    /// however many such keys there are.
    ///
    /// [`check`](Self::check), [`check_with_rate`](Self::check_with_rate),
    /// [`acquire`](Self::acquire) and [`peek`](Self::peek) of this handle and its clones use the
    /// leases, and so does every handle of this client on a hot key's
    /// [`RateLimiter`](crate::RateLimiter), where it asks with the same rate;
    /// [`charge`](Self::charge) and rules that decide together do not. The leases of a key end when
    /// it is no longer hot and when it is [reset](Self::reset); all end when the
    /// [rate](Self::set_rate) changes, when the last of these handles is dropped and when the
    /// client is [closed](crate::RedissonClient::close). A request with a rate of its own gets
    /// permits of leases that were taken with this rate only. The guide to leases
    /// (`docs/leases.md`) says what they cost, and when not to use them.
    ///
    /// A limiter must exist as long as its grants count. Therefore the limiter of a key without
    /// requests expires later by the time of a lease. Where the rate sets a [keep
    /// alive](crate::Rate::keep_alive), a lease lasts at most as long as the difference between the
    /// keep alive and the interval.
    ///
    /// In memory every request is decided at once, so there are no leases.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let client = RedissonClient::in_memory(); // or RedissonClient::connect("redis://127.0.0.1:6379").await?
    /// let limiter = client
    ///     .keyed_rate_limiter("api:", Rate::overall(1_000, Duration::from_secs(1)))?
    ///     .leased(Lease::up_to(Duration::from_millis(50)));
    /// for _ in 0..100 {
    ///     assert!(limiter.check("alice", 1).await?.is_granted());
    /// }
    /// assert_eq!(limiter.peek("alice", 1).await?.remaining(), 899); // after this one
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn leased(self, lease: Lease) -> Self {
        Self(self.0.with_leases(lease))
    }
}
