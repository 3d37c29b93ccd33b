//! A handle that knows the rate of its limiter, and creates the limiter where it is missing.

use std::sync::Arc;

use super::RateLimiter;
use crate::error::{Error, Result};
use crate::rate::Rate;
use crate::wait_queue::ReadSetUp;
use crate::window::SetUp;

impl RateLimiter {
    /// This limiter with a rate that its requests give it: a request of this handle creates the limiter if it is missing, and
    /// a limiter with another rate gets this one, in the same round trip. So a limiter that Redis has lost is created anew,
    /// for callers who wait too. Sends nothing.
    ///
    /// The requests are `try_acquire`, `try_acquire_timeout`, `acquire`, `check`, and [`charge`](Self::charge) in a joint
    /// decision. A limiter whose rate changes keeps the permits in use, unless the [type](crate::RateType) changes. A keep
    /// alive that the rate does not set stays as the limiter has it; a limiter that is created without one does not expire.
    ///
    /// The methods that set, update or read a rate act on the limiter in Redis, as those of any handle do: after
    /// [`set_rate`](Self::set_rate) with another rate, the next request of this handle gives the limiter the handle's rate
    /// again. So all services that use a limiter should agree on its rate. To change it, make a handle with the new rate.
    ///
    /// In a limiter that is missing, no permits are in use: [`available_permits`](Self::available_permits) is the rate,
    /// [`release`](Self::release) does nothing and [`refund`](Self::refund) gives back 0. None of them creates it.
    ///
    /// While Redis is unavailable, [`FailurePolicy::Local`](crate::FailurePolicy::Local) grants its share of this rate, even
    /// if Redis has never answered.
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
    /// assert!(raised.try_acquire(4).await?); // 3 of 7 were in use
    /// assert_eq!(limiter.config().await?, Some(Rate::overall(7, minute)));
    /// assert!(!limiter.try_acquire(1).await?); // gives it the rate of this handle again
    /// assert_eq!(limiter.config().await?, Some(Rate::overall(5, minute)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid rate, as for
    /// [`try_set_rate`](Self::try_set_rate).
    pub fn with_rate(self, rate: Rate) -> Result<Self> {
        let set_up = SetUp::with_rate(rate.validate()?);
        Ok(self.with_set_up(Some(set_up)))
    }

    pub(crate) fn with_set_up(self, set_up: Option<SetUp>) -> Self {
        Self { set_up, ..self }
    }

    /// The settings that a waiter's limiter gets.
    pub(super) fn read_set_up(&self) -> Option<ReadSetUp> {
        let set_up = self.set_up?;
        Some(Arc::new(move || Some(set_up)))
    }

    /// The answer of a call that needs an existing limiter: if this handle would create it, nothing is in use.
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
