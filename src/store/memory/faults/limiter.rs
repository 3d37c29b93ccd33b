//! One limiter of a store with faults.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::super::client_limiter::MemoryLimiter;
use super::FaultyStore;
use crate::box_future::BoxFuture;
use crate::error::Result;
use crate::grant::Grant;
use crate::keys::Keys;
use crate::permit::CallId;
use crate::rate::Rate;
use crate::store::acquire_call::Attempt;
use crate::store::{
    AcquireCall, LimiterChange, LimiterStore, OnDone, OnFreed, Store, Task, TimeToLive,
};
use crate::window::{Acquired, Settlement};

#[derive(Debug)]
pub(super) struct FaultyLimiter {
    store: FaultyStore,
    memory: Arc<MemoryLimiter>,
}

/// The attempt that is noted of each call. It is over once it has been executed.
const ATTEMPT: Attempt = Attempt {
    deadline: 0,
    from: 0,
};

impl FaultyLimiter {
    pub(super) fn new(store: FaultyStore, keys: Arc<Keys>) -> Self {
        Self {
            memory: Arc::new(MemoryLimiter::new(&store.memory, keys)),
            store,
        }
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.store.answer(self.call_deadline(), call).await
    }

    /// Executes an attempt of a call. The call is granted once, and not after its outcome was
    /// claimed to give back what it took.
    fn execute(&self, call: &AcquireCall) -> Result<Acquired> {
        let mut granted = call.granted.lock();
        if let Some(mut answer) = granted.clone() {
            answer.available = call.requests.taken(&answer);
            answer.found = true;
            return Ok(answer);
        }
        call.note_attempt(ATTEMPT)?;
        let answer = match self.store.faults.denial() {
            Some(denial) if denial.is_of(&self.keys().name) && !call.requests.debt => {
                denial.answer(&self.memory, call)?
            }
            _ => self.memory.acquire_call(call)?,
        };
        if call.requests.taken(&answer) > 0 {
            *granted = Some(answer.clone());
        }
        Ok(answer)
    }
}

impl LimiterStore for FaultyLimiter {
    fn keys(&self) -> &Keys {
        self.memory.keys()
    }

    fn client(&self) -> &dyn Store {
        &self.store
    }

    fn wall_millis(&self) -> i64 {
        self.memory.wall_millis()
    }

    fn response_timeout(&self) -> Duration {
        self.store.response_timeout
    }

    fn may_have_peers(&self) -> bool {
        self.memory.may_have_peers()
    }

    fn changes(&self) -> u64 {
        self.memory.changes()
    }

    fn watch(&self, on_freed: &Arc<OnFreed>) {
        self.memory.watch(on_freed);
        self.store.faults.watch(on_freed);
    }

    fn driver_started(&self) {
        self.memory.driver_started();
    }

    fn driver_ended(&self) {
        self.memory.driver_ended();
    }

    fn acquire<'a>(
        &'a self,
        call: &'a AcquireCall,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            let acquiring = async { self.execute(call) };
            self.store.answer(deadline, acquiring).await
        })
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        Arc::clone(&self.memory).refund_unclaimed(grant, on_done);
    }

    fn reclaim(self: Arc<Self>, call: Arc<AcquireCall>, on_done: OnDone) {
        let granted = call.granted.lock();
        let is_ours = call.claim() && call.granted_at().is_none();
        let taken = granted.clone().filter(|_| is_ours);
        drop(granted);
        match taken {
            Some(answer) => {
                // The grants of one call fit a u32.
                let permits = call.requests.taken(&answer) as u32;
                let grant = answer.grant(call.id, permits);
                Arc::clone(&self.memory).refund_unclaimed(grant, on_done);
            }
            None => on_done(),
        }
    }

    fn run_in_background(&self, task: Task) {
        // After the end of the runtime there is nobody left to serve.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(task);
        }
    }

    fn refund<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move { self.answer(self.memory.refund(grant)).await })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move { self.answer(self.memory.settle(lease, settlement)).await })
    }

    fn release(&self, permits: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.answer(self.memory.release(permits)).await })
    }

    fn hold(&self, millis: i64, call_id: CallId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.answer(self.memory.hold(millis, call_id)).await })
    }

    fn available_permits(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move {
            let available = async {
                let available = self.memory.available_permits().await?;
                let denial = self.store.faults.denial();
                let is_denied = denial.is_some_and(|it| it.is_of(&self.keys().name));
                Ok(if is_denied { 0 } else { available })
            };
            self.answer(available).await
        })
    }

    fn change(&self, change: LimiterChange) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.answer(self.memory.change(change)).await })
    }

    fn config(&self) -> BoxFuture<'_, Result<Option<Rate>>> {
        Box::pin(async move { self.answer(self.memory.config()).await })
    }

    fn remain_time_to_live(&self) -> BoxFuture<'_, Result<TimeToLive>> {
        Box::pin(async move { self.answer(self.memory.remain_time_to_live()).await })
    }
}
