//! The store in memory of a client with faults.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::limiter::FaultyLimiter;
use super::{Faults, yield_in_order};
use crate::error::Result;
use crate::health::ServerHealth;
use crate::keys::Keys;
use crate::policies::call::{Answers, Call};
use crate::store::breaker::{Breaker, Breakers};
use crate::store::memory::MemoryClient;
use crate::store::{LimiterStore, Store};

/// Clones are the store of one client.
#[derive(Debug, Clone)]
pub(crate) struct FaultyStore {
    pub(super) memory: Arc<MemoryClient>,
    pub(super) faults: Faults,
    pub(super) breaker: Arc<Breaker>,
    pub(super) response_timeout: Duration,
}

impl FaultyStore {
    pub(crate) fn new(
        memory: MemoryClient,
        faults: &Faults,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self {
        let breaker = Breaker::new("memory".to_owned(), response_timeout, breakers);
        faults.add_breaker(&breaker);
        Self {
            memory: Arc::new(memory),
            faults: faults.clone(),
            breaker,
            response_timeout,
        }
    }

    #[cfg(test)]
    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// A call that finds a connection is sent, though it may wait for the store.
    fn note_sent(&self, call: &Call) {
        call.note_sent(!self.faults.is_lost());
    }

    /// Executes a call when it reaches the store.
    pub(super) async fn answer<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let called = async {
            // As by a server, no call is answered when it is first polled: so the calls of several
            // clients may cross.
            yield_in_order().await;
            #[cfg(test)]
            self.faults.network().sent(deadline).await?;
            self.faults.reached(deadline).await?;
            let answer = call.await;
            #[cfg(test)]
            self.faults.network().answered(deadline).await?;
            answer
        };
        let result = called.await;
        self.breaker.note(&result, deadline);
        result
    }
}

#[async_trait]
impl Store for FaultyStore {
    fn is_cluster(&self) -> bool {
        false
    }

    fn breaker(&self, _key: &str) -> Option<Arc<Breaker>> {
        Some(Arc::clone(&self.breaker))
    }

    fn is_healthy(&self) -> bool {
        self.breaker.is_healthy()
    }

    fn health(&self) -> Vec<ServerHealth> {
        vec![self.breaker.health()]
    }

    async fn ping(&self) -> Result<()> {
        self.answer(self.call_deadline(), async { Ok(()) }).await
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(FaultyLimiter::new(self.clone(), keys))
    }

    async fn check(&self, call: &Arc<Call>, deadline: Instant) -> Result<Answers> {
        self.note_sent(call);
        let checking = async {
            call.note_sent(true);
            match self.faults.denial() {
                Some(denial) if denial.is_of_any(call) => denial.answers(&self.memory, call),
                _ => self.memory.check_call(call),
            }
        };
        self.answer(deadline, checking).await
    }

    async fn undo(&self, call: &Arc<Call>, deadline: Instant) -> Result<u32> {
        self.note_sent(call);
        let undoing = async {
            call.note_sent(true);
            self.memory.undo_call(call)
        };
        self.answer(deadline, undoing).await
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + self.response_timeout
    }
}
