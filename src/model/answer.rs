//! The answer to a list of requests.

use std::time::Duration;

/// What one call tells about the list it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Score of the grants made.
    pub(crate) score: i64,
    pub(crate) rate: i64,
    /// The permits left before the list, below zero where more than the rate is in use; what the grant holds where it
    /// was `found`. Where there is more, see `has_more`, as many as the list takes, or more.
    pub(crate) available: i64,
    /// Milliseconds until the first of the live grants before the list are back; the interval where there is none.
    pub(super) reset: i64,
    /// By how many ms the newest grant is ahead of the call's time; 0 where it was not looked at.
    pub(crate) ahead: i64,
    /// How many grants were summed.
    pub(crate) counted: u64,
    /// They were to be summed, and are too many.
    pub(crate) audit_due: bool,
    /// More grants have expired than were removed, so there may be more permits than `available`.
    pub(crate) has_more: bool,
    /// Whether an earlier attempt of the call was granted. Then nothing was decided.
    pub(crate) found: bool,
    /// The permits of the grants there were before with a higher score than the call asked about, of the newest 100.
    pub(crate) newer: Option<i64>,
    /// The interval in ms, told with `newer`.
    pub(crate) interval: Option<i64>,
    /// After a denial, where the limiter expires no later than it is worth asking again, see [`wait`](Self::wait): the ms
    /// until then. Asking before renews it.
    pub(crate) lives: Option<i64>,
}

/// After the permits in use are back, a queue waits so many ms more, as Redisson does.
const SLACK: i64 = 3;

impl Answer {
    pub(crate) fn new(score: i64, rate: i64, available: i64, reset: i64) -> Self {
        Self {
            score,
            rate,
            available,
            reset,
            ahead: 0,
            counted: 0,
            audit_due: false,
            has_more: false,
            found: false,
            newer: None,
            interval: None,
            lives: None,
        }
    }

    /// Until the first of the permits in use are back.
    pub(crate) fn reset(&self) -> Duration {
        millis(self.reset)
    }

    /// When a denied request finds more permits than now.
    pub(crate) fn retry_after(&self) -> Duration {
        millis(self.reset.max(1))
    }

    /// When a queue asks again: Redisson's 3 + interval - age of the oldest grant, in ms, but soon enough to keep the limiter
    /// alive.
    pub(crate) fn wait(&self) -> Duration {
        let wait = millis(self.reset.saturating_add(SLACK).max(1));
        match self.lives {
            Some(lives) => wait.min(millis(lives) / 2),
            None => wait,
        }
    }

    /// Of a limiter with a keep alive, whether it expires before a queue asks again.
    #[inline]
    pub(super) fn with_life(self, keep_alive: i64) -> Self {
        let is_too_short = keep_alive > 0 && keep_alive <= self.reset.saturating_add(SLACK);
        Self {
            lives: is_too_short.then_some(keep_alive),
            ..self
        }
    }
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_of_a_queue_is_no_part_of_what_callers_see() {
        let answer = Answer::new(0, 10, 0, 40);
        assert_eq!(answer.retry_after(), Duration::from_millis(40));
        assert_eq!(answer.wait(), Duration::from_millis(43));
    }
}
