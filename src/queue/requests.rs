//! The requests of one limiter in this process: those that are decided at once, and what else its
//! handles ask of the queue.

use std::sync::Arc;

use super::shared::{OnGranted, Queue};
use super::state::State;
use crate::batch::Batcher;
use crate::decision::{Decision, decision_alone};
use crate::error::Result;
use crate::grant::Grant;
use crate::permit::CallId;
use crate::same_runtime::SameRuntime;
use crate::store::{AcquireCall, LimiterStore};
use crate::window::{Acquired, Requests, SetUp};

pub(crate) struct WaitQueue {
    pub(super) plain: Arc<Batcher<Arc<Queue>>>,
    pub(crate) queue: Arc<Queue>,
}

impl WaitQueue {
    pub(crate) fn new(store: Arc<dyn LimiterStore>, on_granted: OnGranted) -> Self {
        let queue = Queue::new(store, on_granted);
        Self {
            plain: Arc::new(Batcher::new(Arc::clone(&queue))),
            queue,
        }
    }

    #[inline]
    pub(crate) fn store(&self) -> &dyn LimiterStore {
        &*self.queue.store
    }

    /// Decides one request, if that is possible without waiting: returns the id of its grant and
    /// the answer.
    #[inline]
    pub(crate) fn acquire_now(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        if let Some(aside) = self.queue.aside.get()
            && let Some(taken) = aside.take(permits, set_up)
        {
            if taken.is_attention_due {
                Arc::clone(aside).attend(&self.queue);
            }
            return Ok(Some((taken.id, taken.answer)));
        }
        self.store().acquire_now(permits, set_up)
    }

    /// What an answer to one request says.
    #[inline]
    pub(crate) fn decided(&self, id: CallId, permits: u32, answer: &Acquired) -> Result<Decision> {
        let decided = decision_alone(self.queue.name(), id, permits, answer);
        // Permits that were held aside for a request were counted when they were taken.
        if !answer.found && matches!(&decided, Ok(decision) if decision.is_granted()) {
            self.queue.note_own(i64::from(permits));
        }
        decided
    }

    /// Whether there is an outage, as the store's breaker sees it.
    pub(crate) fn is_away(&self) -> bool {
        self.queue.has_outage()
    }

    /// Ends the waiting of all, now and later, with [`Error::Closed`]. What their call takes is
    /// given back.
    pub(crate) fn close(&self) {
        if let Some(call) = self.queue.step(State::close) {
            self.queue.reclaim(call);
        }
    }

    /// Takes permits that have been used, whatever is available: fewer than none may be left.
    /// Nothing gives them back, also if the caller is gone.
    pub(crate) async fn owe(&self, permits: u32, set_up: Option<SetUp>) -> Result<()> {
        let call = AcquireCall::new(Requests::debt(permits)).with_set_up(set_up);
        let deadline = self.store().call_deadline();
        if self.store().decides_at_once() {
            return self.queue.call(&call, deadline).await.map(|_| ());
        }
        loop {
            let owing = Box::pin(self.queue.call(&call, deadline));
            if let Some(answer) = SameRuntime::new(owing)?.await {
                return answer.map(|_| ());
            }
            // Another runtime polls it, and makes the same call, which is granted once.
        }
    }

    /// Gives a grant back: to the store, or to what is held aside.
    pub(crate) async fn refund(&self, grant: &Grant) -> Result<u32> {
        match self.queue.put_back(grant) {
            true => Ok(grant.permits),
            false => self.store().refund(grant).await,
        }
    }

    /// Gives back a grant of the store that has no owner.
    pub(crate) fn give_back(&self, grant: Grant) {
        self.queue.give_back(grant);
    }

    /// Permits may have come free: makes the queue's call due at once.
    pub(crate) fn permits_freed(&self) {
        self.queue.permits_freed();
    }
}

impl std::fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitQueue")
            .field("store", &self.queue.store)
            .finish_non_exhaustive()
    }
}
