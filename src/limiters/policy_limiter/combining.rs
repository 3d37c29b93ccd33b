//! Requests on one target, which share calls.
//!
//! A policy's state does not know single requests, so a call whose answer is lost is not made
//! again: it may have been charged.

use std::sync::Arc;

use tokio::time::Instant;

use crate::batch::{Batcher, CallAnswers, Calls};
use crate::decision::Decision;
use crate::error::Result;
use crate::fallback::TargetRequest;
use crate::policies::call::Call;
use crate::store::Store;

pub(super) struct TargetCalls {
    store: Arc<dyn Store>,
}

pub(super) fn batcher(store: &Arc<dyn Store>) -> Arc<Batcher<TargetCalls>> {
    Arc::new(Batcher::new(TargetCalls {
        store: Arc::clone(store),
    }))
}

/// Decides one request, together with others on the same target.
pub(super) async fn check(
    batcher: &Arc<Batcher<TargetCalls>>,
    request: &TargetRequest,
) -> Result<Decision> {
    batcher.ask(&request.target.key, request).await
}

impl Calls for TargetCalls {
    /// The target's key.
    type Key = Arc<str>;
    type Request = TargetRequest;
    type Answer = Decision;
    type Call = Arc<Call>;

    const CAPACITY: usize = 1024;
    const IS_REPEATABLE: bool = false;

    /// Two where a call takes the server longer the more it carries: it decides one while the other
    /// is on its way.
    fn calls_at_once(request: &TargetRequest) -> usize {
        1 + usize::from(request.target.model.properties().logs_requests)
    }

    fn cost(request: &TargetRequest) -> u32 {
        request.cost
    }

    fn room(request: &TargetRequest) -> u32 {
        request.target.model.properties().largest_cost
    }

    fn deadline(&self) -> Instant {
        self.store.call_deadline()
    }

    fn call<'a>(&self, requests: impl Iterator<Item = &'a TargetRequest> + Clone) -> Arc<Call> {
        for request in requests.clone() {
            request.queue_time.ends_now();
        }
        // The last request has the policy in force.
        let target = requests.clone().last().map(|last| last.target.clone());
        let costs = requests.map(|request| request.cost);
        Arc::new(Call::new(target, costs))
    }

    fn run(
        &self,
        call: Arc<Call>,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static {
        let store = Arc::clone(&self.store);
        async move {
            let answers = store.check(&call, deadline).await?;
            let requests = 0..call.costs.len();
            Ok(requests
                .map(|place| answers.decision(&call, place))
                .collect())
        }
    }

    fn may_have_run(call: &Arc<Call>) -> bool {
        call.may_have_run()
    }

    fn abandon(&self, _call: &Arc<Call>) {}

    fn abandon_overdue(&self, _call: &Arc<Call>, _deadline: Instant) {}

    fn unclaimed(&self, _answers: Vec<Decision>) {}
}
