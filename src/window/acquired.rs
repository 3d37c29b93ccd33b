//! The answer to a list of requests.

use std::time::Duration;

use super::Settings;
use crate::clock::millis;
use crate::grant::Grant;
use crate::permit::CallId;

/// The answer to the list of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acquired {
    /// Score of the grants made.
    pub(crate) score: i64,
    /// By how many ms the score is ahead of the time of the call; 0 if the permits are used at
    /// once.
    pub(crate) until_score: i64,
    pub(crate) rate: i64,
    /// The permits available before the list; below zero if more than the rate is in use. If
    /// `found`, the permits of the grant. If `has_more`, at least as many as the list takes.
    pub(crate) available: i64,
    pub(crate) interval: i64,
    /// Milliseconds until the first of the earlier live grants expires; the interval if there is
    /// none.
    pub(super) until_first: i64,
    /// If a request was denied, the ms until everything that was in use before the list is back, at
    /// most the interval. Otherwise the interval.
    pub(crate) until_all: i64,
    /// How many grants were summed.
    pub(crate) counted: u64,
    /// Whether the grants should have been summed, but are too many.
    pub(crate) audit_due: bool,
    /// Whether more grants have expired than were removed. Then more permits than `available` may
    /// be left.
    pub(crate) has_more: bool,
    /// Whether an earlier attempt of the call was granted. Then nothing was decided.
    pub(crate) found: bool,
    /// After a denial, the ms until the limiter expires unless another call renews it, if more than
    /// half of them would have passed when permits are back.
    pub(crate) lives: Option<i64>,
    pub(super) details: Option<Box<Details>>,
}

/// What few answers say. It is boxed because each function on the way to the caller moves an
/// answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// If a request was denied whose caller waits for permits by itself: first the ms until more
    /// permits are available than now, and at least one; then for each run the ms until its first
    /// denied request has the permits that it lacks. Empty if all of these are `until_first`.
    pub(crate) until_back: Box<[i64]>,
    /// By how many ms the time at which a grant was made is ahead of the call's; 0 if unknown.
    pub(crate) clock_ahead: i64,
    /// The permits that are left now, at least, if an earlier attempt was found.
    pub(crate) left_now: Option<i64>,
    /// The permits of earlier grants with a higher score than requested, among the newest 100.
    pub(crate) newer: Option<i64>,
    /// The limiter's settings, if it keeps them and the call would have created it with others.
    pub(crate) other_settings: Option<Settings>,
}

/// How many ms longer than until permits are back a queue waits, as in Redisson.
const SLACK: i64 = 3;

impl Acquired {
    /// The answer to a list whose requests are all granted: nothing is in use after an interval.
    pub(crate) fn new(
        score: i64,
        rate: i64,
        available: i64,
        until_first: i64,
        interval: i64,
    ) -> Self {
        Self {
            score,
            until_score: 0,
            rate,
            available,
            interval,
            until_first,
            until_all: interval,
            counted: 0,
            audit_due: false,
            has_more: false,
            found: false,
            lives: None,
            details: None,
        }
    }

    #[inline]
    pub(crate) fn with_details(self, details: Details) -> Self {
        match details == Details::default() {
            true => self,
            false => Self {
                details: Some(Box::new(details)),
                ..self
            },
        }
    }

    pub(crate) fn clock_ahead(&self) -> i64 {
        self.details.as_ref().map_or(0, |it| it.clock_ahead)
    }

    #[inline]
    pub(crate) fn left_now(&self) -> Option<i64> {
        self.details.as_ref()?.left_now
    }

    #[inline]
    pub(crate) fn newer(&self) -> Option<i64> {
        self.details.as_ref()?.newer
    }

    #[inline]
    pub(crate) fn other_settings(&self) -> Option<Settings> {
        self.details.as_ref()?.other_settings
    }

    /// The time at this index of [`Details::until_back`].
    #[inline]
    fn until_back(&self, place: usize) -> Duration {
        let details = self.details.as_ref();
        let until_back = details.and_then(|it| it.until_back.get(place).copied());
        millis(until_back.unwrap_or(self.until_first).max(1))
    }

    /// The grant of these permits to the call with this id.
    #[inline]
    pub(crate) fn grant(&self, call_id: CallId, permits: u32) -> Grant {
        Grant::new(self.score, call_id, permits).with_span(self.until_score)
    }

    /// Whether `available` is what the limiter had before the list, neither more nor less.
    pub(crate) fn is_exact(&self) -> bool {
        // An audit that is due may find more.
        !self.found && !self.has_more && !self.audit_due
    }

    /// The time until the first of the permits in use are back, or the limiter expires.
    pub(crate) fn lasts(&self) -> Duration {
        let first = self.until_first();
        self.lives.map_or(first, |lives| first.min(millis(lives)))
    }

    /// The time until the first of the permits in use are back.
    pub(crate) fn until_first(&self) -> Duration {
        millis(self.until_first)
    }

    /// The time until everything that was in use before the list is back, if a request was denied.
    pub(crate) fn until_all(&self) -> Duration {
        millis(self.until_all)
    }

    pub(crate) fn interval(&self) -> Duration {
        millis(self.interval)
    }

    /// The time until any permit is available, if none is left.
    pub(crate) fn available_in(&self) -> Duration {
        self.until_back(0)
    }

    /// The time until a denied request of the run at this index finds its permits.
    pub(crate) fn retry_after(&self, run: usize) -> Duration {
        self.until_back(run + 1)
    }

    /// The time after which a queue asks again: Redisson's 3 + interval - age of the oldest grant,
    /// in ms. At most half of the time until the limiter expires, so that even a late call finds
    /// it.
    pub(crate) fn wait(&self) -> Duration {
        let wait = millis(self.until_first.saturating_add(SLACK).max(1));
        match self.lives {
            Some(lives) => wait.min(millis(lives) / 2),
            None => wait,
        }
    }

    /// Sets `lives` if a limiter with this keep alive must be called before permits are back.
    #[inline]
    pub(super) fn with_life(self, keep_alive: i64) -> Self {
        let until_back = self.until_first.saturating_add(SLACK);
        let is_short = keep_alive > 0 && keep_alive < until_back.saturating_mul(2);
        Self {
            lives: is_short.then_some(keep_alive),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_of_a_queue_is_no_part_of_what_callers_see() {
        let answer = Acquired::new(0, 10, 0, 40, 1_000);
        assert_eq!(answer.retry_after(0), Duration::from_millis(40));
        assert_eq!(answer.wait(), Duration::from_millis(43));
    }

    #[test]
    fn a_queue_asks_again_before_more_than_half_of_the_keep_alive_has_passed() {
        let waits = |keep_alive| {
            let answer = Acquired::new(0, 10, 0, 997, 1_000).with_life(keep_alive);
            (answer.wait().as_millis(), answer.lives)
        };
        assert_eq!(waits(0), (1_000, None));
        assert_eq!(waits(1_000), (500, Some(1_000)));
        assert_eq!(waits(1_001), (500, Some(1_001)));
        assert_eq!(waits(1_999), (999, Some(1_999)));
        assert_eq!(waits(2_000), (1_000, None));
        assert_eq!(waits(i64::MAX), (1_000, None));
    }
}
