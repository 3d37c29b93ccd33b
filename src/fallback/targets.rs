//! Decisions of the policies, one by one and several at once.

use std::future::poll_fn;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{GuardedQueue, LocalStore, allowed, denied, over_store};
use crate::box_future::BoxFuture;
use crate::decision::{Decision, Denied};
use crate::error::{Error, Result};
use crate::event::QueueTime;
use crate::failure_policy::{FailurePolicy, LocalShare};
use crate::grant::{Grant, Origin};
use crate::policies::call::{Call, Purpose, Target};
use crate::policies::shared_rate::ShareOf;
use crate::policies::shared_rate::SharedRate;
use crate::quota::Quota;
use crate::same_runtime::wherever_polled;
use crate::store::Store;

/// A target, what a request costs it, and which policy decides while the store is down.
#[derive(Debug, Clone)]
pub(crate) struct TargetRequest {
    pub(crate) target: Target,
    /// The limiter's name in labels.
    pub(crate) name: Arc<str>,
    pub(crate) cost: u32,
    pub(crate) policy: FailurePolicy,
    /// The queue of the limiter, if there is a handle on it.
    pub(crate) queue: Option<Arc<GuardedQueue>>,
    pub(crate) queue_time: QueueTime,
}

/// Decides one request by `call`, or by the failure policy.
pub(crate) async fn check_target(
    store: &dyn Store,
    local: &Arc<LocalStore>,
    request: &TargetRequest,
    call: impl Future<Output = Result<Decision>>,
) -> Result<Decision> {
    let key = &request.target.key;
    match over_store(store, key, request.policy.is_error(), call).await {
        Err(error) if error.is_unavailable() => {
            let requests = slice::from_ref(request);
            let mut decisions = without_store(local, requests, Purpose::Decide, error)?;
            // There is one for each request.
            Ok(decisions.swap_remove(0))
        }
        decided => decided,
    }
}

/// The decisions of a call, and what its caller is given beside them.
type Decided<G> = Result<(Vec<Decision>, G)>;

/// Decides one request by several limiters, or says what they would decide. `asking` makes `call`,
/// which asks the store; if the call fails, the failure policies decide. What `asking` returns
/// beside the decisions of the store is passed on.
///
/// If the future is dropped while a call is in flight whose charge can be given back, the call ends
/// all the same, and what it returns is dropped then.
pub(crate) async fn check_together<G: Send + 'static>(
    store: &Arc<dyn Store>,
    local: &Arc<LocalStore>,
    requests: &Arc<[TargetRequest]>,
    call: &Arc<Call>,
    asking: impl Future<Output = Decided<G>> + Send + 'static,
) -> Result<(Vec<Decision>, Option<G>)> {
    let is_error = requests.iter().any(|it| it.policy.is_error());
    let key = requests.first().map_or("", |first| &first.target.key);
    requests.iter().for_each(|it| local.note_use(&it.policy));
    let asking = async {
        match call.purpose {
            Purpose::Decide => to_its_end(store, local, requests, call, asking).await,
            Purpose::Peek | Purpose::Reset | Purpose::GiveBack { .. } => asking.await,
        }
    };
    let asking = over_store(&**store, key, is_error, asking);
    let answer = wherever_polled(store.call_deadline(), false, asking).await;
    match answer.unwrap_or_else(|moved| Err(moved.error(|| call.may_have_run()))) {
        Ok((decisions, beside)) => Ok((decisions, Some(beside))),
        Err(error) if error.is_unavailable() => {
            let decisions = without_store(local, requests, call.purpose, error)?;
            Ok((decisions, None))
        }
        Err(error) => Err(error),
    }
}

/// Deletes what a target has used, in the store and in this client's share, and returns whether
/// there was anything in the store.
pub(crate) async fn reset(store: &dyn Store, local: &LocalStore, target: Target) -> Result<bool> {
    let call = Arc::new(Call::reset(target));
    let was_used = match undo(store, &call).await {
        Ok(deleted) => deleted > 0,
        Err(Error::NotInitialized { .. }) => false,
        Err(error) => return Err(error),
    };
    // It fails where the share has nothing of this target, and then nothing is to be undone.
    let _ = local.memory().undo_call(&call);
    Ok(was_used)
}

/// Gives back what the store has charged a target of a policy, and returns how much.
pub(crate) async fn give_back(store: &dyn Store, target: Target, grant: &Grant) -> Result<u32> {
    // A grant of a failure policy was never charged in the store.
    if grant.origin != Origin::Store || !grant.is_of(&target.key) {
        return Ok(0);
    }
    undo(store, &Arc::new(Call::give_back(target, grant))).await
}

async fn undo(store: &dyn Store, call: &Arc<Call>) -> Result<u32> {
    let deadline = store.call_deadline();
    let key = call.limiters.first().map_or("", |target| &target.key);
    let asking = over_store(store, key, true, store.undo(call, deadline));
    let answer = wherever_polled(deadline, false, asking).await;
    answer.unwrap_or_else(|moved| Err(moved.error(|| call.may_have_run())))
}

