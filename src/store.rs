//! Where limiters live. Each method is one atomic step on one limiter.

pub(crate) mod memory;
pub(crate) mod redis;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::decision::Grant;
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Answer, Condition, Expiry, Requests};
use crate::permit::Random;
use crate::policy::call::{Answers, Call};
use crate::rate::{Rate, ValidRate};

/// What happens to the permits in use when the rate changes.
#[doc(alias = "keepState")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
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
    /// It goes away after this time, unless a call renews it.
    Remaining(std::time::Duration),
}

/// What an update does where there is no limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Create,
    DoNothing,
}

#[async_trait]
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Whether the keys of a limiter must share a hash slot.
    fn is_cluster(&self) -> bool;

    /// The same backend for one limiter alone, where that spares each call to find it.
    fn for_limiter(&self, _keys: &Keys) -> Option<Arc<dyn Store>> {
        None
    }

    /// Decides a list of requests. `random` names the call; `summed_rate`, here and below, is the rate at which the
    /// caller had the live grants summed lately.
    async fn acquire(
        &self,
        keys: &Keys,
        random: Random,
        requests: Requests,
        summed_rate: Option<i64>,
    ) -> Result<Answer>;
    /// One request's answer and the call's name, from a backend that has them without waiting for anybody.
    fn acquire_now(&self, _keys: &Keys, _permits: u32) -> Option<Result<(Random, Answer)>> {
        None
    }
    /// The same for one who asks for no name, and so cannot refund; what is left may then be taken as an offer.
    fn acquire_and_offer(&self, _keys: &Keys, _permits: u32) -> Option<Result<Answer>> {
        None
    }
    /// Whether one request is granted, where an offer tells.
    fn take_offered(&self, _permits: u32) -> Option<bool> {
        None
    }

    /// Decides a list of requests by limiters with other policies.
    async fn decide(&self, call: &Call) -> Result<Answers>;
    /// The same, from a backend that has the answers without waiting for anybody.
    fn decide_now(&self, _call: &Call) -> Option<Result<Answers>> {
        None
    }

    async fn refund(&self, keys: &Keys, grant: &Grant, summed_rate: Option<i64>) -> Result<u32>;
    async fn release(&self, keys: &Keys, permits: u32, summed_rate: Option<i64>) -> Result<()>;
    async fn available_permits(&self, keys: &Keys) -> Result<i64>;

    async fn try_set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<bool>;
    async fn set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<()>;
    async fn update_rate(
        &self,
        keys: &Keys,
        rate: ValidRate,
        state: State,
        if_missing: IfMissing,
    ) -> Result<bool>;
    async fn config(&self, keys: &Keys) -> Result<Option<Rate>>;

    async fn exists(&self, keys: &Keys) -> Result<bool>;
    async fn delete(&self, keys: &Keys) -> Result<bool>;
    async fn expire(&self, keys: &Keys, expiry: Expiry, condition: Condition) -> Result<bool>;
    async fn clear_expire(&self, keys: &Keys) -> Result<bool>;
    async fn remain_time_to_live(&self, keys: &Keys) -> Result<TimeToLive>;
}
