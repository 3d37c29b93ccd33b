//! What a client knows of a limiter without asking the store: its last denial, by which requests
//! are denied without a call, and waits are refused that cannot be served in time.
//!
//! It is dropped by each call of this client that may free permits or change the limiter, whatever
//! the call is. Such a call is a [`Change`]: it moves the epoch on when it begins and when it ends.
//! A denial holds in the epoch in which its own call was sent, and none is remembered while a
//! change is under way. A change without an answer may still be made until its deadline.

mod denial;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::decision::Decision;
use crate::lock::Lock;
use crate::window::SetUp;
pub(crate) use denial::{Deniable, Denial};

#[derive(Default)]
pub(crate) struct Denials {
    /// Read without a lock.
    last: ArcSwapOption<Denial>,
    /// Moved on under the lock only.
    epoch: AtomicU64,
    changes: Lock<Changes>,
}

#[derive(Default)]
struct Changes {
    all: UnderWay,
    /// The changes of the limiter itself, not only of its permits.
    of_limiter: UnderWay,
    /// The settings that a call of this client has given the limiter, if the client has not changed
    /// it since. Another call with these changes nothing.
    set_up: Option<SetUp>,
}

#[derive(Default)]
struct UnderWay {
    count: usize,
    /// Until when changes without an answer may still be made.
    unsettled_until: Option<Instant>,
}

impl UnderWay {
    /// Whether none is under way, and each one without an answer was over at this time.
    fn are_over(&self, at: Instant) -> bool {
        self.count == 0 && self.unsettled_until.is_none_or(|until| until <= at)
    }

    fn end(&mut self, unsettled_until: Option<Instant>) {
        self.count -= 1;
        self.unsettled_until = self.unsettled_until.max(unsettled_until);
    }
}

/// A call that is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    epoch: u64,
    /// [`LimiterStore::changes`](crate::store::LimiterStore::changes).
    changes: u64,
}

impl Denials {
    /// Describes a call that is sent now. `changes` is what
    /// [`LimiterStore::changes`](crate::store::LimiterStore::changes) returns now.
    pub(crate) fn sent(&self, changes: u64) -> Sent {
        Sent {
            at: Instant::now(),
            epoch: self.epoch(),
            changes,
        }
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Drops the last denial, because permits may have come free.
    pub(crate) fn drop_last(&self) {
        let _changes = self.changes.lock();
        self.next_epoch();
    }

    /// Notes that a call that may free permits is about to be sent, which may be executed until
    /// `deadline`.
    pub(crate) fn change(self: &Arc<Self>, deadline: Instant) -> Change {
        self.start(deadline, None)
    }

    /// Notes that a call that sets, resets or deletes the limiter, or changes when it expires, is
    /// about to be sent. The server does not know its deadline. So for leases, a call without an
    /// answer counts as under way for as long again, from when its caller gives up.
    pub(crate) fn change_limiter(self: &Arc<Self>, deadline: Instant) -> Change {
        let late_by = deadline.saturating_duration_since(Instant::now());
        self.start(deadline, Some(late_by))
    }

    fn start(self: &Arc<Self>, deadline: Instant, late_by: Option<Duration>) -> Change {
        let mut changes = self.changes.lock();
        changes.all.count += 1;
        changes.of_limiter.count += usize::from(late_by.is_some());
        changes.set_up = None;
        self.next_epoch();
        Change {
            denials: Arc::clone(self),
            deadline,
            late_by,
            is_over: false,
        }
    }

    /// Whether a call that changes the limiter is under way, or may be.
    pub(crate) fn is_limiter_changing(&self) -> bool {
        !self.changes.lock().of_limiter.are_over(Instant::now())
    }

    /// Notes that a call that takes permits and has this set-up is about to be sent; `None` if the
    /// set-up changes nothing.
    pub(crate) fn set_up(
        self: &Arc<Self>,
        set_up: Option<SetUp>,
        deadline: Instant,
    ) -> Option<Change> {
        let set_up = set_up.and_then(SetUp::replacing)?;
        let is_known = self.changes.lock().set_up == Some(set_up);
        (!is_known).then(|| self.change(deadline))
    }

    /// Remembers a denial, unless it may be out of date.
    pub(crate) fn remember(&self, denial: Denial) {
        let changes = self.changes.lock();
        let sent = &denial.sent;
        if changes.all.are_over(sent.at) && sent.epoch == self.epoch() {
            self.last.store(Some(Arc::new(denial)));
        }
    }

    /// Notes that this many permits were available in the store: a denial that left fewer is
    /// dropped.
    pub(crate) fn note_available(&self, available: u64) {
        let last = self.last.load();
        if last.as_ref().is_some_and(|last| last.left < available) {
            self.last.store(None);
        }
    }

    /// What the last denial says to requests with this set-up, if it still holds. `changes` is what
    /// [`LimiterStore::changes`](crate::store::LimiterStore::changes) returns now.
    pub(crate) fn last<T>(
        &self,
        set_up: Option<SetUp>,
        changes: u64,
        says: impl FnOnce(&Denial) -> Option<T>,
    ) -> Option<T> {
        let last = self.last.load();
        let last = last.as_deref()?;
        let is_current = last.sent.epoch == self.epoch() && last.sent.changes == changes;
        (is_current && last.has_settings_of(set_up)).then(|| says(last))?
    }

    /// The denial of a request.
    pub(crate) fn denial(&self, request: &Deniable, changes: u64) -> Option<Decision> {
        let of = |last: &Denial| last.of(request, Instant::now());
        self.last(request.set_up, changes, of)
    }

    /// Whether a request would be denied if the last denial were young enough.
    pub(crate) fn would_deny(&self, request: &Deniable, changes: u64) -> bool {
        let denies = |last: &Denial| last.denies(request, Instant::now()).then_some(());
        self.last(request.set_up, changes, denies).is_some()
    }
}

/// A call under way that may free permits or change the limiter. Dropping it means that there is no
/// answer.
pub(crate) struct Change {
    denials: Arc<Denials>,
    deadline: Instant,
    /// For how long after its caller has given up a call that changes the limiter may be executed:
    /// nothing is leased until then. `None` for other calls.
    late_by: Option<Duration>,
    is_over: bool,
}

impl Change {
    /// Ends the change: the call has been answered.
    pub(crate) fn done(mut self) {
        self.end(None, None, None);
    }

    /// The call, which was sent at `sent`, has been answered, and has given the limiter these
    /// settings. Its own answer may be remembered unless there was another change.
    pub(crate) fn gave(mut self, set_up: Option<SetUp>, sent: &mut Sent) {
        self.end(set_up, Some(sent), None);
    }

    fn end(&mut self, set_up: Option<SetUp>, sent: Option<&mut Sent>, until: Option<Instant>) {
        self.is_over = true;
        let mut changes = self.denials.changes.lock();
        changes.all.end(until);
        if let Some(late_by) = self.late_by {
            changes
                .of_limiter
                .end(until.map(|_| Instant::now() + late_by));
        }
        changes.set_up = set_up;
        let epoch = self.denials.next_epoch();
        if let Some(sent) = sent
            && sent.epoch + 1 == epoch
        {
            sent.epoch = epoch;
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(None, None, Some(self.deadline));
        }
    }
}
