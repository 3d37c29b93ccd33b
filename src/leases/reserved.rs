//! Permits that are reserved to be used later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::held::Ended;
use super::lease::Moment;
use super::settling::settle;
use crate::decision::DecisionSource;
use crate::event::{Reports, RequestResult};
use crate::grant::Grant;
use crate::lock::Lock;
use crate::permit::CallId;
use crate::queue::Queue;
use crate::window::Settlement;

/// Permits that can be used later.
pub(crate) struct Reserved {
    pub(super) queue: Arc<Queue>,
    pub(super) pending: Arc<AllPending>,
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
        let pending = Pending {
            all: Arc::clone(&self.pending),
            id: self.grant.call_id,
        };
        pending.all.lock().insert(pending.id, self);
        pending
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.settle(Settlement { used: 0, early: 0 });
    }
}

/// The reservations of a limiter that somebody waits for, by the ids of their calls.
pub(super) type AllPending = Lock<HashMap<CallId, Reserved>>;

/// A reservation that somebody waits for.
pub(crate) struct Pending {
    all: Arc<AllPending>,
    id: CallId,
}

impl Pending {
    /// `None` if it was given back.
    pub(crate) fn take(&self) -> Option<Reserved> {
        self.all.lock().remove(&self.id)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// A request for a reservation: `None` if the permits become available too late.
impl Reports for Option<Reserved> {
    fn result(&self) -> RequestResult {
        RequestResult::of(self.is_some(), DecisionSource::Store)
    }
}
