//! Requests on one target, which share calls.
//!
//! A policy's state does not know single requests, so a call whose answer is lost is not made
//! again: it may have been charged. What was charged to a request whose caller is gone is given
//! back once the answer is there.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
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

/// Decides one request, together with others on the same target.
pub(super) async fn check(
    batcher: &Arc<Batcher<TargetCalls>>,
    request: &TargetRequest,
) -> Result<Decision> {
    let answer = batcher.ask(&request.target.key, request).await?;
    Ok(answer.decision)
}

/// A call, and who still holds what it has charged: itself while it runs, and then each of its
/// answers until somebody has it.
pub(super) struct TargetCall {
    call: Arc<Call>,
    holders: AtomicUsize,
    /// Whether its answer never came.
    is_lost: AtomicBool,
    over: Notify,
}

impl TargetCall {
    /// Waits until nobody holds anything any more: it is with its caller, or being given back.
    async fn over(&self) {
        loop {
            let mut over = pin!(self.over.notified());
            over.as_mut().enable();
            if self.holders.load(Ordering::Acquire) == 0 {
                return;
            }
            over.await;
        }
    }
}

/// Counts as a holder until it is dropped.
struct Holder(Arc<TargetCall>);

impl Holder {
    fn of(call: &Arc<TargetCall>) -> Self {
        call.holders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(call))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if self.0.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.over.notify_waiters();
        }
    }
}

pub(super) struct Answered {
    decision: Decision,
    holder: Holder,
}

impl TargetCalls {
    /// Has whoever closes the client wait for a call that somebody has left: its answer may have to
    /// be given back. After the call's time none is read, by a runtime that may not run any more.
    fn await_end(&self, call: &Arc<TargetCall>) {
        let (call, deadline) = (Arc::clone(call), self.store.call_deadline());
        self.store.give_back_in_background(Box::pin(async move {
            let _ = timeout_at(deadline, call.over()).await;
            let may_have_charged = call.is_lost.load(Ordering::Relaxed) && call.call.may_have_run();
            match &call.call.limiters[..] {
                [target] if may_have_charged => target.model.quota().window,
                _ => Duration::ZERO,
            }
        }));
    }
}

impl Calls for TargetCalls {
    /// The target's key.
    type Key = Arc<str>;
    type Request = TargetRequest;
    type Answer = Answered;
    type Call = Arc<TargetCall>;

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
            holders: AtomicUsize::new(0),
            is_lost: AtomicBool::new(true),
            over: Notify::new(),
        })
    }

    fn run(
        &self,
        call: Arc<TargetCall>,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static {
        let (store, running) = (Arc::clone(&self.store), Holder::of(&call));
        async move {
            let Holder(this) = &running;
            let answers = store.check(&this.call, deadline).await;
            let is_lost = matches!(&answers, Err(error) if error.is_unavailable());
            this.is_lost.store(is_lost, Ordering::Relaxed);
            let answers = answers?;
            let each = (0..this.call.costs.len()).map(|place| {
                let decision = answers.decision(&this.call, place)?;
                let holder = Holder::of(this);
                Ok(Answered { decision, holder })
            });
            Ok(each.collect())
        }
    }

    fn may_have_run(call: &Arc<TargetCall>) -> bool {
        call.call.may_have_run()
    }

    fn abandon(&self, call: &Arc<TargetCall>) {
        self.await_end(call);
    }

    fn abandon_overdue(&self, call: &Arc<TargetCall>, _deadline: Instant) {
        self.await_end(call);
    }

    fn unclaimed(&self, answers: Vec<Answered>) {
        for Answered { decision, holder } in answers {
            let limiters = &holder.0.call.limiters[..];
            if let (Some(grant), [target]) = (decision.into_grant(), limiters) {
                give_back_in_background(&self.store, target.clone(), grant);
            }
        }
    }
}
