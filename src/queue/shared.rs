//! What all requests of one limiter share, and the interface to the layer above, which may hold
//! permits aside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio::time::Instant;

use super::state::{Outbox, State};
use super::substitute::Substitute;
use crate::denials::Denials;
use crate::grant::{Grant, Origin};
use crate::lock::Lock;
use crate::permit::CallId;
use crate::store::{AcquireCall, LimiterStore, OnDone};
use crate::window::{Acquired, SetUp};

/// Called with permits as soon as the store's answer grants them, until when they may be used, and
/// the set-up of their call. Their callers may learn of them later, or never.
pub(crate) type OnGranted = Box<dyn Fn(u32, Instant, Option<SetUp>) + Send + Sync>;

/// The waiters of one limiter in this process.
pub(crate) struct Queue {
    pub(crate) store: Arc<dyn LimiterStore>,
    pub(super) state: Lock<State>,
    pub(crate) denials: Arc<Denials>,
    /// All permits granted to this process, except those of [`LimiterStore::try_acquire_now`],
    /// where counting would cost more than everything else it does.
    pub(super) own: AtomicU64,
    pub(super) on_granted: OnGranted,
    /// Set by the layer above that holds permits aside.
    pub(crate) aside: OnceLock<Arc<dyn HeldAside>>,
    /// The substitute of the first waiter that had one: all of them give grants back in the same
    /// way.
    pub(super) substitute: OnceLock<Arc<dyn Substitute>>,
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
            aside: OnceLock::new(),
            substitute: OnceLock::new(),
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

    pub(crate) fn name(&self) -> &str {
        &self.store.keys().name
    }

    pub(crate) fn permits_freed(self: &Arc<Self>) {
        self.denials.drop_last();
        self.step(State::permits_freed);
    }

    /// The number of waiters.
    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().admitted()
    }

    pub(super) fn note_own(&self, taken: i64) {
        self.own.fetch_add(taken.unsigned_abs(), Ordering::Relaxed);
    }

    pub(super) fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Notes that permits without a caller are being given back. Returns what must run once they
    /// are back: until then no denial is remembered, as it may count them as in use.
    pub(crate) fn giving_back(self: &Arc<Self>) -> OnDone {
        let change = self.denials.change(self.store.call_deadline());
        let queue = Arc::clone(self);
        Box::new(move || {
            change.done();
            queue.permits_freed();
        })
    }

    /// Gives a grant back to what it was made of, if that is still held aside.
    pub(super) fn put_back(&self, grant: &Grant) -> bool {
        self.aside.get().is_some_and(|aside| aside.put_back(grant))
    }

    /// Gives a grant that has no owner back to where it was made.
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

    /// Gives back, in the background, what a call took whose callers are gone.
    pub(crate) fn reclaim(self: &Arc<Self>, call: Arc<AcquireCall>) {
        Arc::clone(&self.store).reclaim(call, self.giving_back());
    }
}

/// Permits that a layer above has taken ahead for the requests of this process, and what the queue
/// asks of it.
pub(crate) trait HeldAside: Send + Sync {
    /// Takes permits for a request with this set-up.
    fn take(&self, permits: u32, set_up: Option<SetUp>) -> Option<TakenAside>;

    /// Whether [`take`](Self::take) would grant such a request now.
    fn serves(&self, permits: u32, set_up: Option<SetUp>) -> bool;

    /// Gives a grant back. Returns `false` if what it was made of is no longer held.
    fn put_back(&self, grant: &Grant) -> bool;

    fn is_empty(&self) -> bool;

    /// The calls from now on that take permits ahead or give them back.
    fn calls(&self) -> CallsAside;

    /// Whether permits are held aside, or a call that takes them or gives them back is under way.
    fn holds_some(&self) -> bool {
        !self.is_empty() || self.calls().were_made()
    }

    /// Notes that the store has answered a call.
    fn answered(self: Arc<Self>, queue: &Arc<Queue>, call: &AcquireCall, answer: &Acquired);

    /// Makes the step that [`TakenAside`] says is due.
    fn attend(self: Arc<Self>, queue: &Arc<Queue>);
}

/// A request that was granted what is held aside.
pub(crate) struct TakenAside {
    pub(crate) id: CallId,
    pub(crate) answer: Acquired,
    /// Whether a step is due.
    pub(crate) is_attention_due: bool,
}

/// The calls that take permits ahead or give them back, since this was made.
pub(crate) struct CallsAside(pub(crate) watch::Receiver<usize>);

impl CallsAside {
    /// Whether such a call is under way, or has been since. If nothing counts them any more, they
    /// have ended.
    pub(crate) fn were_made(&self) -> bool {
        *self.0.borrow() > 0 || self.0.has_changed().unwrap_or(true)
    }

    /// Waits until no such call is under way.
    pub(super) async fn done(mut self) {
        let _ = self.0.wait_for(|calls| *calls == 0).await;
    }
}
