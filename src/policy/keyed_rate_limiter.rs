//! A limiter for each key: RRateLimiters of one prefix, set up by their first request.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::joint::Share;
use super::shared_rate::SharedRate;
use super::{Limiter, PolicyLimiter};
use crate::client::RedissonClient;
use crate::decision::Decision;
use crate::error::Result;
use crate::limiter::RateLimiter;
use crate::rate::Rate;

/// [`RRateLimiter`](crate::RRateLimiter)s by key: from [`RedissonClient::keyed_rate_limiter`]. Cheap to clone; clones share
/// the rate.
///
/// The limiter of a key is the RRateLimiter of the name prefix + key, one that Redisson shares. A key may hold any text: what
/// no name may hold is written as [`PolicyLimiter`] does. Its first request sets it
/// up, in the same round trip. A limiter that has another rate gets this one, in the same round trip too: what is in use counts
/// on, a change of the [type](crate::RateType) forgets it. So all who use a prefix should agree on the rate of a key.
///
/// Made for millions of keys: a key that nobody asks for goes away after the rate's [keep alive](Rate::keep_alive), and where it
/// has none, an interval after the last request, when all permits would be back anyway. A keep alive that the rate does not
/// name is left as a limiter has it.
///
/// ```
/// use redisson_rate_limiter::{Limiter, RRateLimiter, Rate, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let three_in_ten_seconds = Rate::overall(3, Duration::from_secs(10));
/// let limiter = client.keyed_rate_limiter("nft:turbo:limit:", three_in_ten_seconds)?;
/// for expected in [true, true, true, false] {
///     assert_eq!(limiter.decide("testLock997", 1).await?.is_granted(), expected);
/// }
/// limiter.limiter("testLock997").acquire(1).await?; // waits its turn
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct KeyedRateLimiter {
    client: RedissonClient,
    client_id: Arc<str>,
    limiter: PolicyLimiter<SharedRate>,
}

impl RedissonClient {
    /// A limiter for each key, with this rate: the RRateLimiters whose names are `prefix` + key. Sends nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rate that cannot be, as for
    /// [`try_set_rate`](crate::RRateLimiter::try_set_rate).
    pub fn keyed_rate_limiter(&self, prefix: &str, rate: Rate) -> Result<KeyedRateLimiter> {
        let client_id: Arc<str> = self.id().into();
        let policy = SharedRate::with_rate(Arc::clone(&client_id), rate)?;
        Ok(KeyedRateLimiter {
            client: self.clone(),
            client_id,
            limiter: PolicyLimiter::new(self.clone(), policy)?.prefix(prefix),
        })
    }
}

impl KeyedRateLimiter {
    /// The limiter of a key, for all that [`RRateLimiter`](crate::RRateLimiter) can do, waiting included. It is set up by the
    /// first [`decide`](Limiter::decide), not by this.
    pub fn limiter(&self, key: &str) -> RateLimiter {
        self.client.rate_limiter(&self.limiter.name(key))
    }

    /// Decides as [`decide`](Limiter::decide), with a rate of the key's own, such as its user's plan.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Rate, RedissonClient};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let limiter = RedissonClient::in_memory().keyed_rate_limiter("api:", Rate::overall(1, minute))?;
    /// let large_plan = Rate::overall(100, minute);
    /// assert!(limiter.decide_at("user:123", 50, large_plan).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`decide`](Limiter::decide), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rate that cannot be.
    ///
    /// # Cancel safety
    /// As [`decide`](Limiter::decide).
    #[doc(alias = "tryAcquire")]
    pub async fn decide_at(&self, key: &str, cost: u32, rate: Rate) -> Result<Decision> {
        let policy = SharedRate::with_rate(Arc::clone(&self.client_id), rate)?;
        self.limiter.decide_by(policy, key, cost).await
    }

    /// The rate of the keys that have none of their own.
    pub fn rate(&self) -> Option<Rate> {
        self.limiter.policy().rate()
    }

    /// Changes the rate while requests come in, for all clones of this limiter: each key's limiter gets it with its next
    /// request, and what is in use counts on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rate that cannot be: then the old one stays.
    pub fn change_rate(&self, rate: Rate) -> Result<()> {
        let policy = SharedRate::with_rate(Arc::clone(&self.client_id), rate)?;
        self.limiter.change(policy)
    }
}

#[async_trait]
impl Limiter for KeyedRateLimiter {
    async fn decide(&self, key: &str, cost: u32) -> Result<Decision> {
        self.limiter.decide(key, cost).await
    }

    fn share(&self, key: &str, cost: u32) -> Result<Share> {
        self.limiter.share(key, cost)
    }
}

impl fmt::Debug for KeyedRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimiter")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
