//! One limiter's answer to one request.

use crate::clock::millis;
use crate::decision::{Decision, DecisionSource, Denied, Granted, check_fits};
use crate::error::Result;
use crate::grant::Grant;
use crate::name_hash::NameHash;
use crate::permit::CallId;

/// Times in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// An algorithm grants or denies. The other outcomes come from its caller, which knows the
    /// lock, the limit and the other limiters of the call.
    pub(crate) outcome: Outcome,
    /// The most that a target has.
    pub(crate) limit: i64,
    /// The time in which the whole limit comes back.
    pub(crate) window: i64,
    /// What the target has left, after the request if that is granted.
    pub(crate) remaining: i64,
    /// The time until a denied request is worth a retry.
    pub(crate) retry_after: i64,
    /// The time until something is available: 0 if something is left and the target is not locked.
    pub(crate) available_in: i64,
    /// The time until everything is back, if nothing else is taken.
    pub(crate) reset: i64,
    /// How long a granted request has to wait for its turn.
    pub(crate) delay: i64,
    /// A time that identifies what was charged, for [`Model::give_back`](super::model::Model).
    pub(crate) mark: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted,
    Denied,
    /// This limiter would grant it, but another one of the call does not: it is not charged.
    Spared,
    /// Denied by a lock: an earlier denial has a penalty.
    LockedOut,
    /// The cost is more than the limit.
    Never,
}

impl Outcome {
    #[inline]
    pub(super) fn of(granted: bool) -> Self {
        match granted {
            true => Self::Granted,
            false => Self::Denied,
        }
    }
}

impl Answer {
    #[inline]
    pub(crate) fn is_granted(&self) -> bool {
        self.outcome == Outcome::Granted
    }

    /// The answer of a bucket with this many `tokens`; `until_there_are` returns the time until it
    /// has more.
    #[inline]
    pub(super) fn of_tokens(
        limit: i64,
        window: i64,
        tokens: i64,
        cost: i64,
        now: i64,
        until_there_are: impl Fn(i64) -> i64,
    ) -> Self {
        let granted = cost <= tokens;
        let taken = if granted { cost } else { 0 };
        let remaining = (tokens - taken).max(0);
        Self {
            outcome: Outcome::of(granted),
            limit,
            window,
            remaining,
            retry_after: if granted { 0 } else { until_there_are(cost) },
            available_in: match remaining {
                0 => until_there_are(taken + 1),
                _ => 0,
            },
            reset: until_there_are(if granted { limit + cost } else { limit }),
            delay: 0,
            mark: now,
        }
    }

    /// Refuses a cost that is more than the limit.
    #[inline]
    pub(crate) fn check_fits(&self, key: &str, cost: u32) -> Result<()> {
        match self.outcome {
            Outcome::Never => check_fits(key, cost, self.limit),
            _ => Ok(()),
        }
    }

    /// The decision on a request for no more than the limit; a granted one contains `grant`.
    #[inline]
    pub(crate) fn decided(&self, grant: Grant) -> Decision {
        let (limit, remaining) = (self.limit.unsigned_abs(), self.remaining.unsigned_abs());
        let (window, reset) = (millis(self.window), millis(self.reset));
        let available_in = Some(millis(self.available_in));
        let source = DecisionSource::Store;
        match self.outcome {
            Outcome::Granted => Decision::Granted(Granted {
                grant,
                limit,
                window,
                remaining,
                reset,
                delay: millis(self.delay),
                source,
                available_in,
            }),
            _ => Decision::Denied(Denied {
                retry_after: millis(self.retry_after),
                limit,
                window,
                remaining,
                reset,
                source,
                available_in,
            }),
        }
    }
}

/// An answer of a store in memory, with the cost of the request and the target that it charges. It
/// is copied on the way to the caller, which takes less than half as long as copying a
/// [`Decision`].
pub(crate) struct TargetAnswer {
    pub(crate) answer: Answer,
    pub(crate) cost: u32,
    pub(crate) target: NameHash,
}

impl TargetAnswer {
    #[inline]
    pub(crate) fn has_no_turn(&self) -> bool {
        self.answer.delay == 0
    }

    /// The decision of a policy that does not name its calls.
    #[inline]
    pub(crate) fn decision(&self) -> Decision {
        let call_id = CallId::default();
        let grant = Grant::charged(self.answer.mark, call_id, self.cost, self.target);
        self.answer.decided(grant)
    }
}
