//! What was used beyond what was granted: taken in any case, so that fewer permits than none may be
//! left, and later requests wait for them.
//!
//! Debts of one limiter share calls, unless the store decides at once. Nothing gives them back:
//! what was used stays used, also if the caller is gone.

use std::iter;
use std::sync::Arc;

use tokio::time::Instant;

use super::Queue;
use crate::batch::{CallAnswers, Calls};
use crate::error::Result;
use crate::store::AcquireCall;
use crate::window::{Requests, SetUp};

pub(super) struct Debts {
    queue: Arc<Queue>,
}

#[derive(Clone, Copy)]
pub(super) struct Debt {
    pub(super) permits: u32,
    pub(super) set_up: Option<SetUp>,
}

#[derive(Clone)]
pub(super) struct DebtCall {
    acquire: Arc<AcquireCall>,
    count: usize,
}

impl Debts {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue }
    }

    /// Takes one by itself.
    pub(super) async fn take(&self, debt: &Debt) -> Result<()> {
        let call = self.call(iter::once(debt));
        self.run(call, self.deadline()).await.map(|_answers| ())
    }
}

impl Calls for Debts {
    type Key = ();
    type Request = Debt;
    type Answer = ();
    type Call = DebtCall;

    const CAPACITY: usize = 4096;
    // Nothing gives back what the call before has taken.
    const IS_REPEATABLE: bool = false;

    /// The debts of a call are one grant, whose permits fit a u32.
    fn cost(debt: &Debt) -> u32 {
        debt.permits
    }

    fn deadline(&self) -> Instant {
        self.queue.store.call_deadline()
    }

    fn call<'a>(&self, debts: impl Iterator<Item = &'a Debt> + Clone) -> DebtCall {
        let permits = debts.clone().map(|debt| debt.permits).sum();
        let set_up = SetUp::of_all(debts.clone().filter_map(|debt| debt.set_up));
        let acquire = AcquireCall::new(Requests::debt(permits)).with_set_up(set_up);
        DebtCall {
            acquire: Arc::new(acquire),
            count: debts.count(),
        }
    }

    fn run(
        &self,
        call: DebtCall,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static {
        let queue = Arc::clone(&self.queue);
        async move {
            queue.call(&call.acquire, deadline).await?;
            Ok((0..call.count).map(|_| Ok(())).collect())
        }
    }

    fn may_have_run(call: &DebtCall) -> bool {
        call.acquire.may_have_run()
    }

    fn abandon(&self, _: &DebtCall) {}

    fn abandon_overdue(&self, _: &DebtCall, _: Instant) {}

    fn unclaimed(&self, _: Vec<()>) {}
}
