//! A queue whose permits may be leased, as its handles see it.

use std::fmt;
use std::mem;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::held::{Hold, Leases, Todo};
use super::lease::Moment;
use super::leasing::Leasing;
use super::reserved::AllPending;
use crate::denials::Change;
use crate::error::Result;
use crate::permit::CallId;
use crate::queue::{HeldAside, OnGranted, Queue, WaitQueue};
use crate::store::LimiterStore;
use crate::window::{Acquired, SetUp};

/// The queue, and what is taken ahead for it.
pub(crate) struct LeasedQueue {
    requests: WaitQueue,
    /// Made by the first handle that wants leases.
    leasing: OnceLock<Arc<Leasing>>,
    /// Reservations that somebody waits for.
    pub(super) pending: Arc<AllPending>,
}

impl Deref for LeasedQueue {
    type Target = WaitQueue;

    #[inline]
    fn deref(&self) -> &WaitQueue {
        &self.requests
    }
}

impl fmt::Debug for LeasedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests.fmt(f)
    }
}

impl LeasedQueue {
    pub(crate) fn new(store: Arc<dyn LimiterStore>, on_granted: OnGranted) -> Self {
        Self {
            requests: WaitQueue::new(store, on_granted),
            leasing: OnceLock::new(),
            pending: Arc::default(),
        }
    }

    /// While the result lives, permits may be leased for at most `up_to`, if there were at least
    /// `fewest_uses` in the time of two leases. `None` if the store decides at once.
    pub(crate) fn hold_lease(&self, up_to: Duration, fewest_uses: u64) -> Option<LeaseHold> {
        let queue = &self.queue;
        if queue.store.decides_at_once() {
            return None;
        }
        let leasing = || Arc::new(Leasing::new(Arc::clone(&queue.store)));
        let leasing = self.leasing.get_or_init(leasing);
        let hold = Hold { up_to, fewest_uses };
        leasing.leases.hold(hold);
        queue
            .aside
            .get_or_init(|| Arc::clone(leasing) as Arc<dyn HeldAside>);
        Some(LeaseHold {
            queue: Arc::clone(queue),
            leasing: Arc::clone(leasing),
            hold,
        })
    }

    /// Whether one request is granted, if that can be decided without waiting. The grant has no id
    /// to refund it by.
    #[inline]
    pub(crate) fn try_acquire_now(&self, permits: u32) -> Result<Option<bool>> {
        let store = self.store();
        if let Some(leasing) = self.leasing.get()
            && let Some(is_attention_due) =
                leasing.leases.take(permits, None, || Moment::now(store))
        {
            if is_attention_due {
                Arc::clone(leasing).attend(&self.queue);
            }
            return Ok(Some(true));
        }
        store.try_acquire_now(permits)
    }

    /// What a lease would answer to a request now, if there is one that grants it.
    pub(crate) fn peek_leased(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<(CallId, Acquired)> {
        let leases = &self.leasing.get()?.leases;
        leases.peek(permits, set_up, Moment::now(self.store()))
    }

    /// The permits that are left in leases.
    pub(crate) fn leased(&self) -> i64 {
        let leasing = self.leasing.get();
        leasing.map_or(0, |it| it.leases.left(Moment::now(self.store())))
    }

    /// Whether there is a lease, or a call for one is under way.
    pub(crate) fn is_leased(&self) -> bool {
        let leasing = self.leasing.get();
        leasing.is_some_and(|it| it.holds_some())
    }

    /// Ends the leases. The next one is taken once a request has learned the limiter's settings.
    pub(crate) fn end_leases(&self) {
        self.step(Leases::end);
    }

    /// Ends the leases, and takes none from then on.
    pub(crate) fn close_leases(&self) {
        self.step(Leases::close);
    }

    /// A call of this client that changes the limiter is about to be made, which would forget a
    /// lease. Ends the leases, and takes none until the call is over. A lease whose call is under
    /// way ends as it comes.
    pub(crate) fn change_limiter(&self) -> Change {
        let queue = &self.queue;
        let change = queue.denials.change_limiter(queue.store.call_deadline());
        // Only now: a lease that is planned after this step is given up because of the change.
        self.step(Leases::end);
        change
    }

    /// Closes the queue, and gives back what is leased or reserved.
    pub(crate) fn close(&self) {
        self.close_leases();
        let pending = mem::take(&mut *self.pending.lock());
        drop(pending); // not under the lock
        self.requests.close();
    }

    fn step(&self, step: impl FnOnce(&Leases) -> Todo) {
        if let Some(leasing) = self.leasing.get() {
            leasing.step(&self.queue, step);
        }
    }
}

/// A handle's wish for leases: while it lives, permits may be leased.
pub(crate) struct LeaseHold {
    queue: Arc<Queue>,
    leasing: Arc<Leasing>,
    hold: Hold,
}

impl fmt::Debug for LeaseHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHold").finish_non_exhaustive()
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        self.leasing
            .step(&self.queue, |leases| leases.release(self.hold));
    }
}