/// Makes a call that ends also without its caller, once it may have been executed: what it grants
/// is counted toward this client's share, and goes back where nobody takes it over.
async fn to_its_end<G: Send + 'static>(
    store: &Arc<dyn Store>,
    local: &Arc<LocalStore>,
    requests: &Arc<[TargetRequest]>,
    call: &Arc<Call>,
    asking: impl Future<Output = Decided<G>> + Send + 'static,
) -> Decided<G> {
    let given_back = requests.iter().filter(|it| it.is_given_back());
    let mut in_flight = InFlight {
        longest_window: given_back.map(|it| it.quota().window).max(),
        asking: None,
        runtime: None,
        store: Arc::clone(store),
        call: Arc::clone(call),
    };
    if local.share().is_none() {
        in_flight.asking = Some(Box::pin(asking));
    } else {
        let (local, requests) = (Arc::clone(local), Arc::clone(requests));
        let mut counted = Box::pin(async move {
            let decided = asking.await?;
            if decided.0.iter().all(Decision::is_granted) {
                requests.iter().for_each(|request| request.count(&local));
            }
            Ok(decided)
        });
        let at_once = poll_fn(|context| Poll::Ready(counted.as_mut().poll(context)));
        if let Poll::Ready(decided) = at_once.await {
            return decided;
        }
        // What the store grants is counted when the answer arrives, though the caller may not be
        // polled.
        in_flight.asking = Some(Box::pin(in_task(counted, Arc::clone(call))));
    }
    poll_fn(|context| in_flight.poll(context)).await
}

/// Runs a call in a task, which ends if the future is dropped.
async fn in_task<G: Send + 'static>(
    asking: impl Future<Output = Decided<G>> + Send + 'static,
    call: Arc<Call>,
) -> Decided<G> {
    let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
    let mut task = JoinSet::new();
    task.spawn_on(asking, &runtime);
    match task.join_next().await {
        Some(Ok(decided)) => decided,
        // The runtime shuts down.
        Some(Err(_)) | None => Err(Error::unanswered(call.may_have_run())),
    }
}

/// A call that is in flight, and where its caller polls it.
struct InFlight<G: Send + 'static> {
    /// `None` once it has ended.
    asking: Option<BoxFuture<'static, Decided<G>>>,
    runtime: Option<Handle>,
    store: Arc<dyn Store>,
    call: Arc<Call>,
    /// Of the limiters whose charges can be given back.
    longest_window: Option<Duration>,
}

impl<G: Send + 'static> InFlight<G> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Decided<G>> {
        let Some(asking) = &mut self.asking else {
            return Poll::Pending;
        };
        let decided = asking.as_mut().poll(context);
        if decided.is_ready() {
            self.asking = None;
        } else if self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        decided
    }
}

impl<G: Send + 'static> Drop for InFlight<G> {
    fn drop(&mut self) {
        let (Some(asking), Some(runtime)) = (self.asking.take(), &self.runtime) else {
            return;
        };
        if self.call.give_up() {
            return;
        }
        let task = runtime.spawn(asking);
        let (call, longest_window) = (Arc::clone(&self.call), self.longest_window);
        self.store.give_back_in_background(Box::pin(async move {
            match task.await {
                // The charges go back to the store as the answer is dropped here.
                Ok(Ok(_)) => Duration::ZERO,
                Ok(Err(error)) if !error.is_unavailable() => Duration::ZERO,
                Ok(Err(_)) | Err(_) if call.may_have_run() => longest_window.unwrap_or_default(),
                Ok(Err(_)) | Err(_) => Duration::ZERO,
            }
        }));
    }
}

/// Decides a request without the store, or says what the decision would be: all grant it, or
/// nothing is charged.
fn without_store(
    local: &Arc<LocalStore>,
    requests: &[TargetRequest],
    purpose: Purpose,
    error: Error,
) -> Result<Vec<Decision>> {
    let mut shares = Vec::new();
    let mut is_denied = false;
    for request in requests {
        request.check_fits()?;
        match request.policy {
            FailurePolicy::Error | FailurePolicy::Wait => return Err(error),
            FailurePolicy::Deny => is_denied = true,
            FailurePolicy::Allow => {}
            FailurePolicy::Local(share) => match LocalTarget::new(request, share) {
                Some(target) => shares.push(target),
                None => is_denied = true,
            },
        }
    }
    let deny_all = || Ok(requests.iter().map(|it| denied(it.quota())).collect());
    if is_denied {
        return deny_all();
    }
    let mut local_decisions = if shares.is_empty() {
        Vec::new()
    } else {
        let targets = shares.iter().map(|it| it.target.clone());
        let costs = shares.iter().map(|it| it.cost);
        let call = Call::with_purpose(purpose, targets, costs);
        local.start_shrinking();
        match local.memory().check_call(&call)?.decisions(&call) {
            Ok(decisions) => decisions,
            // The request is for more than the share ever has.
            Err(Error::ExceedsLimit { .. }) => return deny_all(),
            Err(error) => return Err(error),
        }
    };
    let origin = match purpose {
        Purpose::Peek => Origin::Nowhere,
        Purpose::Decide | Purpose::Reset | Purpose::GiveBack { .. } => Origin::Local,
    };
    let are_granted = local_decisions.iter().all(Decision::is_granted);
    let mut local_decisions = local_decisions.drain(..).zip(shares);
    let decisions = requests.iter().filter_map(|request| match request.policy {
        FailurePolicy::Local(_) => {
            let (decision, share) = local_decisions.next()?;
            let decision = decision.divided_by(share.factor);
            Some(decision.by_failure_policy(origin))
        }
        _ if are_granted => Some(allowed(request.cost, request.quota())),
        _ => {
            let quota = request.quota();
            let denied = Denied::new(Duration::ZERO)
                .with_quota(quota)
                .with_remaining(quota.limit);
            Some(Decision::from(denied).by_failure_policy(Origin::Nowhere))
        }
    });
    Ok(decisions.collect())
}

