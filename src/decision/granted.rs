//! A request that was granted.

use std::time::Duration;

use super::{Decision, DecisionSource};
use crate::grant::Grant;
use crate::quota::Quota;

/// A request that was granted.
///
/// A limiter of your own creates one with [`new`](Self::new):
///
/// ```
/// use redisson_rate_limiter::{BoxFuture, Decision, Denied, Granted, Limiter, Quota, Result};
/// use std::time::Duration;
///
/// #[derive(Debug)]
/// struct Weekdays;
///
/// # fn is_weekend() -> bool { true }
/// impl Limiter for Weekdays {
///     fn check<'a>(&'a self, _key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
///         Box::pin(async move {
///             if is_weekend() {
///                 return Ok(Denied::new(Duration::from_secs(3600)).into());
///             }
///             let quota = Quota::new(1_000, Duration::from_secs(60));
///             Ok(Granted::new(cost).with_quota(quota).with_remaining(999).into())
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let decision = Weekdays.check("user:123", 1).await?;
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(3600)));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// What was taken; [`refund`](crate::RateLimiter::refund) gives it back.
    pub grant: Grant,
    /// The most that a target has: see [`Quota::limit`](crate::Quota::limit).
    pub limit: u64,
    /// The time in which the whole limit comes back: see [`Quota::window`](crate::Quota::window).
    pub window: Duration,
    /// The permits left after this grant. A lower bound if hundreds of a
    /// [`RateLimiter`](crate::RateLimiter)'s grants have expired at once: a call counts only the
    /// expired grants that it needs.
    pub remaining: u64,
    /// The time until the whole limit is available again, if nothing more is taken: see
    /// [`Decision::reset`].
    pub reset: Duration,
    /// How long the request has to wait before it proceeds. Only a
    /// [`LeakyBucket`](crate::LeakyBucket) states one, and only in answers without this wait: those
    /// of [`check_without_waiting`](crate::PolicyLimiter::check_without_waiting) and of a peek.
    pub delay: Duration,
    /// Who decided.
    pub source: DecisionSource,
    /// The time until at least one permit is available; `None` where that follows from the other
    /// numbers: see [`Decision::available_in`].
    pub(crate) available_in: Option<Duration>,
}

impl Granted {
    /// A grant of `cost` by a limiter of your own. Limit, remaining and times are 0 until they are
    /// set.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let granted = Granted::new(3);
    /// assert_eq!(granted.grant.permits(), 3);
    /// assert_eq!((granted.limit, granted.remaining), (0, 0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(cost: u32) -> Self {
        Self {
            grant: Grant::forgotten(cost),
            limit: 0,
            window: Duration::ZERO,
            remaining: 0,
            reset: Duration::ZERO,
            delay: Duration::ZERO,
            source: DecisionSource::Store,
            available_in: None,
        }
    }

    /// Sets the limit, and the window in which all of it comes back.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let decision = Granted::new(1).with_quota(Quota::new(5, minute));
    /// assert_eq!((decision.limit, decision.window), (5, minute));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self {
            limit: quota.limit,
            window: quota.window,
            ..self
        }
    }

    /// Sets how many permits are left.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Granted::new(1).with_remaining(4).remaining, 4);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_remaining(self, remaining: u64) -> Self {
        Self { remaining, ..self }
    }

    /// Sets [`reset`](Self::reset): the time until the whole limit is available again.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Granted::new(1).with_reset(second).reset, second);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_reset(self, reset: Duration) -> Self {
        Self { reset, ..self }
    }

    /// Sets [`Decision::available_in`]: the time until at least one permit is available. It is zero
    /// where something is left and [`reset`](Self::reset) where nothing is, until it is set.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// let granted = Granted::new(1).with_reset(5 * second);
    /// assert_eq!(Decision::from(granted.clone()).available_in(), 5 * second);
    /// assert_eq!(Decision::from(granted.with_available_in(second)).available_in(), second);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_available_in(self, available_in: Duration) -> Self {
        Self {
            available_in: Some(available_in),
            ..self
        }
    }

    /// Sets how long the request has to wait before it proceeds.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Granted::new(1).with_delay(second).delay, second);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl From<Granted> for Decision {
    fn from(granted: Granted) -> Self {
        Self::Granted(granted)
    }
}
