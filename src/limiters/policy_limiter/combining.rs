//! Requests on one target, which share calls.
//!
//! A policy's state does not record single requests. So a call whose answer is lost is not
//! repeated: its requests may have been charged. If the caller of a request is gone when the answer
//! comes, the charge of the request is given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::batch::{Batcher, CallAnswers, Calls};
use crate::decision::Decision;
use crate::error::Result;
use crate::fallback::TargetRequest;
use crate::limiters::charge::give_back_in_background;
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

pub(super) struct TargetCall {
    call: Arc<Call>,
    /// Whether its answer never came.
    is_lost: AtomicBool,
    /// Closed once the call is over, and each of its answers is with its caller or being given
    /// back.
    over: Semaphore,
}

/// A call that is not over while this lives: it runs, or one of its answers has not been taken.
struct Unfinished(Arc<TargetCall>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.over.close();
    }
}

pub(super) struct Answered {
    pub(super) decision: Decision,
    unfinished: Arc<Unfinished>,
}

impl Calls for TargetCalls {
    /// The target's key.
    type Key = Arc<str>;
    type Request = TargetRequest;
    type Answer = Answered;
    type Call = Arc<TargetCall>;

    const CAPACITY: usize = 1024;
    const IS_REPEATABLE: bool = false;

    /// Two if a call takes the server longer the more it carries: the server decides one call while
    /// the other is on its way.
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

    fn call<'a>(
        &self,
        requests: impl Iterator<Item = &'a TargetRequest> + Clone,
    ) -> Arc<TargetCall> {
        for request in requests.clone() {
            request.queue_time.ends_now();
        }
        // The last request has the policy in force.
        let target = requests.clone().last().map(|last| last.target.clone());
        let costs = requests.map(|request| request.cost);
        Arc::new(TargetCall {
            call: Arc::new(Call::new(target, costs)),
            is_lost: AtomicBool::new(true),
            over: Semaphore::new(0),
        })
    }

    fn run(
        &self,
        call: Arc<TargetCall>,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static {
        let (store, unfinished) = (Arc::clone(&self.store), Arc::new(Unfinished(call)));
        async move {
            let Unfinished(this) = &*unfinished;
            let answers = store.check(&this.call, deadline).await;
            let is_lost = matches!(&answers, Err(error) if error.is_unavailable());
            this.is_lost.store(is_lost, Ordering::Relaxed);
            let answers = answers?;
            let each = (0..this.call.costs.len()).map(|place| {
                let decision = answers.decision(&this.call, place)?;
                let unfinished = Arc::clone(&unfinished);
                Ok(Answered {
                    decision,
                    unfinished,
                })
            });
            Ok(each.collect())
        }
    }

    fn may_have_run(call: &Arc<TargetCall>) -> bool {
        call.call.may_have_run()
    }

    /// Makes [`close`](crate::RedissonClient::close) wait for a call that a caller has left: its
    /// answer may have to be given back. After the call's time none is read, by a runtime that may
    /// not run any more.
    fn abandon(&self, call: &Arc<TargetCall>) {
        let (call, deadline) = (Arc::clone(call), self.store.call_deadline());
        self.store.give_back_in_background(Box::pin(async move {
            let _ = timeout_at(deadline, call.over.acquire()).await;
            let may_have_charged = call.is_lost.load(Ordering::Relaxed) && call.call.may_have_run();
            match &call.call.limiters[..] {
                [target] if may_have_charged => target.model.quota().window,
                _ => Duration::ZERO,
            }
        }));
    }

    fn abandon_overdue(&self, call: &Arc<TargetCall>, _deadline: Instant) {
        self.abandon(call);
    }

    fn unclaimed(&self, answers: Vec<Answered>) {
        for Answered {
            decision,
            unfinished,
        } in answers
        {
            let limiters = &unfinished.0.call.limiters[..];
            if let (Some(grant), [target]) = (decision.into_grant(), limiters) {
                give_back_in_background(&self.store, target.clone(), grant);
            }
        }
    }
}
