//! Where limiters are kept. A [`Store`] is one client's; a [`LimiterStore`] is one limiter of it, and each of its methods
//! is one atomic step.

pub(crate) mod acquire_call;
pub(crate) mod breaker;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

pub(crate) use acquire_call::AcquireCall;
use breaker::Breaker;

use crate::decision::Grant;
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Answer, Condition, Expiry, SetUp};
use crate::permit::Random;
use crate::policy;
use crate::policy::call::{Answers, Call, TargetRef};
use crate::rate::{Rate, ValidRate};

/// What happens to the permits in use when the rate changes.
#[doc(alias = "keepState")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PermitsInUse {
    /// They stay in use: the new rate leaves what it has beyond them. A change of the type resets all the same.
    Keep,
    /// They are forgotten: the whole new rate is there at once.
    Reset,
}

/// How long a limiter lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeToLive {
    /// There is no limiter of this name.
    Missing,
    /// It stays until somebody deletes it.
    Unlimited,
    /// It expires after this time, unless a call renews it.
    Remaining(std::time::Duration),
}

/// What an update does where there is no limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Create,
    DoNothing,
}

/// The limiters of one client.
#[async_trait]
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Whether the keys of a limiter must share a hash slot.
    fn is_cluster(&self) -> bool;

    /// The breaker in front of the server that has a key; `None` for a store that needs none.
    fn breaker(&self, _key: &str) -> Option<Arc<Breaker>> {
        None
    }

    /// Whether no breaker refuses a call or has anything to note about one: then none need be looked for.
    fn is_calm(&self) -> bool {
        true
    }

    /// The limiter with these keys, there or not. Sends nothing.
    fn limiter(&self, keys: Keys) -> Arc<dyn LimiterStore>;

    /// Decides a list of requests by limiters with other policies. Returns by `deadline`.
    async fn decide(&self, call: &Call, deadline: Instant) -> Result<Answers>;

    /// Decides one request by one of them, from a store that has the answer without waiting.
    fn decide_now(
        &self,
        _target: TargetRef<'_>,
        _cost: u32,
    ) -> Option<Result<policy::call::Answer>> {
        None
    }

    /// When a call that starts now returns at the latest.
    fn call_deadline(&self) -> Instant;
}

/// What a store does without a caller's runtime.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs once a background task is done: permits may be free.
pub(crate) type OnDone = Box<dyn FnOnce() + Send>;

/// One limiter of a [`Store`].
#[async_trait]
pub(crate) trait LimiterStore: fmt::Debug + Send + Sync {
    fn keys(&self) -> &Keys;

    fn is_cluster(&self) -> bool;

    /// When a call that starts now returns at the latest.
    fn call_deadline(&self) -> Instant;

    /// Whether other clients may wait for permits of the same limiter.
    fn may_have_peers(&self) -> bool {
        true
    }

    /// A driver asks for waiters of this client from now on, for a store that counts who waits.
    fn driver_started(&self) {}

    /// It has ended.
    fn driver_ended(&self) {}

    /// Decides a call. It returns by `deadline`. A call may be passed in again, after an error or at the same time, and is
    /// granted at most once.
    async fn acquire(&self, call: &AcquireCall, deadline: Instant) -> Result<Answer>;

    /// Decides one request, from a store that has the answer without waiting: the call's id and the answer.
    fn acquire_now(
        &self,
        _permits: u32,
        _set_up: Option<SetUp>,
    ) -> Option<Result<(Random, Answer)>> {
        None
    }

    /// Whether one request is granted, from a store that knows without waiting. The grant has no id to refund it by.
    fn try_acquire_now(&self, _permits: u32) -> Option<Result<bool>> {
        None
    }

    /// Gives back a grant that nobody holds, without a caller that waits for it and without a caller's runtime.
    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone);

    /// Gives back what a call took whose caller is gone, once no attempt of it can arrive any more; does nothing where
    /// somebody else claims the call's outcome before.
    fn reclaim(self: Arc<Self>, call: Arc<AcquireCall>, on_done: OnDone);

    /// Runs a task of the wait queue's that ends calls whose own runtime does not go on.
    fn run_in_background(&self, task: Task);

    async fn refund(&self, grant: &Grant) -> Result<u32>;
    async fn release(&self, permits: u32) -> Result<()>;
    async fn available_permits(&self) -> Result<i64>;

    async fn try_set_rate(&self, rate: ValidRate) -> Result<bool>;
    async fn set_rate(&self, rate: ValidRate) -> Result<()>;
    async fn update_rate(
        &self,
        rate: ValidRate,
        in_use: PermitsInUse,
        if_missing: IfMissing,
    ) -> Result<bool>;
    async fn config(&self) -> Result<Option<Rate>>;

    async fn exists(&self) -> Result<bool>;
    async fn delete(&self) -> Result<bool>;
    async fn expire(&self, expiry: Expiry, condition: Condition) -> Result<bool>;
    async fn clear_expire(&self) -> Result<bool>;
    async fn remain_time_to_live(&self) -> Result<TimeToLive>;
}
