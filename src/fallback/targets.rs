//! Decisions of the policies, one by one and several at once.

use std::future::poll_fn;
use std::slice;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Asked, GuardedQueue, LocalStore, allowed, asked, denied, over_store};
use crate::decision::{Decision, Denied};
use crate::error::{Error, Result};
use crate::event::QueueTime;
use crate::failure_policy::{FailurePolicy, LocalShare};
use crate::grant::Origin;
use crate::policies::algorithm::ShareOf;
use crate::policies::call::{Call, Purpose, Target};
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
    match over_store(store, key, request.policy.is_error(), call).await? {
        Asked::Answered(decision) => Ok(decision),
        Asked::Unanswered(error) => {
            let requests = slice::from_ref(request);
            let mut decisions = without_store(local, requests, Purpose::Decide, error)?;
            // There is one for each request.
            Ok(decisions.swap_remove(0))
        }
    }
}

/// Decides one request by several limiters, or says what they would decide: by `asking`, which makes `call`, or by their
/// failure policies.
pub(crate) async fn check_together(
    store: &dyn Store,
    local: &Arc<LocalStore>,
    requests: &Arc<[TargetRequest]>,
    call: &Arc<Call>,
    asking: impl Future<Output = Result<Vec<Decision>>> + Send + 'static,
) -> Result<Vec<Decision>> {
    let is_error = requests.iter().any(|it| it.policy.is_error());
    let key = requests.first().map_or("", |first| &first.target.key);
    requests.iter().for_each(|it| local.note_use(&it.policy));
    let asking = async {
        if local.share().is_some() && call.purpose == Purpose::Decide {
            counted(local, requests, call, asking).await
        } else {
            asking.await
        }
    };
    let asking = over_store(store, key, is_error, asking);
    let answer = wherever_polled(store.call_deadline(), false, asking).await;
    let answer = answer.unwrap_or_else(|moved| asked(Err(moved.error(|| call.may_have_run()))));
    match answer? {
        Asked::Answered(decisions) => Ok(decisions),
        Asked::Unanswered(error) => without_store(local, requests, call.purpose, error),
    }
}

/// Deletes what a target has used, in the store and in this client's share, and returns whether there was anything in the
/// store.
pub(crate) async fn reset(store: &dyn Store, local: &LocalStore, target: Target) -> Result<bool> {
    let (deadline, key) = (store.call_deadline(), Arc::clone(&target.key));
    let call = Arc::new(Call::reset(target));
    let asking = over_store(store, &key, true, store.reset(&call, deadline));
    let answer = wherever_polled(deadline, false, asking).await;
    let was_used = match answer.unwrap_or_else(|moved| Err(moved.error(|| call.may_have_run()))) {
        Ok(Asked::Answered(was_used)) => was_used,
        Err(Error::NotInitialized { .. }) => false,
        Ok(Asked::Unanswered(error)) | Err(error) => return Err(error),
    };
    // Where there is no share, or one of another kind, it has nothing of this target.
    let _ = local.memory().reset_call(&call);
    Ok(was_used)
}

/// Counts what the store grants. If it does not answer at once, a task counts it when the answer arrives, though the caller may
/// be gone, or not polled.
async fn counted(
    local: &Arc<LocalStore>,
    requests: &Arc<[TargetRequest]>,
    call: &Arc<Call>,
    asking: impl Future<Output = Result<Vec<Decision>>> + Send + 'static,
) -> Result<Vec<Decision>> {
    let (local, requests) = (Arc::clone(local), Arc::clone(requests));
    let mut counting = Box::pin(async move {
        let decisions = asking.await?;
        if decisions.iter().all(Decision::is_granted) {
            requests.iter().for_each(|request| request.count(&local));
        }
        Ok(decisions)
    });
    let at_once = poll_fn(|context| Poll::Ready(counting.as_mut().poll(context)));
    if let Poll::Ready(decisions) = at_once.await {
        return decisions;
    }
    let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
    let (task, call) = (runtime.spawn(counting), Arc::clone(call));
    let mut counting = Counting { task, call };
    match (&mut counting.task).await {
        Ok(decisions) => decisions,
        // The runtime shuts down.
        Err(_) => Err(Error::unanswered(counting.call.may_have_run())),
    }
}

/// The task of a joint decision. Without its caller it ends, unless the call may have been executed.
struct Counting {
    task: JoinHandle<Result<Vec<Decision>>>,
    call: Arc<Call>,
}

impl Drop for Counting {
    fn drop(&mut self) {
        if !self.call.may_have_run() {
            self.task.abort();
        }
    }
}

/// Decides a request without the store, or says what the decision would be: all grant it, or nothing is charged.
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
            // More than the share ever has.
            Err(Error::ExceedsLimit { .. }) => return deny_all(),
            Err(error) => return Err(error),
        }
    };
    let origin = match purpose {
        Purpose::Peek => Origin::Nowhere,
        Purpose::Decide | Purpose::Reset => Origin::Local,
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

    /// Zeros if unknown.
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
                (Arc::new(share) as _, 1)
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
