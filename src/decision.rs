//! The answer to a request.

mod denied;
mod granted;
mod of_answer;

use std::fmt;
use std::time::Duration;

use crate::grant::{Grant, Origin};

pub use denied::Denied;
pub use granted::Granted;
pub(crate) use of_answer::{check_fits, decision, decision_alone, is_granted};

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
/// assert_eq!((decision.reset(), decision.retry_after()), (Duration::from_secs(1), None));
/// assert_eq!(decision.window(), Duration::from_secs(1));
///
/// let Decision::Denied(denied) = limiter.check(3).await? else { panic!() };
/// assert_eq!(denied.retry_after, Duration::from_secs(1));
/// # Ok(()) }
/// ```
///
/// The compiler warns if it is dropped, also behind `?`:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use redisson_rate_limiter::{RedissonClient, Result};
/// # async fn call() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.check(3).await?;
/// # Ok(()) }
/// # fn main() {}
/// ```
///
/// It is not `#[non_exhaustive]`: a request is granted or denied, so a `match` needs no wildcard
/// arm. What a decision contains may grow: [`Granted`] and [`Denied`] are `#[non_exhaustive]`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a request that was denied must not go on"]
pub enum Decision {
    /// The permits were taken.
    Granted(Granted),
    /// There were not enough permits; nothing was taken.
    Denied(Denied),
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
    /// An earlier answer of the store, which this client
    /// [remembers](crate::LimiterOptions::remember_denials): a denial.
    Remembered,
    /// The [`FailurePolicy`](crate::FailurePolicy), because Redis could not decide.
    FailurePolicy,
    /// A [`Rule`](crate::Rule), for a plan that [blocks](crate::Plan::Block): a denial.
    Rule,
}

impl DecisionSource {
    /// The variant's name in snake case, for labels of metrics. Later versions do not change it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Remembered => "remembered",
            Self::FailurePolicy => "failure_policy",
            Self::Rule => "rule",
        }
    }
}

