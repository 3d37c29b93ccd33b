//! The answer to a request.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::grant::{Grant, Origin};
use crate::model::{Answer, Requests};
use crate::permit::Random;

/// Granted or denied, with what a response header or a plot needs.
///
/// ```
/// use redisson_rate_limiter::{Decision, Rate, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
/// let decision = limiter.check(3).await?;
/// assert!(decision.is_granted());
/// assert_eq!((decision.remaining(), decision.limit()), (2, 5));
///
/// let Decision::Denied(denied) = limiter.check(3).await? else { panic!() };
/// assert_eq!(denied.retry_after, Duration::from_secs(1));
/// # Ok(()) }
/// ```
///
/// It is not `#[non_exhaustive]`: a request is granted or denied, and a `match` needs no wildcard arm that would let one
/// through or stop it. What a decision tells may grow: [`Granted`] and [`Denied`] are `#[non_exhaustive]`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request that was denied must not go on"]
pub enum Decision {
    /// The permits were taken.
    Granted(Granted),
    /// There were not enough permits; nothing was taken.
    Denied(Denied),
}

/// A request that was granted.
///
/// A limiter of your own creates one with [`new`](Self::new):
///
/// ```
/// use redisson_rate_limiter::{Decision, Denied, Granted, Limiter, Result};
/// use std::time::Duration;
///
/// #[derive(Debug)]
/// struct Weekdays;
///
/// # fn is_weekend() -> bool { true }
/// #[async_trait::async_trait]
/// impl Limiter for Weekdays {
///     async fn check(&self, _key: &str, cost: u32) -> Result<Decision> {
///         if is_weekend() {
///             return Ok(Denied::new(Duration::from_secs(3600)).into());
///         }
///         Ok(Granted::new(cost).with_limit(1_000).with_remaining(999).into())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let decision = Weekdays.check("user:123", 1).await?;
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(3600)));
/// # Ok(()) }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// What was taken; [`refund`](crate::RateLimiter::refund) gives it back.
    pub grant: Grant,
    /// The permits of one interval.
    pub limit: u64,
    /// The permits left after this grant. There may be more where hundreds of an RRateLimiter's grants have expired at
    /// once: a call counts only as many of them as it needs.
    pub remaining: u64,
    /// Until the first of the permits in use are back; of the other limiters, until all is.
    pub reset: Duration,
    /// How long the request has to wait before it goes on: zero but from a [`LeakyBucket`](crate::LeakyBucket).
    pub delay: Duration,
    /// Who decided.
    pub source: DecisionSource,
}

/// A request that was denied. A limiter of your own creates one with [`new`](Self::new).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # fn main() -> Result<()> {
/// let denied = Decision::from(Denied::new(Duration::from_secs(60)).with_limit(100).with_remaining(3));
/// assert_eq!(denied.to_string(), "denied: 3 of 100 left, retry after 60s");
/// # Ok(()) }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// When it is worth asking again: once the first of the permits in use are back. A large request may have to ask
    /// more than once.
    pub retry_after: Duration,
    /// The permits of one interval.
    pub limit: u64,
    /// The permits left.
    pub remaining: u64,
    /// Until the first of the permits in use are back; of the other limiters, until all is.
    pub reset: Duration,
    /// Who decided.
    pub source: DecisionSource,
}

/// Who made a decision.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
/// assert_eq!(limiter.check(1).await?.source(), DecisionSource::Store);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionSource {
    /// The store: Redis, or the memory of a client without Redis.
    Store,
    /// The [`FailurePolicy`](crate::FailurePolicy), because Redis was away.
    FailurePolicy,
}

impl Granted {
    /// A grant of `cost` by a limiter of your own. Limit, remaining and times are 0 until they are set.
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
            remaining: 0,
            reset: Duration::ZERO,
            delay: Duration::ZERO,
            source: DecisionSource::Store,
        }
    }

    /// Sets the limit: the permits of one interval.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Granted::new(1).with_limit(5).limit, 5);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
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

    /// Sets the time until all permits are available again.
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

    /// Sets how long the request has to wait before it goes on.
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

impl Denied {
    /// A denial by a limiter of your own. Limit and remaining are 0, and `reset` is `retry_after`, until they are set.
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
            remaining: 0,
            reset: retry_after,
            source: DecisionSource::Store,
        }
    }

    /// Sets the limit: the permits of one interval.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Denied::new(Duration::ZERO).with_limit(5).limit, 5);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_limit(self, limit: u64) -> Self {
        Self { limit, ..self }
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

    /// Sets the time until all permits are available again.
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
}

impl From<Granted> for Decision {
    fn from(granted: Granted) -> Self {
        Self::Granted(granted)
    }
}

