//! The store's last exact answer, for requests that are answered without a call: those whose denial is remembered, and
//! waits that cannot be served in time.
//!
//! Whatever this client does that may change the limiter drops the answer, and discards those of calls that are then in
//! flight: see [`Sending`](super::super::remembered::Sending), which each such call passes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::observed::Observed;
use super::published::Published;
use crate::decision::Decision;
use crate::window::SetUp;

#[derive(Default)]
pub(in crate::wait_queue) struct LastAnswer {
    observed: Option<Observed>,
    /// The settings that this client's calls last gave the limiter, if it has not changed the limiter otherwise since.
    set_up: Option<SetUp>,
    /// Until when a change may still be made whose call was not answered.
    unsettled_until: Option<Instant>,
    /// The earliest and the latest time at which the limiter expires, if this client has set that.
    expires: Option<(Instant, Instant)>,
    /// The longest keep alive that this client has given the limiter.
    keep_alive: Duration,
    /// `observed`, for readers without the lock, and how often one has been dropped.
    published: Arc<Published>,
}

/// A call that is sent. Its answer holds if nothing has changed since.
#[derive(Debug, Clone, Copy)]
pub(in crate::wait_queue) struct Sent {
    pub(in crate::wait_queue) at: Instant,
    pub(super) epoch: u64,
    pub(super) changes: u64,
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
    pub(in crate::wait_queue) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    #[cfg(test)]
    pub(in crate::wait_queue) fn sent(&self, now: Instant, changes: u64) -> Sent {
        self.published.sent(now, changes)
    }

    /// This client has changed the limiter, or permits may have come free.
    pub(in crate::wait_queue) fn changed(&mut self) {
        self.published.next_epoch();
        self.set_up = None;
        self.observe(None);
    }

    /// A call that changes the limiter was not answered: it may have done so, or do so until then.
    pub(in crate::wait_queue) fn unsettled(&mut self, until: Instant) {
        self.changed();
        self.unsettled_until = self.unsettled_until.max(Some(until));
    }

    /// A call that was sent then, and answered now, gave the limiter this time to live, if any.
    pub(in crate::wait_queue) fn expires(
        &mut self,
        time_to_live: Option<Duration>,
        sent: &Sent,
        now: Instant,
    ) {
        self.changed();
        let after = |time: Instant| time.checked_add(time_to_live?);
        self.expires = after(sent.at).zip(after(now));
    }

    /// This client has set a rate. One without a keep alive leaves the limiter's time to live, which is that of the keep
    /// alive before: nothing is certain until it has passed.
    pub(in crate::wait_queue) fn rate_set(&mut self, keep_alive: Option<Duration>, now: Instant) {
        self.changed();
        match keep_alive {
            Some(keep_alive) => self.keep_alive = self.keep_alive.max(keep_alive),
            None => {
                let before = std::mem::take(&mut self.keep_alive);
                self.unsettled(now.checked_add(before).unwrap_or(now));
            }
        }
    }

    /// A call may have given the limiter these settings.
    pub(in crate::wait_queue) fn may_be_set_up(&mut self, set_up: Option<SetUp>) {
        if let Some(set_up) = set_up {
            let keep_alive = Duration::from_millis(set_up.settings.keep_alive.unsigned_abs());
            self.keep_alive = self.keep_alive.max(keep_alive);
        }
    }

    /// Whether a call with this set-up gives the limiter other settings than this client's calls before.
    pub(in crate::wait_queue) fn is_changed_by(&self, set_up: Option<SetUp>) -> bool {
        set_up.is_some() && set_up != self.set_up
    }

    /// Notes what the answer to a call with this set-up says, if it was exact.
    pub(in crate::wait_queue) fn note(
        &mut self,
        observed: Option<Observed>,
        set_up: Option<SetUp>,
        sent: &Sent,
    ) {
        // The call itself may be the change.
        let is_current = self.published.is_current(sent);
        if self.is_changed_by(set_up) {
            self.changed();
            self.set_up = set_up;
        }
        let is_last = { self.observed }.is_none_or(|before| before.sent_at <= sent.at);
        let is_settled = { self.unsettled_until }.is_none_or(|until| until <= sent.at);
        if is_current && is_last && is_settled {
            let expires = self.expires.filter(|(_, latest)| *latest >= sent.at);
            self.observe(observed.map(|it| expires.map_or(it, |(earliest, _)| it.until(earliest))));
        }
    }

    fn observe(&mut self, observed: Option<Observed>) {
        self.observed = observed;
        self.published.publish(observed.as_ref());
    }

    /// The answer, if requests with this set-up leave the limiter as it says, and the store counts so many changes.
    pub(super) fn observed(&self, set_up: Option<SetUp>, changes: u64) -> Option<&Observed> {
        let observed = self.observed.as_ref()?;
        (observed.has_settings_of(set_up) && observed.is_after(changes)).then_some(observed)
    }

    /// The denial of a request that would still be denied.
    pub(in crate::wait_queue) fn denial(
        &self,
        request: &Deniable,
        changes: u64,
        now: Instant,
    ) -> Option<Decision> {
        self.observed(request.set_up, changes)?.denial(request, now)
    }

    /// Whether a request would be denied if the answer were young enough.
    pub(in crate::wait_queue) fn would_deny(
        &self,
        request: &Deniable,
        changes: u64,
        now: Instant,
    ) -> bool {
        let observed = self.observed(request.set_up, changes);
        observed.is_some_and(|observed| observed.denies(request, now))
    }

    /// Whether it denies anything at that age.
    pub(in crate::wait_queue) fn is_in_use(&self, at_most: Duration, now: Instant) -> bool {
        self.observed
            .is_some_and(|observed| observed.age(now) < observed.lasts.min(at_most))
    }
}
