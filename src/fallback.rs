//! Requests while the store is down: a [`FailurePolicy`](crate::FailurePolicy) decides those that the breaker refuses,
//! and those that the store could not answer.
//!
//! This layer is above the queues, which are the same for all policies: a request leaves its queue when the breaker
//! opens, and a waiter returns to its place.

mod guarded_queue;
mod local_limiter;
mod recent_denials;
mod recent_grants;
#[cfg(test)]
mod remembered_denial_tests;
mod targets;
#[cfg(test)]
mod without_redis_tests;

use std::time::Duration;

pub(crate) use guarded_queue::GuardedQueue;
pub(crate) use recent_denials::RecentDenials;
pub(crate) use targets::{Place, check_target, check_together};

use crate::decision::{Decision, Denied, Granted};
use crate::error::{Error, Result};
use crate::failure_policy::FailurePolicy;
use crate::grant::Origin;
use crate::store::Store;
use crate::store::breaker::{Patience, guarded};

/// When a request that was denied without the store is worth another try: no two attempts to connect are further apart.
const RETRY_AFTER: Duration = Duration::from_millis(400);

/// How a request to the store ended.
enum Outcome<T> {
    Answered(T),
    /// Why the policy decides.
    Unanswered(Error),
}

/// Makes a request to the store, unless the breaker refuses it. `call` gets whether it is the breaker's probe.
async fn over_store<T, F>(
    store: &dyn Store,
    key: &str,
    policy: FailurePolicy,
    call: impl FnOnce(bool) -> F,
) -> Result<Outcome<T>>
where
    F: Future<Output = Result<T>>,
{
    let is_error = policy == FailurePolicy::Error;
    if is_error && store.is_healthy() {
        return outcome(call(false).await);
    }
    let Some(breaker) = store.breaker(key) else {
        return outcome(call(false).await);
    };
    let result = if is_error {
        guarded(&breaker, Patience::ResponseTimeout, call).await
    } else {
        let until_opened = async |is_probe| {
            tokio::select! {
                biased;
                result = call(is_probe) => result,
                cause = breaker.opened() => Err(cause),
            }
        };
        guarded(&breaker, Patience::None, until_opened).await
    };
    outcome(result)
}

fn outcome<T>(result: Result<T>) -> Result<Outcome<T>> {
    match result {
        Ok(answer) => Ok(Outcome::Answered(answer)),
        Err(error) if error.is_unavailable() => Ok(Outcome::Unanswered(error)),
        Err(error) => Err(error),
    }
}

/// Waits until the store may be asked again.
async fn recovered(store: &dyn Store, key: &str) {
    /// A breaker that is not open may admit a call that fails at once.
    const PAUSE: Duration = Duration::from_millis(20);
    /// On a cluster another node may have the key by then, with another breaker.
    const INTERVAL: Duration = Duration::from_millis(250);
    loop {
        let Some(breaker) = store.breaker(key) else {
            return tokio::time::sleep(PAUSE).await;
        };
        if breaker.is_healthy() {
            tokio::time::sleep(PAUSE).await;
        }
        if tokio::time::timeout(INTERVAL, breaker.recovered())
            .await
            .is_ok()
        {
            return;
        }
    }
}

/// A denial when nothing else is known. `limit` is 0 if unknown.
fn denied(limit: u64) -> Decision {
    let denied = Denied::new(RETRY_AFTER).with_limit(limit);
    Decision::from(denied).by_failure_policy(Origin::Nowhere)
}

/// A grant that takes nothing.
fn allowed(cost: u32, limit: u64) -> Decision {
    let granted = Granted::new(cost).with_limit(limit);
    Decision::from(granted).by_failure_policy(Origin::Nowhere)
}