impl From<Denied> for Decision {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl Decision {
    /// Whether the permits were taken.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert!(granted.is_granted());
    /// assert!(!denied.is_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// The permits of one interval; for a policy, its limit or capacity.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert_eq!((granted.limit(), denied.limit()), (5, 5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::Granted(granted) => granted.limit,
            Self::Denied(denied) => denied.limit,
        }
    }

    /// The permits left after the decision.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert_eq!((granted.remaining(), denied.remaining()), (2, 0));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> u64 {
        match self {
            Self::Granted(granted) => granted.remaining,
            Self::Denied(denied) => denied.remaining,
        }
    }

    /// The time until the first of the permits in use come back; for a policy, until all its permits are available.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert_eq!(granted.reset(), Duration::from_secs(7));
    /// assert_eq!(denied.reset(), Duration::from_secs(3));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reset(&self) -> Duration {
        match self {
            Self::Granted(granted) => granted.reset,
            Self::Denied(denied) => denied.reset,
        }
    }

    /// The time after which a denied request is worth a retry; `None` for a granted one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert_eq!(granted.retry_after(), None);
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(3)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Granted(_) => None,
            Self::Denied(denied) => Some(denied.retry_after),
        }
    }

    /// Who decided.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert_eq!(granted.source(), DecisionSource::Store);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn source(&self) -> DecisionSource {
        match self {
            Self::Granted(granted) => granted.source,
            Self::Denied(denied) => denied.source,
        }
    }

    /// Whether the [`FailurePolicy`](crate::FailurePolicy) decided, because Redis was unavailable.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert!(!granted.is_by_failure_policy());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_by_failure_policy(&self) -> bool {
        self.source() == DecisionSource::FailurePolicy
    }

    /// What was taken; `None` if the request was denied.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let granted = Decision::from(Granted::new(1).with_limit(5).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_limit(5));
    /// assert_eq!(granted.into_grant().map(|grant| grant.permits()), Some(1));
    /// assert_eq!(denied.into_grant(), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_grant(self) -> Option<Grant> {
        match self {
            Self::Granted(granted) => Some(granted.grant),
            Self::Denied(_) => None,
        }
    }

    /// The same decision, as one of the failure policy, with a grant that is found at `origin`.
    pub(crate) fn by_failure_policy(mut self, origin: Origin) -> Self {
        match &mut self {
            Self::Granted(granted) => {
                granted.grant.origin = origin;
                granted.source = DecisionSource::FailurePolicy;
            }
            Self::Denied(denied) => denied.source = DecisionSource::FailurePolicy,
        }
        self
    }

    /// The same decision on a request that cost `factor` times as much as its caller knows.
    pub(crate) fn divided_by(mut self, factor: u32) -> Self {
        let (limit, remaining) = match &mut self {
            Self::Granted(granted) => {
                granted.grant.permits /= factor;
                (&mut granted.limit, &mut granted.remaining)
            }
            Self::Denied(denied) => (&mut denied.limit, &mut denied.remaining),
        };
        *limit /= u64::from(factor);
        *remaining /= u64::from(factor);
        self
    }
}

/// As in `granted: 2 of 5 left` and `denied: 2 of 5 left, retry after 1s`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_granted() {
            "granted"
        } else {
            "denied"
        };
        write!(f, "{word}: {} of {} left", self.remaining(), self.limit())?;
        match self {
            Self::Granted(granted) if !granted.delay.is_zero() => {
                write!(f, ", goes on after {:?}", granted.delay)?;
            }
            Self::Granted(_) => {}
            Self::Denied(denied) => write!(f, ", retry after {:?}", denied.retry_after)?,
        }
        if self.is_by_failure_policy() {
            f.write_str(", decided without Redis")?;
        }
        Ok(())
    }
}

/// Whether a request that was the only one of its call was granted.
#[inline]
pub(crate) fn is_granted(name: &str, permits: u32, answer: &Answer) -> Result<bool> {
    if !answer.found {
        check_fits(name, permits, answer.rate)?;
    }
    Ok(Requests::one(permits).taken(answer) > 0)
}

/// Refuses permits that exceed the rate.
pub(crate) fn check_fits(name: &str, permits: u32, rate: i64) -> Result<()> {
    if i64::from(permits) > rate {
        return Err(Error::PermitsExceedRate {
            name: name.to_owned(),
            requested: permits,
            rate: rate as u64,
        });
    }
    Ok(())
}

/// The decision on a request that was the only one of its call.
pub(crate) fn decision_alone(
    name: &str,
    id: Random,
    permits: u32,
    answer: &Answer,
) -> Result<Decision> {
    let is_granted = is_granted(name, permits, answer)?;
    let taken = if is_granted { i64::from(permits) } else { 0 };
    decision(
        name,
        id,
        permits,
        is_granted,
        answer.available - taken,
        answer,
    )
}

/// The decision on one request of a call, where `left` permits remain after it.
pub(crate) fn decision(
    name: &str,
    id: Random,
    permits: u32,
    is_granted: bool,
    left: i64,
    answer: &Answer,
) -> Result<Decision> {
    if !is_granted {
        check_fits(name, permits, answer.rate)?;
    }
    let limit = answer.rate as u64;
    let remaining = left.max(0) as u64;
    let reset = answer.reset();
    Ok(if is_granted {
        let grant = Grant {
            score: answer.score,
            random: id,
            permits,
            origin: Origin::Store,
        };
        Decision::Granted(Granted {
            grant,
            limit,
            remaining,
            reset,
            delay: Duration::ZERO,
            source: DecisionSource::Store,
        })
    } else {
        Decision::Denied(Denied {
            retry_after: answer.retry_after(),
            limit,
            remaining,
            reset,
            source: DecisionSource::Store,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_prints_what_is_left_and_when_to_come_back() {
        let granted = Granted::new(3).with_limit(5).with_remaining(2);
        assert_eq!(Decision::from(granted).to_string(), "granted: 2 of 5 left");
        let slow = Granted::new(1).with_delay(Duration::from_millis(100));
        assert_eq!(
            Decision::from(slow).to_string(),
            "granted: 0 of 0 left, goes on after 100ms"
        );
        let denied = Denied::new(Duration::from_secs(1)).with_limit(5).into();
        let denied = Decision::by_failure_policy(denied, Origin::Nowhere);
        assert_eq!(
            denied.to_string(),
            "denied: 0 of 5 left, retry after 1s, decided without Redis"
        );
    }
}
