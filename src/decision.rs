//! The answer to a request.

use std::time::Duration;

use crate::error::{Error, Result};
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
/// assert!(matches!(limiter.check(3).await?, Decision::Granted { limit: 5, remaining: 2, .. }));
/// let Decision::Denied { retry_after, .. } = limiter.check(3).await? else { panic!() };
/// assert_eq!(retry_after, Duration::from_secs(1));
/// # Ok(()) }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// The permits were taken.
    #[non_exhaustive]
    Granted {
        /// What was taken; [`refund`](crate::RateLimiter::refund) gives it back.
        grant: Grant,
        /// The permits of one interval.
        limit: u64,
        /// The permits left after this grant. There may be more where hundreds of an RRateLimiter's grants have expired at
        /// once: a call counts only as many of them as it needs.
        remaining: u64,
        /// Until the first of the permits in use are back; of the other limiters, until all is.
        reset: Duration,
        /// How long the request has to wait before it goes on: zero but from a [`LeakyBucket`](crate::LeakyBucket).
        delay: Duration,
        /// Who decided.
        source: DecisionSource,
    },
    /// There were not enough permits; nothing was taken.
    #[non_exhaustive]
    Denied {
        /// When it is worth asking again: once the first of the permits in use are back. A large request may have to ask
        /// more than once.
        retry_after: Duration,
        /// The permits of one interval.
        limit: u64,
        /// The permits left.
        remaining: u64,
        /// Until the first of the permits in use are back; of the other limiters, until all is.
        reset: Duration,
        /// Who decided.
        source: DecisionSource,
    },
}

/// Who made a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionSource {
    /// The store: Redis, or the memory of a client without Redis.
    Store,
    /// The [`FailurePolicy`](crate::FailurePolicy), because Redis was away.
    FailurePolicy,
}

impl Decision {
    /// A grant by a limiter of your own, of `cost` out of `limit`.
    pub fn granted(cost: u32, limit: u64, remaining: u64, reset: Duration) -> Self {
        Self::Granted {
            grant: Grant::forgotten(cost),
            limit,
            remaining,
            reset,
            delay: Duration::ZERO,
            source: DecisionSource::Store,
        }
    }

    /// A denial.
    pub fn denied(retry_after: Duration, limit: u64, remaining: u64, reset: Duration) -> Self {
        Self::Denied {
            retry_after,
            limit,
            remaining,
            reset,
            source: DecisionSource::Store,
        }
    }

    pub(crate) fn into_grant(self) -> Option<Grant> {
        match self {
            Self::Granted { grant, .. } => Some(grant),
            Self::Denied { .. } => None,
        }
    }

    /// The same decision, as one of the failure policy, with a grant that is found at `origin`.
    pub(crate) fn by_failure_policy(mut self, origin: Origin) -> Self {
        match &mut self {
            Self::Granted { grant, source, .. } => {
                grant.origin = origin;
                *source = DecisionSource::FailurePolicy;
            }
            Self::Denied { source, .. } => *source = DecisionSource::FailurePolicy,
        }
        self
    }

    /// The same decision on a request that cost `factor` times as much as its caller knows.
    pub(crate) fn divided_by(mut self, factor: u32) -> Self {
        let (Self::Granted {
            limit, remaining, ..
        }
        | Self::Denied {
            limit, remaining, ..
        }) = &mut self;
        *limit /= u64::from(factor);
        *remaining /= u64::from(factor);
        if let Self::Granted { grant, .. } = &mut self {
            grant.permits /= factor;
        }
        self
    }

    /// Whether the [`FailurePolicy`](crate::FailurePolicy) decided, because Redis was away.
    pub fn is_by_failure_policy(&self) -> bool {
        let (Self::Granted { source, .. } | Self::Denied { source, .. }) = self;
        *source == DecisionSource::FailurePolicy
    }

    /// Whether the permits were taken.
    pub fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

/// Permits that were taken, for [`refund`](crate::RateLimiter::refund); that finds only what a limiter with a
/// [`Rate`](crate::Rate) granted, the others do not know single grants. Dropping it gives nothing back: the permits
/// count as used until their window has passed.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// When it was made, in ms of the clock that scored it.
    pub(crate) score: i64,
    pub(crate) random: Random,
    pub(crate) permits: u32,
    pub(crate) origin: Origin,
}

/// Where a grant is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Store,
    /// The limiter that a failure policy has in this process.
    Local,
    /// Nothing was taken anywhere.
    Nowhere,
}

impl Grant {
    /// A grant by a limiter that does not know single grants: a refund does not find it.
    pub(crate) fn forgotten(permits: u32) -> Self {
        Self {
            score: i64::MIN,
            random: Random::default(),
            permits,
            origin: Origin::Store,
        }
    }

    /// How many permits were taken.
    pub fn permits(&self) -> u32 {
        self.permits
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
        answer.balance - taken,
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
        Decision::Granted {
            grant: Grant {
                score: answer.score,
                random: id,
                permits,
                origin: Origin::Store,
            },
            limit,
            remaining,
            reset,
            delay: Duration::ZERO,
            source: DecisionSource::Store,
        }
    } else {
        Decision::denied(answer.retry_after(), limit, remaining, reset)
    })
}
