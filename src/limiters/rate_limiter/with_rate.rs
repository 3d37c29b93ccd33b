//! A handle that knows the rate of its limiter, and creates the limiter if it is missing.

use std::sync::Arc;

use super::RateLimiter;
use crate::error::{Error, Result};
use crate::queue::ReadSetUp;
use crate::rate::Rate;
use crate::window::{SetUp, Settings};

impl RateLimiter {
    /// This limiter with a rate to create it with: if the limiter is missing, a request of this
    /// handle creates it, in the same round trip. So a limiter that Redis has lost is created
    /// again, for waiters too. Sends nothing.
    ///
    /// A limiter that exists keeps its settings, as with [`try_set_rate`](Self::try_set_rate):
    /// requests are decided by the rate that Java, an operator or another version of a service has
    /// set. If that is not this rate, an [event](crate::Event::RateDiffers) and a warning of
    /// `tracing` report it once. To change the rate of a limiter that exists, call
    /// [`update_rate`](Self::update_rate) or [`set_rate`](Self::set_rate).
    ///
    /// The requests are `try_acquire`, `try_acquire_timeout`, `acquire`, `check`, and
    /// [`charge`](Self::charge) in a joint decision. The limiter that they create expires only if
    /// the rate has a [keep alive](Rate::keep_alive). Keys that an earlier limiter of this name has
    /// left behind are deleted.
    ///
    /// In a limiter that is missing, no permits are in use:
    /// [`available_permits`](Self::available_permits) is the rate, [`release`](Self::release) does
    /// nothing and [`refund`](Self::refund) gives back 0. None of them creates it.
    ///
    /// While Redis is unavailable, [`FailurePolicy::Local`](crate::FailurePolicy::Local) grants its
    /// share of the rate that the limiter had when it was last read, or of this rate if Redis has
    /// never answered.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let minute = Duration::from_secs(60);
    /// let limiter = client.rate_limiter("orders:api").with_rate(Rate::overall(5, minute))?;
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// assert!(!limiter.exists().await?);
    /// assert!(limiter.try_acquire(3).await?); // creates the limiter
    /// limiter.delete().await?;
    /// assert!(limiter.try_acquire(3).await?); // creates it anew
    ///
    /// let raised = client.rate_limiter("orders:api").with_rate(Rate::overall(7, minute))?;
    /// assert!(!raised.try_acquire(4).await?); // 2 of 5 are left
    /// assert_eq!(raised.config().await?, Some(Rate::overall(5, minute)));
    /// raised.update_rate(Rate::overall(7, minute), PermitsInUse::Keep).await?;
    /// assert!(raised.try_acquire(4).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid rate, as for
    /// [`try_set_rate`](Self::try_set_rate).
    pub fn with_rate(self, rate: Rate) -> Result<Self> {
        let set_up = SetUp::where_missing(Settings::valid(rate)?);
        Ok(self.with_set_up(Some(set_up)))
    }

    pub(crate) fn with_set_up(self, set_up: Option<SetUp>) -> Self {
        Self { set_up, ..self }
    }

    /// The settings that a waiter creates the limiter with, or gives it.
    pub(super) fn read_set_up(&self) -> Option<ReadSetUp> {
        let set_up = self.set_up?;
        Some(Arc::new(move || Some(set_up)))
    }

    /// The answer of a call that needs an existing limiter, or `unused` if the limiter is missing
    /// and this handle would create it: then no permits are in use.
    pub(super) fn or_unused<T>(
        &self,
        answer: Result<T>,
        unused: impl FnOnce(SetUp) -> T,
    ) -> Result<T> {
        match (answer, self.set_up) {
            (Err(Error::NotInitialized { .. }), Some(set_up)) => Ok(unused(set_up)),
            (answer, _) => answer,
        }
    }
}
