//! The object-safe trait over the limiter's methods.

use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::decision::Decision;
use crate::error::Result;
use crate::grant::Grant;
use crate::limiters::RateLimiter;
use crate::rate::Rate;
use crate::store::{PermitsInUse, TimeToLive};

/// The methods of a [`RateLimiter`] as an object-safe trait, for code that names no other type of
/// this crate. Each method does what the method of the same name does there.
///
/// The trait is sealed, so that a new method is no breaking change. Tests use a limiter
/// [in memory](crate::RedissonClient::in_memory).
///
/// ```
/// use redisson_rate_limiter::{RRateLimiter, Rate, RedissonClient, Result};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// struct Mailer {
///     limiter: Arc<dyn RRateLimiter>,
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("mail");
/// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
/// let mailer = Mailer { limiter: Arc::new(limiter) };
/// mailer.limiter.acquire(5).await?;
/// assert!(!mailer.limiter.try_acquire(1).await?);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait RRateLimiter: Sealed + fmt::Debug + Send + Sync {
    /// As [`RateLimiter::name`].
    #[doc(alias = "getName")]
    fn name(&self) -> &str;

    /// As [`RateLimiter::try_set_rate`].
    #[doc(alias = "trySetRate")]
    async fn try_set_rate(&self, rate: Rate) -> Result<bool>;

    /// As [`RateLimiter::set_rate`].
    #[doc(alias = "setRate")]
    async fn set_rate(&self, rate: Rate) -> Result<()>;

    /// As [`RateLimiter::set_rate_with`].
    #[doc(alias = "setRate")]
    async fn set_rate_with(&self, rate: Rate, in_use: PermitsInUse) -> Result<()>;

    /// As [`RateLimiter::update_rate`].
    #[doc(alias = "updateRate")]
    async fn update_rate(&self, rate: Rate, in_use: PermitsInUse) -> Result<bool>;

    /// As [`RateLimiter::config`].
    #[doc(alias = "getConfig")]
    async fn config(&self) -> Result<Option<Rate>>;

    /// As [`RateLimiter::try_acquire`].
    #[doc(alias = "tryAcquire")]
    #[must_use = "`false`: the permits were not taken"]
    async fn try_acquire(&self, permits: u32) -> Result<bool>;

    /// As [`RateLimiter::try_acquire_timeout`].
    #[doc(alias = "tryAcquire")]
    #[must_use = "`false`: the permits were not taken"]
    async fn try_acquire_timeout(&self, permits: u32, timeout: Duration) -> Result<bool>;

    /// As [`RateLimiter::acquire`].
    async fn acquire(&self, permits: u32) -> Result<()>;

    /// As [`RateLimiter::check`].
    async fn check(&self, permits: u32) -> Result<Decision>;

    /// As [`RateLimiter::refund`].
    async fn refund(&self, grant: Grant) -> Result<u32>;

    /// As [`RateLimiter::release`].
    async fn release(&self, permits: u32) -> Result<()>;

    /// As [`RateLimiter::available_permits`].
    #[doc(alias = "availablePermits")]
    async fn available_permits(&self) -> Result<u64>;

    /// As [`RateLimiter::exists`].
    #[doc(alias = "isExists")]
    async fn exists(&self) -> Result<bool>;

    /// As [`RateLimiter::delete`].
    async fn delete(&self) -> Result<bool>;

    /// As [`RateLimiter::expire`].
    async fn expire(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`RateLimiter::expire_at`].
    #[doc(alias = "expireAt")]
    async fn expire_at(&self, time: SystemTime) -> Result<bool>;

    /// As [`RateLimiter::expire_if_set`].
    #[doc(alias = "expireIfSet")]
    async fn expire_if_set(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`RateLimiter::expire_if_not_set`].
    #[doc(alias = "expireIfNotSet")]
    async fn expire_if_not_set(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`RateLimiter::expire_if_greater`].
    #[doc(alias = "expireIfGreater")]
    async fn expire_if_greater(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`RateLimiter::expire_if_less`].
    #[doc(alias = "expireIfLess")]
    async fn expire_if_less(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`RateLimiter::clear_expire`].
    #[doc(alias = "clearExpire")]
    async fn clear_expire(&self) -> Result<bool>;

    /// As [`RateLimiter::remain_time_to_live`].
    #[doc(alias = "remainTimeToLive")]
    async fn remain_time_to_live(&self) -> Result<TimeToLive>;
}

/// Nobody outside can name it.
pub trait Sealed {}

impl Sealed for RateLimiter {}

#[async_trait]
impl RRateLimiter for RateLimiter {
    fn name(&self) -> &str {
        Self::name(self)
    }

    async fn try_set_rate(&self, rate: Rate) -> Result<bool> {
        Self::try_set_rate(self, rate).await
    }

    async fn set_rate(&self, rate: Rate) -> Result<()> {
        Self::set_rate(self, rate).await
    }

    async fn set_rate_with(&self, rate: Rate, in_use: PermitsInUse) -> Result<()> {
        Self::set_rate_with(self, rate, in_use).await
    }

    async fn update_rate(&self, rate: Rate, in_use: PermitsInUse) -> Result<bool> {
        Self::update_rate(self, rate, in_use).await
    }

    async fn config(&self) -> Result<Option<Rate>> {
        Self::config(self).await
    }

    async fn try_acquire(&self, permits: u32) -> Result<bool> {
        Self::try_acquire(self, permits).await
    }

    async fn try_acquire_timeout(&self, permits: u32, timeout: Duration) -> Result<bool> {
        Self::try_acquire_timeout(self, permits, timeout).await
    }

    async fn acquire(&self, permits: u32) -> Result<()> {
        Self::acquire(self, permits).await
    }

    async fn check(&self, permits: u32) -> Result<Decision> {
        Self::check(self, permits).await
    }

    async fn refund(&self, grant: Grant) -> Result<u32> {
        Self::refund(self, grant).await
    }

    async fn release(&self, permits: u32) -> Result<()> {
        Self::release(self, permits).await
    }

    async fn available_permits(&self) -> Result<u64> {
        Self::available_permits(self).await
    }

    async fn exists(&self) -> Result<bool> {
        Self::exists(self).await
    }

    async fn delete(&self) -> Result<bool> {
        Self::delete(self).await
    }

    async fn expire(&self, time_to_live: Duration) -> Result<bool> {
        Self::expire(self, time_to_live).await
    }

    async fn expire_at(&self, time: SystemTime) -> Result<bool> {
        Self::expire_at(self, time).await
    }

    async fn expire_if_set(&self, time_to_live: Duration) -> Result<bool> {
        Self::expire_if_set(self, time_to_live).await
    }

    async fn expire_if_not_set(&self, time_to_live: Duration) -> Result<bool> {
        Self::expire_if_not_set(self, time_to_live).await
    }

    async fn expire_if_greater(&self, time_to_live: Duration) -> Result<bool> {
        Self::expire_if_greater(self, time_to_live).await
    }

    async fn expire_if_less(&self, time_to_live: Duration) -> Result<bool> {
        Self::expire_if_less(self, time_to_live).await
    }

    async fn clear_expire(&self) -> Result<bool> {
        Self::clear_expire(self).await
    }

    async fn remain_time_to_live(&self) -> Result<TimeToLive> {
        Self::remain_time_to_live(self).await
    }
}
