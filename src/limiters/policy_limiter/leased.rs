//! Leases of the limiters of keys: permits that are taken in advance, so that requests are decided
//! without a call.

use std::sync::Arc;
use std::time::Duration;

use super::PolicyLimiter;
use super::hot_limiters::HotLimiters;
use crate::decision::Decision;
use crate::error::Result;
use crate::limiters::{Lease, RateLimiter};
use crate::permit::CallId;
use crate::policies::any_policy::Policy;
use crate::queue::ReadSetUp;
use crate::rate::Rate;
use crate::window::{Acquired, SetUp};

impl PolicyLimiter<Rate> {
    pub(in crate::limiters) fn with_leases(mut self, lease: Lease) -> Self {
        let is_leased = lease.longest() >= Duration::from_millis(1) && !self.is_in_memory();
        let hot_limiters = is_leased.then(|| Arc::new(HotLimiters::new(lease)));
        if let Some(limiters) = &hot_limiters {
            self.policies.end_when_replaced(limiters);
        }
        self.hot_limiters = hot_limiters;
        self
    }

    /// A function that reads the settings which a key's limiter gets at the time of the call.
    pub(in crate::limiters) fn read_set_up(&self) -> ReadSetUp {
        let (policies, limiters) = (Arc::clone(&self.policies), self.hot_limiters.clone());
        Arc::new(move || {
            let set_up = policies.read(|in_force| in_force.algorithm.set_up());
            limiters.as_ref().map_or(set_up, |it| it.set_up(set_up))
        })
    }
}

impl<P: Policy> PolicyLimiter<P> {
    /// What a lease of a key's limiter grants, with the settings that it gets.
    #[inline]
    pub(super) fn acquire_leased(
        &self,
        key: &str,
        cost: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        let Some(limiters) = &self.hot_limiters else {
            return Ok(None);
        };
        let name = self.validated_name(key, cost, set_up)?;
        limiters.acquire(&name, cost, limiters.set_up(set_up))
    }

    /// What a lease of a key's limiter would grant.
    pub(super) fn peek_leased(&self, key: &str, cost: u32) -> Option<Result<Decision>> {
        let limiters = self.hot_limiters.as_ref()?;
        let set_up = self.model().set_up();
        let name = self.validated_name(key, cost, set_up).ok()?;
        limiters.peek(&name, cost, limiters.set_up(set_up))
    }

    /// Notes that a request of a key's limiter goes to Redis because no lease has its permits.
    /// Returns the settings that the limiter gets.
    pub(in crate::limiters) fn note_asked(
        &self,
        limiter: &RateLimiter,
        set_up: Option<SetUp>,
    ) -> Option<SetUp> {
        let Some(limiters) = &self.hot_limiters else {
            return set_up;
        };
        let set_up = limiters.set_up(set_up);
        limiters.ask(limiter, set_up);
        set_up
    }
}
