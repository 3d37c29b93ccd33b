//! A request that was denied.

use std::time::Duration;

use super::{Decision, DecisionSource};
use crate::quota::Quota;

/// A request that was denied. A limiter of your own creates one with [`new`](Self::new).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # fn main() -> Result<()> {
/// let minute = Duration::from_secs(60);
/// let denied = Decision::from(Denied::new(minute).with_quota(Quota::new(100, minute)).with_remaining(3));
/// assert_eq!(denied.to_string(), "denied: 3 of 100 left, retry after 60s");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// The time after which the request is granted, if nobody else takes any permits meanwhile. If
    /// more than 2,000 grants of an `RRateLimiter` must expire first, or 50 in a call for several
    /// limiters, the time until all permits are back. For a remembered denial, the time until a
    /// request for the same number of permits, or for fewer, is granted.
    pub retry_after: Duration,
    /// The most that a target has: see [`Quota::limit`](crate::Quota::limit).
    pub limit: u64,
    /// The time in which the whole limit comes back: see [`Quota::window`](crate::Quota::window).
    pub window: Duration,
    /// The permits left.
    pub remaining: u64,
    /// The time until the whole limit is available again, if nothing more is taken: see
    /// [`Decision::reset`].
    pub reset: Duration,
    /// Who decided.
    pub source: DecisionSource,
    /// The time until at least one permit is available; `None` where that follows from the other
    /// numbers: see [`Decision::available_in`].
    pub(crate) available_in: Option<Duration>,
}

impl Denied {
    /// A denial by a limiter of your own. Limit and remaining are 0, and `reset` is `retry_after`,
    /// until they are set.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let denied = Denied::new(Duration::from_secs(1));
    /// assert_eq!(denied.retry_after, Duration::from_secs(1));
    /// assert_eq!(denied.reset, Duration::from_secs(1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(retry_after: Duration) -> Self {
        Self {
            retry_after,
            limit: 0,
            window: Duration::ZERO,
            remaining: 0,
            reset: retry_after,
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
    /// let decision = Denied::new(Duration::ZERO).with_quota(Quota::new(5, minute));
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
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Denied::new(Duration::ZERO).with_remaining(4).remaining, 4);
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
    /// assert_eq!(Denied::new(Duration::ZERO).with_reset(second).reset, second);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_reset(self, reset: Duration) -> Self {
        Self { reset, ..self }
    }

    /// Sets [`Decision::available_in`]: the time until at least one permit is available. It is zero
    /// where something is left and `retry_after` where nothing is, until it is set.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// let denied = Denied::new(5 * second);
    /// assert_eq!(Decision::from(denied.clone()).available_in(), 5 * second);
    /// assert_eq!(Decision::from(denied.with_available_in(second)).available_in(), second);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_available_in(self, available_in: Duration) -> Self {
        Self {
            available_in: Some(available_in),
            ..self
        }
    }
}

impl From<Denied> for Decision {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}
