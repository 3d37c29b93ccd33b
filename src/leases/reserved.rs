//! Permits that are reserved to be used later.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::held::Ended;
use super::lease::Moment;
use super::settling::settle;
use crate::decision::DecisionSource;
use crate::event::{Reports, RequestResult};
use crate::grant::Grant;
use crate::lock::Lock;
use crate::queue::Queue;
use crate::window::Settlement;

/// Permits that can be used later.
pub(crate) struct Reserved {
    pub(super) queue: Arc<Queue>,
    pub(super) pending: Arc<Pendings>,
    /// Its score is the end of the time in which they can be used.
    pub(crate) grant: Grant,
    /// When that time begins; it may begin earlier in the store.
    pub(crate) usable_at: Instant,
    /// When that time ends; it may end later in the store.
    pub(crate) expires_at: Instant,
    /// When its call was about to be sent.
    pub(super) sent: Moment,
    /// How many ms after `sent` the time ends.
    pub(super) lasts: i64,
}

impl Reserved {
    /// The ms for which the permits can still be used, rounded down; 0 once that time is over. It
    /// is also over by the wall clock, which goes on while the machine is suspended.
    pub(crate) fn left(&self) -> i64 {
        let now = Moment::now(&*self.queue.store);
        self.sent.left_of(self.lasts, now)
    }

    /// Reports in the background which of its permits were used; the others go back.
    pub(crate) fn settle(&mut self, settlement: Settlement) {
        let Self {
            grant, expires_at, ..
        } = self;
        let permits = std::mem::take(&mut grant.permits);
        if permits == 0 {
            return;
        }
        let interval = Duration::from_millis(grant.span.unsigned_abs());
        let ended = Ended {
            lease: Grant::new(grant.score, grant.call_id, permits).with_span(grant.span),
            settlement,
            back_at: *expires_at + interval,
        };
        settle(&self.queue, ended, None);
    }

    /// Keeps it until it is taken, dropped, or given back because the client is closed.
    pub(crate) fn until_closed(self) -> Pending {
        let all = Arc::clone(&self.pending);
        let pending = Arc::new(Lock::new(Some(self)));
        all.add(&pending);
        Pending(pending)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.settle(Settlement { used: 0, early: 0 });
    }
}

/// A reservation that somebody waits for.
pub(crate) struct Pending(Arc<Lock<Option<Reserved>>>);

impl Pending {
    /// `None` if it was given back.
    pub(crate) fn take(self) -> Option<Reserved> {
        self.0.lock().take()
    }
}

/// The reservations of a limiter that somebody waits for.
#[derive(Default)]
pub(super) struct Pendings(Lock<Vec<Weak<Lock<Option<Reserved>>>>>);

impl Pendings {
    fn add(&self, pending: &Arc<Lock<Option<Reserved>>>) {
        let mut all = self.0.lock();
        if all.len() == all.capacity() {
            all.retain(|it| it.strong_count() > 0);
            let kept = all.len();
            all.reserve(kept + 1);
        }
        all.push(Arc::downgrade(pending));
    }

    /// Gives all of them back, because the client is closed.
    pub(super) fn give_back(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for pending in all.iter().filter_map(Weak::upgrade) {
            let reserved = pending.lock().take();
            drop(reserved);
        }
    }
}

/// A request for a reservation: `None` if the permits become available too late.
impl Reports for Option<Reserved> {
    fn result(&self) -> RequestResult {
        RequestResult::of(self.is_some(), DecisionSource::Store)
    }
}
