//! A queue, its callers, and what they hold.

use crate::queue::WhileAway;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use tokio::task::yield_now;

use super::ledger_store::LedgerStore;
use crate::box_future::BoxFuture;
use crate::interleaving::{Participant, let_others_run};
use crate::queue::WaitQueue;

pub(super) type Asking = BoxFuture<'static, u32>;

/// A queue whose permits are all taken, and the callers that have not ended.
pub(super) struct Scene {
    pub(super) store: Arc<LedgerStore>,
    pub(super) queue: Arc<WaitQueue>,
    pub(super) busy: AtomicUsize,
    /// Permits that callers were granted and have not given back.
    pub(super) held: AtomicU32,
}

impl Scene {
    pub(super) fn new(threads: usize) -> Arc<Self> {
        let store = LedgerStore::new();
        Arc::new(Self {
            queue: Arc::new(WaitQueue::new(
                Arc::clone(&store) as _,
                Box::new(|_, _, _| {}),
            )),
            store,
            busy: AtomicUsize::new(threads),
            held: AtomicU32::new(0),
        })
    }

    /// Asks for permits, and gives up after `polls` polls. Returns how many it holds.
    pub(super) fn waiting(self: &Arc<Self>, permits: u32, polls: Option<u32>) -> Asking {
        let scene = Arc::clone(self);
        Box::pin(async move {
            let granted = tokio::select! {
                biased;
                () = after(polls) => false,
                granted = scene.queue.wait(scene.queue.take_place(), permits, None, None, false, WhileAway::Fail) => granted.unwrap().is_some(),
            };
            scene.hold(permits * u32::from(granted))
        })
    }

    pub(super) fn checking(self: &Arc<Self>, permits: u32, polls: Option<u32>) -> Asking {
        let scene = Arc::clone(self);
        Box::pin(async move {
            let granted = tokio::select! {
                biased;
                () = after(polls) => false,
                decision = scene.queue.check(permits, None) => decision.unwrap().is_granted(),
            };
            scene.hold(permits * u32::from(granted))
        })
    }

    pub(super) fn hold(&self, permits: u32) -> u32 {
        self.held.fetch_add(permits, Ordering::Relaxed);
        permits
    }

    /// Gives back all permits that callers hold.
    pub(super) fn give_back(&self) {
        self.held.store(0, Ordering::Relaxed);
        self.store.release_own();
        self.queue.permits_freed();
    }

    pub(super) fn free_all(&self) {
        self.store.free();
        self.queue.permits_freed();
    }

    /// Keeps a runtime going until all is done: other callers may depend on calls that its driver
    /// makes.
    pub(super) fn see_it_out(&self, participant: &Participant) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        participant.turn_until("the end", || self.is_over());
    }

    pub(super) fn is_over(&self) -> bool {
        self.store.run_a_job(); // the background thread may have ended
        self.busy.load(Ordering::Relaxed) == 0
            && self.store.is_idle()
            && self.queue.queue.step(|state| !state.has_drivers())
            && self.queue.plain.is_idle()
    }

    /// The background thread of the store.
    pub(super) fn work_in_background(&self) {
        while !self.is_over() {
            let_others_run();
        }
    }

    pub(super) fn end(&self) {
        let held = self.held.load(Ordering::Relaxed);
        assert_eq!(self.store.in_use(), held, "what is in use is what is held");
    }
}

async fn after(polls: Option<u32>) {
    let Some(polls) = polls else {
        return std::future::pending().await;
    };
    for _ in 0..polls {
        yield_now().await;
    }
}

/// A participant whose task runs until it is done.
pub(super) fn participate(scene: &Scene, task: Asking) {
    let participant = Participant::new();
    participant.join(participant.spawn(task));
    scene.see_it_out(&participant);
}
