//! Whether a limiter exists, and for how long.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::RateLimiter;
use crate::error::{Error, Result};
use crate::rate::millis_from_zero;
use crate::store::{LimiterChange, TimeToLive};
use crate::window::{Condition, Expiry};

impl RateLimiter {
    /// Whether the limiter has a rate: whether its hash `name` exists.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// assert!(!limiter.exists().await?);
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.exists().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of every call, as listed at [`RateLimiter`].
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    #[doc(alias = "isExists")]
    pub async fn exists(&self) -> Result<bool> {
        Ok(self.remain_time_to_live().await? != TimeToLive::Missing)
    }

    /// Removes the limiter: its rate, the permits that all clients share, and those of this client.
    /// Returns whether there was anything to remove.
    ///
    /// For a rate [per client](crate::RateType::PerClient), the permits that other clients have in
    /// use stay.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.exists().await?);
    /// assert!(limiter.delete().await?);
    /// assert!(!limiter.exists().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of every call, as listed at [`RateLimiter`].
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have removed it.
    pub async fn delete(&self) -> Result<bool> {
        let store = self.validated()?;
        self.change(store.change(LimiterChange::DELETE)).await
    }

    /// Sets the time to live of the limiter's keys (whole milliseconds); zero deletes them. Returns
    /// whether there was anything to expire.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Rate, RedissonClient, TimeToLive};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("l");
    /// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(limiter.expire(hour).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour));
    /// assert!(limiter.expire(Duration::ZERO).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Missing);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the time is not whole milliseconds, or longer than 2^52 of them.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have taken effect.
    pub async fn expire(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::Always).await
    }

    /// Sets the time at which the limiter's keys expire, rounded down to milliseconds; a time in
    /// the past deletes them. Returns whether there was anything to expire.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.expire_at(std::time::UNIX_EPOCH + Duration::from_secs(1)).await?);
    /// assert!(!limiter.exists().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// The server compares the time with its own clock, so a client does not know how long it is
    /// until then: it [remembers no denials](crate::LimiterOptions::remember_denials) of the
    /// limiter until it sets or removes a time to live in another way, or sets a rate with a keep
    /// alive.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the time is before 1970 or after 2^52 ms.
    ///
    /// # Cancel safety
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireAt")]
    pub async fn expire_at(&self, time: SystemTime) -> Result<bool> {
        let store = self.validated()?;
        let since_epoch = time
            .duration_since(UNIX_EPOCH)
            .map_err(|_| Error::InvalidArgument {
                argument: "time",
                reason: "must not be before 1970",
            })?;
        // Redis counts in ms; a fraction of a millisecond is dropped.
        let millis = Duration::from_millis(since_epoch.as_millis().try_into().unwrap_or(u64::MAX));
        let expiry = Expiry::At(millis_from_zero(millis, "time")?);
        let change = LimiterChange::Expire(expiry, Condition::Always);
        self.change(store.change(change)).await
    }

    /// Like [`expire`](Self::expire), but only for keys that have a time to live (`PEXPIRE … XX`).
    /// Returns whether there was such a key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(!limiter.expire_if_set(hour).await?);
    /// assert!(limiter.expire_if_not_set(hour).await?);
    /// assert!(!limiter.expire_if_greater(hour / 2).await?);
    /// assert!(limiter.expire_if_less(hour / 2).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour / 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    ///
    /// # Cancel safety
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfSet")]
    pub async fn expire_if_set(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfSet).await
    }

    /// Like [`expire`](Self::expire), but only for keys that have no time to live (`PEXPIRE … NX`).
    /// Returns whether there was such a key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(limiter.expire_if_not_set(hour).await?);
    /// assert!(!limiter.expire_if_not_set(hour / 2).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    ///
    /// # Cancel safety
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfNotSet")]
    pub async fn expire_if_not_set(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfNotSet).await
    }

    /// Like [`expire`](Self::expire), but only for keys whose time to live is shorter than the new
    /// one (`PEXPIRE … GT`). Returns whether there was such a key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(!limiter.expire_if_greater(hour).await?); // it never expires, which is longer
    /// limiter.expire(hour).await?;
    /// assert!(limiter.expire_if_greater(hour * 2).await?);
    /// assert!(!limiter.expire_if_greater(hour).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour * 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    ///
    /// # Cancel safety
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfGreater")]
    pub async fn expire_if_greater(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfGreater).await
    }

    /// Like [`expire`](Self::expire), but only for keys whose time to live is longer than the new
    /// one, or that have none (`PEXPIRE … LT`). Returns whether there was such a key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(limiter.expire_if_less(hour).await?); // it had no time to live
    /// assert!(!limiter.expire_if_less(hour * 2).await?);
    /// assert!(limiter.expire_if_less(hour / 2).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour / 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    ///
    /// # Cancel safety
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfLess")]
    pub async fn expire_if_less(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfLess).await
    }

    /// Removes the time to live of the limiter's keys, so that they do not expire. Returns whether
    /// there was one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(!limiter.clear_expire().await?);
    /// limiter.expire(Duration::from_secs(3600)).await?;
    /// assert!(limiter.clear_expire().await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Unlimited);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of every call, as listed at [`RateLimiter`].
    ///
    /// # Cancel safety
    /// As [`expire`](Self::expire).
    #[doc(alias = "clearExpire")]
    pub async fn clear_expire(&self) -> Result<bool> {
        let store = self.validated()?;
        self.change(store.change(LimiterChange::ClearExpire)).await
    }

    /// How long the limiter lives, to the millisecond.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Missing);
    /// let minute = Duration::from_secs(60);
    /// limiter.set_rate(Rate::overall(5, minute)).await?;
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Unlimited);
    /// limiter.expire(minute).await?;
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(minute));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of every call, as listed at [`RateLimiter`].
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    #[doc(alias = "remainTimeToLive")]
    pub async fn remain_time_to_live(&self) -> Result<TimeToLive> {
        let store = self.validated()?;
        store.remain_time_to_live().await
    }

    async fn expire_where(&self, time_to_live: Duration, condition: Condition) -> Result<bool> {
        let store = self.validated()?;
        let expiry = Expiry::In(millis_from_zero(time_to_live, "time_to_live")?);
        let change = LimiterChange::Expire(expiry, condition);
        self.change(store.change(change)).await
    }
}
