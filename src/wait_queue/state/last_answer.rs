//! The store's last answer, for requests that are answered without a call: those whose denial is remembered, and waits
//! that cannot be served in time.
//!
//! Each field errs in favour of the requests. Times count from when the call was sent, which is before it was decided.
//! Whatever may have freed permits drops the answer, and discards those of calls that are then in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::LONGEST_WAIT;
use super::published::Published;
use crate::decision::{Decision, Denied};
use crate::model::{Answer, Requests, SetUp};

/// The interval of a rate of this many permits, if known.
pub(crate) type IntervalOf<'a> = dyn Fn(u64) -> Option<Duration> + Send + Sync + 'a;

#[derive(Default)]
pub(in crate::wait_queue) struct LastAnswer {
    observed: Option<Observed>,
    /// How often an answer has been dropped.
    epoch: Epoch,
    /// The settings that this process's calls last gave the limiter.
    set_up: Option<SetUp>,
    /// `observed`, for readers without the lock.
    published: Arc<Published>,
}

/// An answer holds only in the epoch in which its call was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::wait_queue) struct Epoch(u64);

/// `left` permits are available until the first of those in use come back.
#[derive(Debug, Clone, Copy)]
pub(in crate::wait_queue) struct Observed {
    pub(super) sent_at: Instant,
    pub(super) received_at: Instant,
    pub(super) left: u64,
    pub(super) rate: u64,
    pub(super) reset: Duration,
    pub(super) interval: Option<Duration>,
}

impl Observed {
    /// What an answer to these requests, received now, says.
    pub(in crate::wait_queue) fn by_answer(
        answer: &Answer,
        requests: &Requests,
        sent_at: Instant,
    ) -> Option<Self> {
        let left = (answer.available - requests.taken(answer)).max(0);
        let interval = answer
            .interval
            .map(|ms| Duration::from_millis(ms.unsigned_abs()));
        // If an earlier attempt was granted, it says how much, and not what is available. The same holds if all
        // requests exceed the rate.
        let is_told = !answer.found && requests.any_fits(answer.rate);
        is_told.then(|| Self {
            sent_at,
            received_at: Instant::now(),
            left: left.unsigned_abs(),
            rate: answer.rate.unsigned_abs(),
            reset: answer.reset(),
            interval,
        })
    }

    /// Whether it says that a request is denied, whatever the set-up.
    fn denies(&self, request: &Deniable, now: Instant) -> bool {
        // More than the rate is an error, which the store finds out.
        self.left < u64::from(request.fewest)
            && u64::from(request.most) <= self.rate
            && self.age(now) < self.reset
    }

    /// The denial of a request, if the answer is young enough.
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
        let left = self.reset.saturating_sub(age);
        let denied = Denied::new(left).with_limit(self.rate);
        Some(denied.with_remaining(self.left).into())
    }

    /// The longest time for which it may have been out of date.
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.sent_at)
    }

    /// What a denial, received now, says.
    pub(in crate::wait_queue) fn by_denial(decision: &Decision, sent_at: Instant) -> Option<Self> {
        let &Decision::Denied(Denied {
            limit,
            remaining,
            reset,
            ..
        }) = decision
        else {
            return None;
        };
        Some(Self {
            sent_at,
            received_at: Instant::now(),
            left: remaining,
            rate: limit,
            reset,
            interval: None,
        })
    }
}

/// One or more requests that are denied while the store's last answer denies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::wait_queue) struct Deniable {
    pub(in crate::wait_queue) fewest: u32,
    pub(in crate::wait_queue) most: u32,
    pub(in crate::wait_queue) set_up: Option<SetUp>,
    /// The greatest age of the answer.
    pub(in crate::wait_queue) at_most: Duration,
}

impl Deniable {
    pub(in crate::wait_queue) fn one(
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
    ) -> Self {
        Self {
            fewest: permits,
            most: permits,
            set_up,
            at_most,
        }
    }

    /// What denies both.
    pub(in crate::wait_queue) fn and(self, other: Self) -> Option<Self> {
        (self.set_up == other.set_up).then(|| Self {
            fewest: self.fewest.min(other.fewest),
            most: self.most.max(other.most),
            set_up: self.set_up,
            at_most: self.at_most.min(other.at_most),
        })
    }
}

impl LastAnswer {
    pub(in crate::wait_queue) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(in crate::wait_queue) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    /// Permits may have come free.
    pub(in crate::wait_queue) fn forget(&mut self) {
        self.observed = None;
        self.epoch.0 += 1;
        self.published.publish(None);
    }

    /// Notes an answer to a call with this set-up, sent in that epoch.
    pub(in crate::wait_queue) fn note(
        &mut self,
        observed: Observed,
        set_up: Option<SetUp>,
        epoch: Epoch,
    ) {
        let is_current = epoch == self.epoch;
        if set_up.is_some() && set_up != self.set_up {
            // The rate may have changed: the answers of calls in flight no longer hold.
            self.set_up = set_up;
            self.forget();
        }
        if is_current
            && self
                .observed
                .is_none_or(|before| before.sent_at <= observed.sent_at)
        {
            self.observed = Some(observed);
            self.published.publish(Some(&observed));
        }
    }

    /// The denial of a request that would still be denied.
    pub(in crate::wait_queue) fn denial(
        &self,
        request: &Deniable,
        now: Instant,
    ) -> Option<Decision> {
        self.denies(request, now)?.denial(request, now)
    }

    /// Whether a request would be denied if the answer were young enough.
    pub(in crate::wait_queue) fn would_deny(&self, request: &Deniable, now: Instant) -> bool {
        self.denies(request, now).is_some()
    }

    /// Whether it denies anything at that age.
    pub(in crate::wait_queue) fn is_in_use(&self, at_most: Duration, now: Instant) -> bool {
        self.observed
            .is_some_and(|observed| observed.age(now) < observed.reset.min(at_most))
    }

    fn denies(&self, request: &Deniable, now: Instant) -> Option<&Observed> {
        let is_as_set_up = request.set_up.is_none() || request.set_up == self.set_up;
        let observed = self.observed.as_ref().filter(|_| is_as_set_up)?;
        observed.denies(request, now).then_some(observed)
    }

    /// The shortest time in which this many permits can be granted, unless others give permits back or raise the rate.
    /// `None` if the answer is too old for a waiter to rely on. `interval` returns the interval of a limiter with this
    /// rate, if otherwise known.
    pub(in crate::wait_queue) fn shortest_wait(
        &self,
        permits: u64,
        now: Instant,
        interval: &IntervalOf<'_>,
    ) -> Option<Duration> {
        let observed = self.observed.as_ref()?;
        let age = observed.age(now);
        if age > LONGEST_WAIT {
            return None;
        }
        let Some(beyond) = permits.checked_sub(observed.left + 1) else {
            return Some(Duration::ZERO);
        };
        let first_back = observed.reset.saturating_sub(age);
        // All permits may come back at once, and then again after each interval.
        let windows = beyond.checked_div(observed.rate).unwrap_or(0);
        let set_up = || {
            Some(Duration::from_millis(
                self.set_up?.settings.interval.unsigned_abs(),
            ))
        };
        let interval = observed
            .interval
            .or_else(set_up)
            .or_else(|| interval(observed.rate));
        let more = interval
            .unwrap_or(Duration::ZERO)
            .saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX));
        Some(first_back.saturating_add(more))
    }
}
