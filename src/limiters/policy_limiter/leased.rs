//! A handle that takes permits or parts of windows ahead, and decides without a call.

use std::sync::Arc;
use std::time::Duration;

use super::PolicyLimiter;
use super::hot_limiters::HotLimiters;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::fallback::TargetRequest;
use crate::grant::Grant;
use crate::limiters::{Lease, RateLimiter};
use crate::permit::CallId;
use crate::policies::algorithm::{AnyModel, Policy};
use crate::policies::answer::Answer;
use crate::wait_queue::WindowLeases;
use crate::window::{Answer as Acquired, SetUp};

/// Why a limiter with a penalty has no leases.
pub(super) const LOCKS_OUT: &str =
    "has a penalty here, and a lease would go on granting while its target is locked out";

/// The leases of a handle and its clones.
#[derive(Clone)]
pub(super) enum Leases {
    /// Of a policy that has windows.
    Windows(Arc<WindowLeases>),
    /// Of a rate.
    Limiters(Arc<HotLimiters>),
}

impl<P: Policy> PolicyLimiter<P> {
    /// This limiter with leases: the client takes a part of a target's window from Redis ahead of the requests, as much as these
    /// wanted lately, and then grants them in this process without a call. Sends nothing. For a
    /// [`FixedWindow`](crate::FixedWindow), or a rate as [`AnyPolicy`](crate::AnyPolicy), whose leases are those of
    /// [`KeyedRateLimiter::leased`](crate::KeyedRateLimiter::leased).
    ///
    /// A lease is exact: each use falls into the window that has counted it, because a lease ends with its window, by this
    /// process's clock from before the call. It takes at most half of what is left, and at its end one call gives back what it
    /// did not use, to the same window. The calls are made in the background; a request that no lease can serve goes to Redis.
    /// Where Redis denies one, what is leased of its target goes back first, and Redis is asked again. A lease outlives an outage
    /// of Redis until it ends. A target that is asked for less than twice in the time of a lease leases nothing, and is forgotten
    /// when others come.
    ///
    /// This handle and its clones use the leases; [`charge`](Self::charge) and rules that decide together do not. They end when the last of these
    /// is dropped, when the policy [changes](Self::set_policy), for a target that is [reset](Self::reset) by such a handle, and
    /// when the client is [closed](crate::RedissonClient::close). The [remaining](crate::Granted::remaining) permits of a
    /// request that a lease granted are those left in Redis when the last lease was taken, and those left in leases. The guide to
    /// leases (`docs/leases.md`) says what they cost, and when not to use them.
    ///
    /// State: that of the policy, and while a call that gives something back may be sent again the string
    /// `{key}:CALL:call`, where `CALL` is an id.
    ///
    /// In memory every request is decided at once, so there are no leases.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let client = RedissonClient::in_memory(); // or RedissonClient::connect("redis://127.0.0.1:6379").await?
    /// let lease = Lease::up_to(Duration::from_millis(500));
    /// let per_minute = FixedWindow::new(1_000, Duration::from_secs(60));
    /// let limiter = client.policy_limiter(per_minute)?.with_prefix("orders:").leased(lease)?;
    /// for _ in 0..100 {
    ///     assert!(limiter.check("alice", 1).await?.is_granted());
    /// }
    /// assert_eq!(limiter.peek("alice", 1).await?.remaining(), 899);
    ///
    /// let bucket = client.policy_limiter(TokenBucket::per_second(10))?.leased(lease);
    /// assert!(matches!(bucket, Err(Error::NotLeasable { policy: "token_bucket", .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotLeasable`] for other policies, and for a limiter with a [penalty](Self::with_penalty).
    pub fn leased(self, lease: Lease) -> Result<Self> {
        if let Some(reason) = self.model().properties().not_leasable {
            return Err(self.not_leasable(reason));
        }
        if self.penalty.is_some() {
            return Err(self.not_leasable(LOCKS_OUT));
        }
        Ok(self.with_leases(lease))
    }