impl TargetRequest {
    /// Counts what the store granted toward this client's share.
    fn count(&self, local: &Arc<LocalStore>) {
        let Some(share) = local.share() else {
            return;
        };
        match (self.target.model.share_of(share), &self.queue) {
            (ShareOf::Rate { client_id, set_up }, _) => {
                let now = Instant::now();
                local.count(&self.target.key, &client_id, set_up, self.cost, now);
            }
            (ShareOf::Unknown, Some(queue)) => queue.note_granted(self.cost),
            (ShareOf::Unknown, None) | (ShareOf::Costs, _) => {}
        }
    }

    /// Whether what it was charged can be given back.
    fn is_given_back(&self) -> bool {
        !self.target.model.properties().gives_turns
    }

    /// Refuses a cost that the store would refuse, as far as is known.
    fn check_fits(&self) -> Result<()> {
        let limit = self.quota().limit;
        if limit > 0 && u64::from(self.cost) > limit {
            return Err(Error::ExceedsLimit {
                name: self.target.key.to_string(),
                requested: self.cost,
                limit,
            });
        }
        Ok(())
    }

    /// The quota; zeros if unknown.
    fn quota(&self) -> Quota {
        self.target.model.quota()
    }
}

/// A target as the local limiter decides it.
struct LocalTarget {
    target: Target,
    cost: u32,
    /// By how much the request's cost is multiplied.
    factor: u32,
}

impl LocalTarget {
    /// `None` if the share is unknown, or never has as much as the request costs.
    fn new(request: &TargetRequest, share: LocalShare) -> Option<Self> {
        let (model, factor) = match request.target.model.share_of(share) {
            ShareOf::Costs => (Arc::clone(&request.target.model), share.clients().get()),
            ShareOf::Rate { client_id, set_up } => {
                let share = SharedRate::with_set_up(client_id, set_up);
                (Arc::new(share.into()), 1)
            }
            ShareOf::Unknown => return None,
        };
        Some(Self {
            target: Target {
                model,
                ..request.target.clone()
            },
            cost: request.cost.checked_mul(factor)?,
            factor,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;
    use crate::clock::Clock;
    use crate::store::memory::{MemoryClient, MemoryStore};

    #[tokio::test]
    async fn a_dropped_decision_ends_unless_its_call_may_have_been_executed() {
        let memory = MemoryClient::new(&MemoryStore::new(), Clock::server());
        let store: Arc<dyn Store> = Arc::new(memory);
        let share = LocalShare::one_of(std::num::NonZeroU32::MIN);
        for (policy, may_have_run) in [
            (FailurePolicy::Error, false),
            (FailurePolicy::Error, true),
            (FailurePolicy::Local(share), false),
            (FailurePolicy::Local(share), true),
        ] {
            let local = Arc::new(LocalStore::new());
            local.note_use(&policy);
            let call = Arc::new(Call::with_purpose(Purpose::Decide, [], []));
            let (connected, is_made) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
            let asking = {
                let (call, connected) = (Arc::clone(&call), Arc::clone(&connected));
                let is_made = Arc::clone(&is_made);
                async move {
                    connected.notified().await;
                    call.note_sent()?;
                    is_made.store(true, Ordering::Relaxed);
                    Ok((Vec::new(), ()))
                }
            };
            let requests = Arc::from([]);
            let mut deciding = Box::pin(to_its_end(&store, &local, &requests, &call, asking));
            let polled = poll_fn(|context| Poll::Ready(deciding.as_mut().poll(context)));
            assert!(polled.await.is_pending());
            if may_have_run {
                call.note_sent().unwrap();
            }
            drop(deciding);
            connected.notify_one();
            yield_now().await;
            assert_eq!(is_made.load(Ordering::Relaxed), may_have_run, "{policy:?}");
        }
    }
}
