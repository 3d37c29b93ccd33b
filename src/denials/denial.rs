//! A denial of the store, and what it says of later requests: how many permits are left, and until
//! when.
//!
//! Each field errs in favour of the requests. Times count from when the call was sent, which is
//! before it was decided.

use std::time::Duration;

use tokio::time::Instant;

use super::Sent;
use crate::decision::{Decision, DecisionSource, Denied};
use crate::window::{Acquired, Requests, SetUp};

/// The store counts whole milliseconds, so a time that it reports may end this much earlier.
const TICK: Duration = Duration::from_millis(1);

/// A denial of the store: `left` permits are available until the first of those in use come back.
#[derive(Debug)]
pub(crate) struct Denial {
    pub(super) sent: Sent,
    pub(crate) received_at: Instant,
    pub(super) left: u64,
    /// The fewest permits that were denied.
    permits: u32,
    /// The denial of a request for this many permits.
    denied: Denied,
    until_first: Duration,
    /// For how long it holds, from its call on: until the first permits are back, or the limiter
    /// expires.
    lasts: Duration,
    /// The set-up of its call.
    set_up: Option<SetUp>,
}

/// One or more requests that are denied while the last denial denies them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deniable {
    fewest: u32,
    most: u32,
    pub(super) set_up: Option<SetUp>,
    /// The greatest age of the denial.
    at_most: Duration,
}

impl Deniable {
    /// A request that a denial of at most this age denies; `None` if the store decides each
    /// request.
    pub(crate) fn one(permits: u32, set_up: Option<SetUp>, at_most: Duration) -> Option<Self> {
        (!at_most.is_zero()).then_some(Self {
            fewest: permits,
            most: permits,
            set_up,
            at_most,
        })
    }

    /// Both as one, which only a denial of both denies; `None` if their set-ups differ.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        (self.set_up == other.set_up).then(|| Self {
            fewest: self.fewest.min(other.fewest),
            most: self.most.max(other.most),
            set_up: self.set_up,
            at_most: self.at_most.min(other.at_most),
        })
    }
}

impl Denial {
    /// What the answer to a call says that was received now; `None` if it denied nothing, or does
    /// not say exactly what is available.
    pub(crate) fn by_answer(
        answer: &Acquired,
        requests: &Requests,
        set_up: Option<SetUp>,
        sent: Sent,
    ) -> Option<Self> {
        if !answer.is_exact() || !requests.any_fits(answer.rate) {
            return None;
        }
        let taken = requests.taken(answer);
        let left = (answer.available - taken).max(0);
        let mut denied = None;
        for (place, (run, granted)) in requests.served(answer).enumerate() {
            // A request may be denied only because it is behind another one.
            if granted < run.count && i64::from(run.permits) > left {
                let (permits, after) = (run.permits, answer.retry_after(place));
                denied = Some(denied.map_or((permits, after), |it| (permits, after).min(it)));
            }
        }
        let (permits, retry_after) = denied?;
        let left = left.unsigned_abs();
        Some(Self {
            sent,
            received_at: Instant::now(),
            left,
            permits,
            denied: Denied {
                retry_after,
                limit: answer.rate.unsigned_abs(),
                window: answer.interval(),
                remaining: left,
                reset: match taken > 0 {
                    true => answer.interval(),
                    false => answer.until_all(),
                },
                source: DecisionSource::Remembered,
                available_in: (left == 0).then(|| answer.available_in()),
            },
            until_first: answer.until_first(),
            lasts: answer.lasts(),
            set_up,
        })
    }

    #[cfg(test)]
    pub(crate) fn received_at(self, received_at: Instant) -> Self {
        Self {
            received_at,
            ..self
        }
    }

    pub(crate) fn rate(&self) -> u64 {
        self.denied.limit
    }

    /// The longest time for which it may have been out of date.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.sent.at)
    }

    /// Whether requests with this set-up leave the limiter's settings as they were.
    pub(crate) fn has_settings_of(&self, set_up: Option<SetUp>) -> bool {
        let replacing = set_up.and_then(SetUp::replacing);
        replacing.is_none() || replacing == self.set_up
    }

    /// Whether this denial denies a request, unless the denial is older than the request accepts.
    pub(super) fn denies(&self, request: &Deniable, now: Instant) -> bool {
        // More than the rate is an error, which the store finds out.
        self.left < u64::from(request.fewest)
            && u64::from(request.most) <= self.rate()
            && self.age(now) + TICK <= self.lasts
    }

    /// The denial of a request, if this one is young enough.
    pub(super) fn of(&self, request: &Deniable, now: Instant) -> Option<Decision> {
        if !self.denies(request, now) || self.age(now) >= request.at_most {
            return None;
        }
        // Counted from when the answer was received.
        let age = now.saturating_duration_since(self.received_at);
        let denied = self.denied.clone();
        let retry_after = match self.permits <= request.fewest {
            true => denied.retry_after,
            false => self.until_first,
        };
        Some(Decision::Denied(Denied {
            retry_after: retry_after.saturating_sub(age),
            reset: denied.reset.saturating_sub(age),
            available_in: denied.available_in.map(|it| it.saturating_sub(age)),
            ..denied
        }))
    }

    /// The shortest time in which this many permits can be granted, unless others give permits back
    /// or raise the rate. `None` if the limiter may expire before.
    pub(crate) fn shortest_wait(&self, permits: u64, now: Instant) -> Option<Duration> {
        if self.lasts < self.until_first {
            return None;
        }
        let Some(beyond) = permits.checked_sub(self.left + 1) else {
            return Some(Duration::ZERO);
        };
        let first_back = self.until_first.saturating_sub(self.age(now));
        // All permits may come back at once, and then again after each interval.
        let windows = beyond.checked_div(self.rate()).unwrap_or(0);
        let windows = u32::try_from(windows).unwrap_or(u32::MAX);
        Some(first_back.saturating_add(self.denied.window.saturating_mul(windows)))
    }
}
