//! A limiter's rate: setting, changing and reading it.

use super::RateLimiter;
use crate::error::Result;
use crate::rate::Rate;
use crate::store::{IfMissing, LimiterChange, PermitsInUse};
use crate::window::Settings;

impl RateLimiter {
    /// Sets the rate if the limiter has none, and returns whether it did.
    ///
    /// State: the hash `name` with `rate`, `interval` (ms), `type` and `keepAliveTime` (ms), as
    /// Redisson writes it.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let five_a_second = Rate::overall(5, Duration::from_secs(1));
    /// assert!(limiter.try_set_rate(five_a_second).await?);
    /// assert!(!limiter.try_set_rate(Rate::overall(9, Duration::from_secs(1))).await?);
    /// assert_eq!(limiter.config().await?, Some(five_a_second));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if the rate is not 1 to 2^53, the
    /// interval or the keep alive is not whole milliseconds of at least 1, or the keep alive is
    /// shorter than the interval.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have set the rate.
    #[doc(alias = "trySetRate")]
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool> {
        let store = self.validated()?;
        let change = LimiterChange::TrySetRate(Settings::valid(rate)?);
        let answer = self.change(store.change(change)).await;
        if !matches!(answer, Ok(false)) {
            self.learn(rate, answer.is_ok());
        }
        answer
    }

    /// Sets the rate, whether the limiter has one or not. Forgets the permits in use: with
    /// [`Rate::overall`] those of all clients, with [`Rate::per_client`] those of this one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// limiter.set_rate(Rate::overall(2, Duration::from_secs(60))).await?;
    /// assert_eq!(limiter.available_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) as for
    /// [`try_set_rate`](Self::try_set_rate).
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have set the rate.
    #[doc(alias = "setRate")]
    pub async fn set_rate(&self, rate: Rate) -> Result<()> {
        let store = self.validated()?;
        let change = LimiterChange::SetRate(Settings::valid(rate)?);
        let answer = self.change(store.change(change)).await;
        self.learn(rate, answer.is_ok());
        answer.map(drop)
    }

    /// Sets the rate, whether the limiter has one or not, and keeps or forgets the permits in use.
    /// A change of the [type](crate::RateType) forgets those of all clients.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Rate, RedissonClient, PermitsInUse};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("l");
    /// let minute = Duration::from_secs(60);
    /// limiter.try_set_rate(Rate::overall(10, minute)).await?;
    /// limiter.try_acquire(3).await?;
    /// limiter.set_rate_with(Rate::overall(20, minute), PermitsInUse::Keep).await?;
    /// assert_eq!(limiter.available_permits().await?, 17);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) as for
    /// [`try_set_rate`](Self::try_set_rate).
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have set the rate.
    #[doc(alias = "setRate")]
    pub async fn set_rate_with(&self, rate: Rate, in_use: PermitsInUse) -> Result<()> {
        self.update(rate, in_use, IfMissing::Create).await?;
        Ok(())
    }

    /// Changes the rate as [`set_rate_with`](Self::set_rate_with) does, if the limiter has one.
    /// Returns `false`, and changes nothing, if it has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let minute = Duration::from_secs(60);
    /// assert!(!limiter.update_rate(Rate::overall(10, minute), PermitsInUse::Keep).await?);
    /// limiter.set_rate(Rate::overall(10, minute)).await?;
    /// limiter.try_acquire(8).await?;
    /// assert!(limiter.update_rate(Rate::overall(5, minute), PermitsInUse::Keep).await?);
    /// assert_eq!(limiter.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) as for
    /// [`try_set_rate`](Self::try_set_rate), even if there is no limiter.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have set the rate.
    #[doc(alias = "updateRate")]
    pub async fn update_rate(&self, rate: Rate, in_use: PermitsInUse) -> Result<bool> {
        self.update(rate, in_use, IfMissing::DoNothing).await
    }

    /// The rate; `None` if the limiter has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// assert_eq!(limiter.config().await?, None);
    /// let rate = Rate::per_client(3, Duration::from_secs(10));
    /// limiter.set_rate(rate).await?;
    /// assert_eq!(limiter.config().await?, Some(rate));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of every call, as listed at [`RateLimiter`].
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    #[doc(alias = "getConfig")]
    pub async fn config(&self) -> Result<Option<Rate>> {
        let store = self.validated()?;
        let rate = store.config().await?;
        if let Some(rate) = rate {
            self.queue.learn(rate);
        }
        Ok(rate)
    }

    async fn update(
        &self,
        rate: Rate,
        in_use: PermitsInUse,
        if_missing: IfMissing,
    ) -> Result<bool> {
        let store = self.validated()?;
        let change = LimiterChange::UpdateRate(Settings::valid(rate)?, in_use, if_missing);
        let answer = self.change(store.change(change)).await;
        self.learn(rate, matches!(answer, Ok(true)));
        answer
    }

    /// Records the limiter's rate if it `is_set`; otherwise forgets the known rate, which may have
    /// changed.
    fn learn(&self, rate: Rate, is_set: bool) {
        if is_set {
            self.queue.learn(rate);
        } else {
            self.queue.forget_rate();
        }
        self.queue.unguarded.permits_freed();
    }
}