    /// The same, of a policy that has leases.
    pub(in crate::limiters) fn with_leases(self, lease: Lease) -> Self {
        let leases = match lease.longest() >= Duration::from_millis(1) {
            true if !self.is_shared() => Some(Leases::Windows(
                self.registry.window_leases(lease.longest()),
            )),
            true if !self.is_in_memory() => {
                let limiters = Arc::new(HotLimiters::new(lease));
                self.policies.end_when_replaced(&limiters);
                Some(Leases::Limiters(limiters))
            }
            _ => None,
        };
        Self { leases, ..self }
    }

    pub(super) fn not_leasable(&self, reason: &'static str) -> Error {
        Error::NotLeasable {
            policy: self.model().name(),
            reason,
        }
    }

    #[inline]
    pub(super) fn window_leases(&self) -> Option<&Arc<WindowLeases>> {
        match &self.leases {
            Some(Leases::Windows(leases)) => Some(leases),
            _ => None,
        }
    }

    #[inline]
    fn hot_limiters(&self) -> Option<&Arc<HotLimiters>> {
        match &self.leases {
            Some(Leases::Limiters(limiters)) => Some(limiters),
            _ => None,
        }
    }

    /// What the lease of a window grants. `None` also for a request that is refused: the store's path says why.
    #[inline]
    pub(super) fn take_leased(&self, key: &str, cost: u32) -> Option<Answer> {
        let leases = self.window_leases()?;
        self.of_leases(key, cost, |model, key| leases.take(model, key, cost))
    }

    /// What a lease of a key's limiter grants, with the settings that it gets.
    #[inline]
    pub(super) fn acquire_leased(
        &self,
        key: &str,
        cost: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        let Some(limiters) = self.hot_limiters() else {
            return Ok(None);
        };
        let name = self.validated_name(key, cost, set_up)?;
        limiters.acquire(&name, cost, limiters.set_up(set_up))
    }

    /// What a lease would grant.
    pub(super) fn peek_leased(&self, key: &str, cost: u32) -> Option<Result<Decision>> {
        match self.leases.as_ref()? {
            Leases::Windows(leases) => {
                let answer =
                    self.of_leases(key, cost, |model, key| leases.peek(model, key, cost))?;
                Some(Ok(answer.decided(Grant::of_nothing(cost))))
            }
            Leases::Limiters(limiters) => {
                let set_up = self.model().set_up();
                let name = self.validated_name(key, cost, set_up).ok()?;
                limiters.peek(&name, cost, limiters.set_up(set_up))
            }
        }
    }

    /// A key's limiter is asked for permits that no lease has. Returns the settings that it gets.
    pub(in crate::limiters) fn note_asked(
        &self,
        limiter: &RateLimiter,
        set_up: Option<SetUp>,
    ) -> Option<SetUp> {
        let Some(limiters) = self.hot_limiters() else {
            return set_up;
        };
        let set_up = limiters.set_up(set_up);
        limiters.ask(limiter, set_up);
        set_up
    }

    /// The settings that a key's limiter gets, by those of its policy.
    pub(in crate::limiters) fn settings_for_leases(
        &self,
    ) -> impl Fn(Option<SetUp>) -> Option<SetUp> + use<P> {
        let limiters = self.hot_limiters().cloned();
        move |set_up| match &limiters {
            Some(limiters) => limiters.set_up(set_up),
            None => set_up,
        }
    }

    fn of_leases(
        &self,
        key: &str,
        cost: u32,
        answer: impl FnOnce(&Arc<dyn AnyModel>, &str) -> Option<Answer>,
    ) -> Option<Answer> {
        self.registry.state.admit().ok()?;
        let key = self.mapped_name(key);
        self.policies.read(|in_force| {
            let model = in_force.algorithm();
            self.validated(&**model, &key, cost).ok()?;
            answer(model, &key)
        })
    }

    /// Decides by the store a request that no lease has granted.
    pub(super) async fn ask_beside(
        &self,
        leases: &WindowLeases,
        request: &TargetRequest,
    ) -> Result<Decision> {
        let target = &request.target;
        if let Some(calls) = leases.end_before(&target.model, &target.key) {
            calls.done().await;
        }
        let calls = leases.calls(&target.key);
        let decision = self.ask_store(request).await?;
        if decision.is_by_failure_policy() {
            return Ok(decision);
        }
        match leases.note(target, request.cost, &decision, calls) {
            None => Ok(decision),
            Some(calls) => {
                calls.done().await;
                self.ask_store(request).await
            }
        }
    }
}
