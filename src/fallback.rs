//! Requests while the store is down: a [`FailurePolicy`](crate::FailurePolicy) decides those that
//! the breaker refuses, and those that the store could not answer.
//!
//! This layer is above the queues, which are the same for all policies: a plain request leaves its
//! queue when the breaker opens. A waiter keeps its place; when it joins, it states how it is
//! served in an outage.

mod guarded_queue;
mod local_limiter;
mod local_store;
mod recent_denials;
#[cfg(test)]
mod remembered_denial_histories;
#[cfg(test)]
mod remembered_denial_tests;
mod targets;
#[cfg(test)]
mod without_redis_tests;

use std::time::Duration;

pub(crate) use guarded_queue::GuardedQueue;
pub(crate) use local_store::LocalStore;
pub(crate) use recent_denials::RecentDenials;
pub(crate) use targets::{TargetRequest, check_target, check_together, give_back, reset};

use crate::breaker::{Patience, guarded};
use crate::decision::{Decision, Denied, Granted};
use crate::error::Result;
use crate::grant::Origin;
use crate::quota::Quota;
use crate::store::Store;

/// The `retry_after` of a request that was denied without the store. Attempts to connect are no
/// further apart.
const RETRY_AFTER: Duration = Duration::from_millis(400);

/// Makes a request to the store, unless the breaker refuses it.
async fn over_store<T>(
    store: &dyn Store,
    key: &str,
    is_error: bool,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let patience = match is_error {
        true => Patience::ResponseTimeout,
        false => Patience::None,
    };
    let breaker = match is_error && store.is_healthy() {
        true => None,
        false => store.breaker(key),
    };
    match breaker {
        Some(breaker) => guarded(&breaker, patience, call).await,
        None => named(store, key, call.await),
    }
}

/// The result of a call, whose error names the server that has the key.
fn named<T>(store: &dyn Store, key: &str, result: Result<T>) -> Result<T> {
    result.map_err(|error| match store.breaker(key) {
        Some(breaker) if error.is_unavailable() => breaker.name_server(error),
        _ => error,
    })
}

/// A denial when nothing else is known.
fn denied(quota: Quota) -> Decision {
    let denied = Denied::new(RETRY_AFTER).with_quota(quota);
    Decision::from(denied).by_failure_policy(Origin::Nowhere)
}

/// A grant that takes nothing.
fn allowed(cost: u32, quota: Quota) -> Decision {
    let left = quota.limit.saturating_sub(cost.into());
    let granted = Granted::new(cost).with_quota(quota).with_remaining(left);
    Decision::from(granted).by_failure_policy(Origin::Nowhere)
}
