//! The store in memory of a client with faults.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::limiter::FaultyLimiter;
use super::{Faults, yield_in_order};
use crate::box_future::BoxFuture;
use crate::breaker::{Breaker, Breakers};
use crate::error::Result;
use crate::health::ServerHealth;
use crate::keys::Keys;
use crate::policies::call::{Answers, Call};
use crate::store::memory::MemoryClient;
use crate::store::unsettled::Unsettled;
use crate::store::{GivingBack, LimiterStore, Store};

/// The store of one client with faults. Clones are the same store.
#[derive(Debug, Clone)]
pub(crate) struct FaultyStore {
    pub(super) memory: MemoryClient,
    pub(super) faults: Faults,
    pub(super) breaker: Arc<Breaker>,
    pub(super) response_timeout: Duration,
    unsettled: Unsettled,
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
            memory,
            faults: faults.clone(),
            breaker,
            response_timeout,
            unsettled: Unsettled::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Notes that a call is sent if there is a connection, even if it then waits for the store.
    fn note_sent(&self, call: &Call) -> Result<()> {
        match self.faults.is_lost() {
            true => Ok(()),
            false => call.note_sent(),
        }
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

    fn ping(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.answer(self.call_deadline(), async { Ok(()) }).await })
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(FaultyLimiter::new(self.clone(), keys))
    }

    fn check<'a>(
        &'a self,
        call: &'a Arc<Call>,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Answers>> {
        Box::pin(async move {
            self.note_sent(call)?;
            let checking = async {
                call.note_sent()?;
                match self.faults.denial() {
                    Some(denial) if denial.is_of_any(call) => denial.answers(&self.memory, call),
                    _ => self.memory.check_call(call),
                }
            };
            self.answer(deadline, checking).await
        })
    }

    fn undo<'a>(&'a self, call: &'a Arc<Call>, deadline: Instant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            self.note_sent(call)?;
            let undoing = async {
                call.note_sent()?;
                self.memory.undo_call(call)
            };
            self.answer(deadline, undoing).await
        })
    }

    fn give_back_in_background(&self, task: GivingBack) {
        // No call is made outside of a runtime.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.unsettled.counted(task));
        }
    }

    fn given_back(&self) -> BoxFuture<'_, bool> {
        Box::pin(self.unsettled.given_back())
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + self.response_timeout
    }
}