impl Decision {
    /// Whether the permits were taken.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted(_))
    }

    /// The most that a target has: the permits of a rate, the limit of a window, the capacity of a
    /// bucket. 0 if unknown, because a [`FailurePolicy`](crate::FailurePolicy) decided.
    #[must_use]
    pub fn limit(&self) -> u64 {
        let (Self::Granted(Granted { limit, .. }) | Self::Denied(Denied { limit, .. })) = self;
        *limit
    }

    /// The time in which the whole [limit](Self::limit) comes back, once all of it is taken: see
    /// [`Quota`](crate::Quota). Zero if unknown.
    #[must_use]
    pub fn window(&self) -> Duration {
        let (Self::Granted(Granted { window, .. }) | Self::Denied(Denied { window, .. })) = self;
        *window
    }

    /// The permits left after the decision.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let (Self::Granted(Granted { remaining, .. }) | Self::Denied(Denied { remaining, .. })) =
            self;
        *remaining
    }

    /// The time until the whole [limit](Self::limit) is available again, if nothing more is taken.
    /// While a [penalty](crate::PolicyLimiter::with_penalty) locks the target out, the time until
    /// it ends. Otherwise at most the [window](Self::window), unless more than the limit is in use,
    /// because that was lowered.
    ///
    /// It has this meaning for each algorithm. The header field `X-RateLimit-Reset` and the reply
    /// of redis-cell's `CL.THROTTLE` have it too. When more is available, which may be much sooner,
    /// [`available_in`](Self::available_in) says.
    #[must_use]
    pub fn reset(&self) -> Duration {
        let (Self::Granted(Granted { reset, .. }) | Self::Denied(Denied { reset, .. })) = self;
        *reset
    }

    /// The time until at least one permit is available: zero where something is
    /// [left](Self::remaining). While a [penalty](crate::PolicyLimiter::with_penalty) locks the
    /// target out, the time until it ends. A denied request for more than one permit may have to
    /// [wait](Self::retry_after) longer.
    ///
    /// It has this meaning for each algorithm, and is `t` in the field `RateLimit` of the IETF's
    /// draft.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(TokenBucket::per_second(10).with_capacity(100))?;
    /// let granted = limiter.check("user:123", 99).await?;
    /// assert_eq!((granted.remaining(), granted.available_in()), (1, Duration::ZERO));
    /// let granted = limiter.check("user:123", 1).await?;
    /// assert_eq!((granted.remaining(), granted.available_in()), (0, Duration::from_millis(100)));
    /// assert_eq!(granted.reset(), Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn available_in(&self) -> Duration {
        let (known, remaining, at_the_latest) = match self {
            Self::Granted(it) => (it.available_in, it.remaining, it.reset),
            Self::Denied(it) => (it.available_in, it.remaining, it.retry_after),
        };
        known.unwrap_or(match remaining {
            0 => at_the_latest,
            _ => Duration::ZERO,
        })
    }

    /// The time after which a denied request is worth a retry; `None` for a granted one.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Granted(_) => None,
            Self::Denied(denied) => Some(denied.retry_after),
        }
    }

    /// Who decided.
    #[must_use]
    pub fn source(&self) -> DecisionSource {
        let (Self::Granted(Granted { source, .. }) | Self::Denied(Denied { source, .. })) = self;
        *source
    }

    /// Whether the [`FailurePolicy`](crate::FailurePolicy) decided, because Redis was unavailable.
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
    /// let granted = Decision::from(Granted::new(1).with_quota(Quota::new(5, Duration::from_secs(9))).with_remaining(2).with_reset(Duration::from_secs(7)));
    /// let denied = Decision::from(Denied::new(Duration::from_secs(3)).with_quota(Quota::new(5, Duration::from_secs(9))));
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

    /// How long a granted request has to wait before it proceeds.
    #[inline]
    pub(crate) fn delay(&self) -> Duration {
        match self {
            Self::Granted(granted) => granted.delay,
            Self::Denied(_) => Duration::ZERO,
        }
    }

    /// Adjusts the times of a granted request that has waited for its turn and may proceed.
    pub(crate) fn proceed_after(&mut self, waited: Duration) {
        if let Self::Granted(granted) = self {
            granted.delay = Duration::ZERO;
            granted.reset = granted.reset.saturating_sub(waited);
            granted.available_in = granted.available_in.map(|it| it.saturating_sub(waited));
        }
    }

    /// Makes this a decision of the failure policy, with a grant that is found at `origin`.
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

    /// Divides the numbers of a decision on `factor` times the cost that the caller has asked for.
    pub(crate) fn divided_by(mut self, factor: u32) -> Self {
        let (limit, remaining, available_in) = match &mut self {
            Self::Granted(it) => {
                it.grant.permits /= factor;
                (&mut it.limit, &mut it.remaining, &mut it.available_in)
            }
            Self::Denied(it) => (&mut it.limit, &mut it.remaining, &mut it.available_in),
        };
        let was_left = *remaining > 0;
        *limit /= u64::from(factor);
        *remaining /= u64::from(factor);
        if was_left && *remaining == 0 {
            // Less than a cost of 1 of the caller is left, and it is not known when that changes.
            *available_in = None;
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;

    #[test]
    fn a_request_that_waited_for_its_turn_has_the_times_as_of_its_turn() {
        const SECOND: Duration = Duration::from_secs(1);
        let granted = Granted::new(1)
            .with_delay(SECOND)
            .with_available_in(2 * SECOND)
            .with_reset(5 * SECOND);
        let mut decision = Decision::from(granted);
        decision.proceed_after(SECOND);
        assert_eq!(decision.delay(), Duration::ZERO);
        assert_eq!(decision.available_in(), SECOND);
        assert_eq!(decision.reset(), 4 * SECOND);
    }

    #[test]
    fn a_decision_prints_what_is_left_and_when_to_come_back() {
        let granted = Granted::new(3)
            .with_quota(Quota::new(5, Duration::from_secs(9)))
            .with_remaining(2);
        assert_eq!(Decision::from(granted).to_string(), "granted: 2 of 5 left");
        let slow = Granted::new(1).with_delay(Duration::from_millis(100));
        assert_eq!(
            Decision::from(slow).to_string(),
            "granted: 0 of 0 left, goes on after 100ms"
        );
        let denied = Denied::new(Duration::from_secs(1))
            .with_quota(Quota::new(5, Duration::from_secs(9)))
            .into();
        let denied = Decision::by_failure_policy(denied, Origin::Nowhere);
        assert_eq!(
            denied.to_string(),
            "denied: 0 of 5 left, retry after 1s, decided without Redis"
        );
    }
}
