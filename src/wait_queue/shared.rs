//! What all requests of one limiter share, and what each part of the queue does with it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::leases::Leases;
use super::reserving::WeakPending;
use super::state::{Outbox, State};
use super::substitute::Substitute;
use crate::denials::Denials;
use crate::grant::{Grant, Origin};
use crate::lock::Lock;
use crate::store::{AcquireCall, LimiterStore, OnDone};
use crate::window::SetUp;

/// Told of permits as soon as the store's answer is there that grants them: until when they may be
/// used, and with which settings it was asked for. The callers may learn of them later, or never.
pub(crate) type OnGranted = Box<dyn Fn(u32, Instant, Option<SetUp>) + Send + Sync>;

/// The waiters of one limiter in this process.
pub(crate) struct Queue {
    pub(super) store: Arc<dyn LimiterStore>,
    pub(super) state: Lock<State>,
    pub(super) denials: Arc<Denials>,
    /// All permits granted to this process, except those of [`LimiterStore::try_acquire_now`],
    /// where counting would cost more than everything else it does.
    pub(super) own: AtomicU64,
    pub(super) on_granted: OnGranted,
    /// Made by the first handle that wants leases.
    pub(super) leases: OnceLock<Box<Leases>>,
    /// How many calls of this client are changing the limiter: nothing is leased meanwhile.
    pub(super) lease_stops: AtomicUsize,
    /// Set by the first waiter who has one: all of them give grants back in the same way.
    pub(super) substitute: OnceLock<Arc<dyn Substitute>>,
    /// Reservations that somebody waits for.
    pub(super) pending: Lock<Vec<WeakPending>>,
}

impl Queue {
    pub(super) fn new(store: Arc<dyn LimiterStore>, on_granted: OnGranted) -> Arc<Self> {
        let state = State::over(store.response_timeout());
        Arc::new(Self {
            store,
            denials: Arc::default(),
            state: Lock::new(state),
            own: AtomicU64::new(0),
            on_granted,
            leases: OnceLock::new(),
            lease_stops: AtomicUsize::new(0),
            substitute: OnceLock::new(),
            pending: Lock::default(),
        })
    }

    /// Runs a step of the state, and delivers its outbox once the lock is released.
    pub(super) fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = step(&mut state);
        let outbox = state.take_outbox();
        drop(state);
        #[cfg(test)]
        crate::interleaving::let_others_run();
        for grant in outbox.map(Outbox::deliver).into_iter().flatten() {
            self.give_back(grant);
        }
        result
    }

    pub(super) fn name(&self) -> &str {
        &self.store.keys().name
    }

    pub(super) fn permits_freed(self: &Arc<Self>) {
        self.denials.drop_last();
        self.step(State::permits_freed);
    }

    pub(super) fn note_own(&self, taken: i64) {
        self.own.fetch_add(taken.unsigned_abs(), Ordering::Relaxed);
    }

    pub(super) fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Permits are given back without a caller: runs when they are. Until then no denial is
    /// remembered, as it may count them.
    pub(super) fn giving_back(self: &Arc<Self>) -> OnDone {
        let change = self.denials.change(self.store.call_deadline());
        let queue = Arc::clone(self);
        Box::new(move || {
            change.done();
            queue.permits_freed();
        })
    }

    /// Gives a grant that has no owner back to who made it.
    pub(super) fn give_back(self: &Arc<Self>, grant: Grant) {
        match (grant.origin, self.substitute.get()) {
            (Origin::Local, Some(substitute)) => {
                substitute.give_back(&grant);
                self.permits_freed();
            }
            (Origin::Local | Origin::Nowhere, _) => {}
            (Origin::Store, _) if self.put_back(&grant) => self.permits_freed(),
            (Origin::Store, _) => {
                Arc::clone(&self.store).refund_unclaimed(grant, self.giving_back());
            }
        }
    }

    /// Has the store give back what a call took whose callers are gone.
    pub(super) fn reclaim(self: &Arc<Self>, call: Arc<AcquireCall>) {
        Arc::clone(&self.store).reclaim(call, self.giving_back());
    }
}
