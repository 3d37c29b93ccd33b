//! What an exact answer of the store says about later requests: how many permits are left, and
//! until when.
//!
//! Each field errs in favour of the requests. Times count from when the call was sent, which is
//! before it was decided.

use std::time::Duration;

use tokio::time::Instant;

use super::super::LONGEST_WAIT;
use super::last_answer::{Deniable, Sent};
use crate::decision::{Decision, DecisionSource, Denied};
use crate::window::{Answer, Requests, SetUp};

/// The store counts whole milliseconds, so what it says may end this much earlier.
const TICK: Duration = Duration::from_millis(1);

/// `left` permits are available until the first of those in use come back.
#[derive(Debug, Clone, Copy)]
pub(in crate::wait_queue) struct Observed {
    pub(super) sent_at: Instant,
    pub(super) received_at: Instant,
    pub(super) left: u64,
    pub(super) rate: u64,
    pub(super) until_first: Duration,
    /// Until any permit is available, if none is left.
    pub(super) available_in: Duration,
    /// The fewest permits that were denied, and until when. More are denied at least as long.
    pub(super) denied: Option<(u32, Duration)>,
    /// Until all permits are back, if no more are taken.
    pub(super) until_all: Duration,
    /// For how long it holds: until the first are back, unless the limiter expires before.
    pub(super) lasts: Duration,
    /// [`LimiterStore::changes`](crate::store::LimiterStore::changes) when the call was sent.
    pub(super) changes: u64,
    pub(super) interval: Duration,
    /// The settings that the call gave the limiter.
    pub(super) set_up: Option<SetUp>,
}

impl Observed {
    /// What an answer to these requests, received now, says; `None` if it does not say exactly what
    /// is available.
    pub(in crate::wait_queue) fn by_answer(
        answer: &Answer,
        requests: &Requests,
        set_up: Option<SetUp>,
        sent: &Sent,
    ) -> Option<Self> {
        if !answer.is_exact() || !requests.any_fits(answer.rate) {
            return None;
        }
        let taken = requests.taken(answer);
        let left = (answer.available - taken).max(0);
        let runs = { requests.served(answer) }
            .enumerate()
            .map(|(place, (run, _))| (run.permits, answer.retry_after(place)));
        let denied = runs.filter(|&(permits, _)| i64::from(permits) > left);
        Some(Self {
            sent_at: sent.at,
            received_at: Instant::now(),
            left: left.unsigned_abs(),
            rate: answer.rate.unsigned_abs(),
            until_first: answer.until_first(),
            available_in: answer.available_in(),
            denied: denied.min(),
            until_all: if taken > 0 {
                answer.interval()
            } else {
                answer.until_all()
            },
            lasts: answer.lasts(),
            changes: sent.changes,
            interval: answer.interval(),
            set_up,
        })
    }

    /// Whether it is later than these changes.
    pub(in crate::wait_queue) fn is_after(&self, changes: u64) -> bool {
        self.changes == changes
    }

    /// Whether requests with this set-up leave the limiter's settings as they were.
    pub(in crate::wait_queue) fn has_settings_of(&self, set_up: Option<SetUp>) -> bool {
        let replacing = set_up.and_then(SetUp::replacing);
        replacing.is_none() || replacing == self.set_up
    }

    #[cfg(test)]
    pub(super) fn received_at(self, received_at: Instant) -> Self {
        Self {
            received_at,
            ..self
        }
    }

    /// The same, for a limiter that expires at this time.
    pub(super) fn until(self, expires_at: Instant) -> Self {
        let life = expires_at.saturating_duration_since(self.sent_at);
        Self {
            lasts: self.lasts.min(life),
            ..self
        }
    }

    /// Whether it says that a request with these settings is denied, however old the answer.
    pub(super) fn denies(&self, request: &Deniable, now: Instant) -> bool {
        // More than the rate is an error, which the store finds out.
        self.left < u64::from(request.fewest)
            && u64::from(request.most) <= self.rate
            && self.age(now) + TICK <= self.lasts
    }

    /// The denial of a request with these settings, if the answer is young enough.
    pub(in crate::wait_queue) fn denial(
        &self,
        request: &Deniable,
        now: Instant,
    ) -> Option<Decision> {
        if !self.denies(request, now) || self.age(now) >= request.at_most {
            return None;
        }
        // Counted from when the answer was received.
        let age = now.saturating_duration_since(self.received_at);
        let denied = { self.denied }.filter(|&(permits, _)| permits <= request.fewest);
        let retry_after = denied.map_or(self.until_first, |(_, until)| until);
        Some(Decision::Denied(Denied {
            retry_after: retry_after.saturating_sub(age),
            limit: self.rate,
            window: self.interval,
            remaining: self.left,
            reset: self.until_all.saturating_sub(age),
            source: DecisionSource::Remembered,
            available_in: (self.left == 0).then(|| self.available_in.saturating_sub(age)),
        }))
    }

    /// The longest time for which it may have been out of date.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.sent_at)
    }

    /// The shortest time in which this many permits can be granted, unless others give permits back
    /// or raise the rate. `None` if the answer is too old for a waiter to rely on, or the limiter
    /// may expire before.
    pub(super) fn shortest_wait(&self, permits: u64, now: Instant) -> Option<Duration> {
        let age = self.age(now);
        if age > LONGEST_WAIT || self.lasts < self.until_first {
            return None;
        }
        let Some(beyond) = permits.checked_sub(self.left + 1) else {
            return Some(Duration::ZERO);
        };
        let first_back = self.until_first.saturating_sub(age);
        // All permits may come back at once, and then again after each interval.
        let windows = beyond.checked_div(self.rate).unwrap_or(0);
        let more = self
            .interval
            .saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX));
        Some(first_back.saturating_add(more))
    }
}
