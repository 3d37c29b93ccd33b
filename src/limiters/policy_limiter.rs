//! The handle that applies a policy to targets.

mod combining;
mod hot_limiters;
mod leased;
mod policies;
mod settings;

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::sync::Arc;

use super::charge::{self, Charge, check_cost};
use super::chargeable::sealed::{self, INTERNAL, Internal};
use super::joint::By;
use super::limiter::{at_once, settle_by_check};
use super::target_name::target_name;
use super::targets::{Names, Targets};
use super::turn::wait_for_turn;
use super::{Chargeable, Limiter, RateLimiter, Registry};
use crate::batch::Batcher;
use crate::box_future::BoxFuture;
use crate::decision::{Decision, decision_alone};
use crate::error::{Error, Result};
use crate::event::{QueueTime, Reported};
use crate::fallback::{TargetRequest, check_target, reset};
use crate::grant::Grant;
use crate::keys::check_not_empty;
use crate::limiter_options::LimiterOptions;
use crate::permit::CallId;
use crate::policies::algorithm::Algorithm;
use crate::policies::answer::TargetAnswer;
use crate::policies::any_policy::Policy;
use crate::policies::call::{Target, TargetRef};
use crate::store::memory::MemoryClient;
use crate::window::{Acquired, SetUp};
use combining::TargetCalls;
use hot_limiters::HotLimiters;
use policies::Policies;

/// A policy applied to any number of targets: from
/// [`RedissonClient::policy_limiter`](crate::RedissonClient::policy_limiter). Cheap to clone;
/// clones share the policy.
///
/// The name of a target in the store is the [prefix](Self::with_prefix) followed by the key, after
/// the name mapper. Further keys of a target contain its name in braces, so that a cluster keeps
/// them in one slot: `{alice}-st` belongs to `alice`. If the name contains a brace itself, it is
/// used without further braces: `{shop}:alice-st` belongs to `{shop}:alice`.
///
/// # Keys from outside
/// A key may be any text, such as a name that a user chose: no two keys share state or can damage
/// each other's. Ordinary keys are used in the store as they are. A brace is escaped as `%7B` or
/// `%7D`, and `%7B` itself as `%257B`. In a name with a hash tag, a part of the key that looks like
/// the suffix of a further key is followed by a `%`: `:value` and `:permits` before a `:` or at the
/// end, and `-st`, `-lock`, `-window`, `-periods` and `-` with 13 or more digits at the end.
///
/// An empty key is refused, with [`Error::InvalidName`], unless it is
/// [accepted](Self::accept_empty_key): behind a prefix, all requests whose key is missing would
/// share one target.
///
/// One hash tag is not escaped: the one at the start of a key of a limiter without a prefix, as in
/// `{shop}:alice`. If users choose the first character of a key, they choose its slot on a cluster;
/// use a prefix in that case.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client
///     .policy_limiter(FixedWindow::new(1, Duration::from_secs(1)))?
///     .with_penalty(Duration::from_secs(60))?;
/// assert!(limiter.check("rate:limit:mallory:/login", 1).await?.is_granted());
/// assert!(!limiter.check("rate:limit:mallory:/login", 1).await?.is_granted());
/// tokio::time::advance(Duration::from_secs(30)).await;
/// assert!(!limiter.check("rate:limit:mallory:/login", 1).await?.is_granted()); // locked out
/// assert!(limiter.check("rate:limit:alice:/login", 1).await?.is_granted());
/// # Ok(()) }
/// ```
pub struct PolicyLimiter<P> {
    pub(super) registry: Arc<Registry>,
    policies: Arc<Policies<P>>,
    batcher: Arc<Batcher<TargetCalls>>,
    prefix: Arc<str>,
    name: Option<Arc<str>>,
    accepts_empty_key: bool,
    penalty: Option<i64>,
    options: LimiterOptions,
    /// `None` without leases.
    hot_limiters: Option<Arc<HotLimiters>>,
}

impl<P: Policy> PolicyLimiter<P> {
    pub(crate) fn new(registry: Arc<Registry>, policy: P) -> Result<Self> {
        let algorithm = policy.clone().into().model(&registry.client_id)?;
        Ok(Self::by(registry, policy, algorithm))
    }

    /// A limiter that decides by this algorithm.
    pub(super) fn by(registry: Arc<Registry>, policy: P, algorithm: Algorithm) -> Self {
        Self {
            batcher: combining::batcher(&registry.store),
            options: registry.options.clone(),
            registry,
            policies: Arc::new(Policies::new(policy, algorithm)),
            prefix: "".into(),
            name: None,
            accepts_empty_key: false,
            penalty: None,
            hot_limiters: None,
        }
    }

    /// Decides a request of `cost` (at least 1) for the target `key`, and charges the target if it
    /// is granted. Writes the keys that the policy documents.
    ///
    /// A granted request may proceed when this returns: a [`LeakyBucket`](crate::LeakyBucket) makes
    /// it wait for its turn first, as long as the bucket's capacity allows. The
    /// [`delay`](crate::Granted::delay) of the returned decision is zero.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// tokio::time::advance(Duration::from_secs(20)).await;
    /// let denied = limiter.check("user:123", 1).await?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(40)));
    /// let too_much = limiter.check("user:123", 2).await;
    /// assert!(matches!(too_much, Err(Error::ExceedsLimit { limit: 1, .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a cost of 0, or above 500 at a
    /// [`SlidingWindowLog`](crate::SlidingWindowLog), [`Error::ExceedsLimit`] for one that could
    /// never be granted, [`Error::InvalidName`] for a key that cannot be used, [`Error::BadState`]
    /// if the keys hold something else, such as another kind of limiter as far as types and fields
    /// show it, and the errors that [`RateLimiter`](crate::RateLimiter) lists; [`Error::NoRuntime`]
    /// also in memory, if the request has to wait for its turn.
    ///
    /// # Cancel safety
    /// If a call is dropped in flight, its charge is given back in the background once the answer
    /// is there, as by [`Limiter::refund`](crate::Limiter::refund); if the answer is lost, the
    /// charge stays. A call that is dropped while it waits for its turn stays charged: its place in
    /// the [`LeakyBucket`](crate::LeakyBucket) is taken until it has flowed out, because those
    /// behind it already know when they may proceed.
    pub async fn check(&self, key: &str, cost: u32) -> Result<Decision> {
        let reported = self.reported(cost);
        let answered = self.answered_now(key, cost);
        if reported.is_off()
            && let Some(Ok(answered)) = &answered
            && answered.has_no_turn()
        {
            return Ok(answered.decision());
        }
        let queue_time = reported.queue_time();
        let decided = async {
            let mut decision = self.decide(answered, key, cost, &queue_time).await?;
            queue_time.is_over();
            wait_for_turn(slice::from_mut(&mut decision)).await?;
            Ok(decision)
        };
        reported.ended(decided.await)
    }

    /// Decides as [`check`](Self::check), and returns at once: a granted request may proceed after
    /// its [`delay`](crate::Granted::delay), and the caller waits for that, for example with a
    /// queue of delayed jobs. Otherwise the pace is broken. Without a
    /// [`LeakyBucket`](crate::LeakyBucket) there is no delay, and this is the same as `check`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let slow = LeakyBucket::new(1, Duration::from_millis(100)).with_capacity(2);
    /// let limiter = RedissonClient::in_memory().policy_limiter(slow)?;
    /// let mut delays = Vec::new();
    /// while let Decision::Granted(granted) = limiter.check_without_waiting("orders:api", 1).await? {
    ///     delays.push(granted.delay.as_millis());
    /// }
    /// assert_eq!(delays, [0, 100, 200]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    pub async fn check_without_waiting(&self, key: &str, cost: u32) -> Result<Decision> {
        let reported = self.reported(cost);
        let answered = self.answered_now(key, cost);
        if reported.is_off()
            && let Some(Ok(answered)) = &answered
        {
            return Ok(answered.decision());
        }
        let queue_time = reported.queue_time();
        reported.ended(self.decide(answered, key, cost, &queue_time).await)
    }

    /// A request that starts.
    #[inline]
    pub(super) fn reported(&self, cost: u32) -> Reported<'_> {
        self.registry.state.events.request(cost, || self.label())
    }

    async fn decide(
        &self,
        answered: Option<Result<TargetAnswer>>,
        key: &str,
        cost: u32,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        match answered {
            Some(answered) => answered.map(|it| it.decision()),
            // In a box of its own, so that a request which is decided at once has a small future.
            None => Box::pin(self.ask(key, cost, queue_time)).await,
        }
    }

    async fn ask(&self, key: &str, cost: u32, queue_time: &QueueTime) -> Result<Decision> {
        self.registry.state.admit()?;
        let model = self.model();
        if let Some(set_up) = model.set_up() {
            return self.check_shared(key, cost, Some(set_up), queue_time).await;
        }
        let mut request = self.validated_request(model, key, cost)?;
        request.queue_time = queue_time.clone();
        // Boxed, because the future of the failure policy has room for it several times.
        let asking = self.batcher.ask(&request.target.key, &request);
        let asking = Box::pin(async { Ok(asking.await?.decision) });
        let store = &*self.registry.store;
        check_target(store, &self.registry.local_store, &request, asking).await
    }

    /// Decides a request by the RRateLimiter of a key, with the settings that it gets.
    pub(super) async fn check_shared(
        &self,
        key: &str,
        cost: u32,
        set_up: Option<SetUp>,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        if let Some((id, answer)) = self.acquire_now(key, cost, set_up)? {
            return decision_alone(key, id, cost, &answer);
        }
        self.ask_shared(key, cost, set_up, queue_time).await
    }

    /// Decides a request that [`acquire_now`](Self::acquire_now) has not answered, by a handle of
    /// the limiter.
    pub(super) async fn ask_shared(
        &self,
        key: &str,
        cost: u32,
        set_up: Option<SetUp>,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        self.registry.state.admit()?;
        let limiter = self.rate_limiter(&self.validated_name(key, cost, set_up)?);
        let set_up = self.note_asked(&limiter, set_up);
        limiter.decide(cost, set_up, queue_time).await
    }

    /// The call's id and its answer to the same request for no more than the rate, if the store is
    /// in memory and nobody waits, as a queue for each request would cost more; or if a lease has
    /// the permits.
    #[inline]
    pub(super) fn acquire_now(
        &self,
        key: &str,
        cost: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        let Some(memory) = self.registry.store.in_memory() else {
            return self.acquire_leased(key, cost, set_up);
        };
        self.registry.state.admit()?;
        let name = self.validated_name(key, cost, set_up)?;
        memory.acquire_now(&name, &self.registry.client_id, cost, set_up)
    }

    pub(super) fn validated_name<'a>(
        &self,
        key: &'a str,
        cost: u32,
        set_up: Option<SetUp>,
    ) -> Result<Cow<'a, str>> {
        let name = self.mapped_name(key);
        let replacing = set_up.and_then(SetUp::replacing);
        check_cost(cost, replacing.map(|it| it.settings.rate), &name)?;
        check_not_empty(&name)?;
        Ok(name)
    }

    /// The RRateLimiter of a name that the name mapper has mapped already.
    pub(super) fn rate_limiter(&self, mapped: &str) -> RateLimiter {
        let limiter = self.registry.rate_limiter(mapped);
        let limiter = limiter.with_options(self.options.clone());
        limiter.labelled(Arc::clone(self.label()))
    }

    /// A request of `cost` (at least 1) for the target `key`, as one part of a decision by several
    /// limiters: an argument of [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    /// Sends nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(TokenBucket::per_second(1))?;
    /// let per_address = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(60)))?;
    /// let charges = [per_user.charge("user:123", 1)?, per_address.charge("address:192.0.2.1", 1)?];
    /// assert!(client.check_all(charges).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Self::check) for invalid arguments.
    pub fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        self.charge_by(self.model(), key, cost)
    }

    pub(super) fn charge_by(&self, model: Arc<Algorithm>, key: &str, cost: u32) -> Result<Charge> {
        let request = self.validated_request(model, key, cost)?;
        Ok(Charge::new(Arc::clone(&self.registry.store), request))
    }

    /// Returns what [`check_without_waiting`](Self::check_without_waiting) would return now, and
    /// charges nothing. Changes nothing in Redis: a denial sets no [penalty](Self::with_penalty),
    /// and no time to live changes.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(3, Duration::from_secs(60)))?;
    /// assert!(limiter.check("user:123", 2).await?.is_granted());
    /// assert!(limiter.peek("user:123", 1).await?.is_granted());
    /// assert!(limiter.peek("user:123", 1).await?.is_granted()); // still
    /// assert_eq!(limiter.peek("user:123", 2).await?.retry_after(), Some(Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check). The [`FailurePolicy`](crate::FailurePolicy) applies as there.
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    pub async fn peek(&self, key: &str, cost: u32) -> Result<Decision> {
        let Registry {
            state,
            store,
            local_store,
            ..
        } = &*self.registry;
        state.admit()?;
        if let Some(decided) = self.peek_leased(key, cost) {
            return decided;
        }
        charge::peek(store, local_store, self.charge(key, cost)?).await
    }

    /// Deletes what the target `key` has used, and lifts its penalty: the next request finds the
    /// target as if it had never made one. Returns whether there was anything to delete.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, minute))?.with_penalty(10 * minute)?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// assert!(!limiter.check("user:123", 1).await?.is_granted()); // and locked out
    /// assert!(limiter.reset("user:123").await?);
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// assert!(!limiter.reset("user:456").await?); // it has made no request
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidName`] for a key that cannot be used, [`Error::BadState`] if the keys hold
    /// something else, and the errors that [`RateLimiter`](crate::RateLimiter) lists. No failure
    /// policy applies.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have reset the target.
    pub async fn reset(&self, key: &str) -> Result<bool> {
        let request = self.validated_request(self.model(), key, 1)?;
        if request.target.model.is_rate() {
            return self.rate_limiter(&request.target.key).reset().await;
        }
        let Registry {
            store, local_store, ..
        } = &*self.registry;
        reset(&**store, local_store, request.target).await
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> P {
        self.policies.read(|in_force| in_force.policy.clone())
    }

    /// Changes the policy, for all clones of this limiter, while requests come in. What the targets
    /// have used still counts, as the policy's documentation describes.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// limiter.set_policy(FixedWindow::new(3, Duration::from_secs(60)))?;
    /// assert_eq!(limiter.check("user:123", 1).await?.remaining(), 1); // one of three was used
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a number is out of its range, or if an
    /// [`AnyPolicy`](crate::AnyPolicy) has another algorithm: the targets hold the state of the one
    /// before, so use a new limiter, with another prefix. The old policy stays.
    pub fn set_policy(&self, policy: P) -> Result<()> {
        let algorithm = policy.clone().into().model(&self.registry.client_id)?;
        self.replace_policy(policy, algorithm)
    }

    pub(super) fn replace_policy(&self, policy: P, algorithm: Algorithm) -> Result<()> {
        self.policies.replace(policy, algorithm)
    }

    /// This limiter, but its denials lock nobody out. It shares no calls with this one: a call has
    /// one penalty.
    fn without_penalty(&self) -> Self {
        Self {
            batcher: combining::batcher(&self.registry.store),
            penalty: None,
            ..self.clone()
        }
    }

    /// What `read` takes from the algorithm in force.
    pub(super) fn of_algorithm<T>(&self, read: impl FnOnce(&Algorithm) -> T) -> T {
        self.policies.read(|in_force| read(&in_force.algorithm))
    }

    /// A key's name, before the name mapper.
    fn unmapped_name<'a>(&self, key: &'a str) -> Cow<'a, str> {
        let mapper = self.registry.name_mapper.as_ref();
        let maps_to_tag = mapper.map(|map| |name: &str| map(name).contains('{'));
        target_name(&self.prefix, key, maps_to_tag)
    }

    /// A key's name. That of an empty key is empty, so that it is refused, unless it is
    /// [accepted](Self::accept_empty_key).
    pub(super) fn mapped_name<'a>(&self, key: &'a str) -> Cow<'a, str> {
        if key.is_empty() && !self.accepts_empty_key {
            return Cow::Borrowed("");
        }
        self.registry.mapped_name(self.unmapped_name(key))
    }

    /// What a request is for, once it is found good.
    #[inline(always)] // it is small beside the call
    fn validated<'a>(
        &self,
        model: &'a Algorithm,
        key: &'a str,
        cost: u32,
    ) -> Result<TargetRef<'a>> {
        check_cost(cost, model.limit(), key)?;
        if cost > model.properties().largest_cost {
            return Err(Error::InvalidArgument {
                argument: "cost",
                reason: "must be at most 500 for a SlidingWindowLog: each unit is a member",
            });
        }
        let target = TargetRef {
            model,
            key,
            penalty: self.penalty,
        };
        target.validate(self.registry.store.is_cluster())?;
        Ok(target)
    }

    /// The algorithm in force.
    fn model(&self) -> Arc<Algorithm> {
        self.policies.read(|it| Arc::clone(&it.algorithm))
    }

    /// The request to make, once it is found good.
    fn validated_request(
        &self,
        model: Arc<Algorithm>,
        key: &str,
        cost: u32,
    ) -> Result<TargetRequest> {
        let key = self.mapped_name(key);
        self.validated(&model, &key, cost)?;
        Ok(TargetRequest {
            target: Target {
                model,
                key: (&*key).into(),
                penalty: self.penalty,
            },
            name: Arc::clone(self.label()),
            cost,
            policy: self.options.policy().clone(),
            queue: None,
            queue_time: QueueTime::default(),
        })
    }

    /// The answer of a store in memory to a request that needs no queue: it waits for nobody.
    #[inline]
    fn answered_now(&self, key: &str, cost: u32) -> Option<Result<TargetAnswer>> {
        let memory = self.registry.store.in_memory()?;
        self.policies.read(|in_force| {
            let model = &in_force.algorithm;
            let is_shared = model.is_rate();
            (!is_shared).then(|| self.answer_in(memory, model, key, cost))
        })
    }

    fn answer_in(
        &self,
        memory: &MemoryClient,
        model: &Algorithm,
        key: &str,
        cost: u32,
    ) -> Result<TargetAnswer> {
        self.registry.state.admit()?;
        let key = self.mapped_name(key);
        let target = self.validated(model, &key, cost)?;
        memory.check_one(target, cost)
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.registry.store.in_memory().is_some()
    }

    /// Whether the policy is a rate that others share: each key has an RRateLimiter.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.policies.read(|it| it.algorithm.is_rate())
    }
}

impl<P: Policy> Limiter for PolicyLimiter<P> {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn check<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(Self::check(self, key, cost))
    }

    fn check_without_waiting<'a>(
        &'a self,
        key: &'a str,
        cost: u32,
    ) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(Self::check_without_waiting(self, key, cost))
    }

    fn check_now(&self, key: &str, cost: u32) -> Option<Result<Decision>> {
        let gives_turns = sealed::Chargeable::gives_turns(self, INTERNAL);
        (self.is_in_memory() && !gives_turns).then(|| at_once(Self::check(self, key, cost)))?
    }

    fn refund<'a>(&'a self, key: &'a str, grant: Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            let request = self.validated_request(self.model(), key, 1)?;
            By::target(&request).refund(&self.registry, grant).await
        })
    }

    fn refund_in_background(&self, key: &str, grant: Grant) {
        if let Ok(request) = self.validated_request(self.model(), key, 1) {
            By::target(&request).refund_in_background(&self.registry, grant);
        }
    }

    fn settle<'a>(&'a self, key: &'a str, grant: Grant, cost: u32) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let model = self.model();
            if model.is_rate() {
                // The limiter may be missing while nothing is in use.
                let limiter = self.rate_limiter(&self.mapped_name(key));
                let limiter = limiter.with_set_up(model.set_up());
                return limiter.settle(grant, cost).await;
            }
            // The request is done: what is missing is taken, nobody waits for its turn or is locked
            // out for it, and it is no further request for the events.
            let largest = model.properties().largest_cost;
            let limiter = &self.without_penalty();
            let take = |cost| async move {
                let answered = limiter.answered_now(key, cost);
                let queue_time = QueueTime::default();
                limiter.decide(answered, key, cost, &queue_time).await
            };
            settle_by_check(limiter, key, grant, cost, largest, take).await
        })
    }
}

impl<P: Policy> Chargeable for PolicyLimiter<P> {
    fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        Self::charge(self, key, cost)
    }
}

impl<P: Policy> sealed::Chargeable for PolicyLimiter<P> {
    fn rate_limiter(&self, key: &str, _: Internal) -> Option<RateLimiter> {
        let limiter = || Self::rate_limiter(self, &self.mapped_name(key));
        self.is_shared().then(limiter)
    }

    fn gives_turns(&self, _: Internal) -> bool {
        self.policies
            .read(|it| it.algorithm.properties().gives_turns)
    }

    fn targets(&self, _: Internal) -> Targets {
        Targets {
            names: Names::BeginWith(self.registry.mapped_name(&*self.prefix).into_owned()),
            algorithm: self.model().name(),
        }
    }
}

impl<P> Clone for PolicyLimiter<P> {
    fn clone(&self) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
            policies: Arc::clone(&self.policies),
            batcher: Arc::clone(&self.batcher),
            prefix: Arc::clone(&self.prefix),
            name: self.name.clone(),
            accepts_empty_key: self.accepts_empty_key,
            penalty: self.penalty,
            options: self.options.clone(),
            hot_limiters: self.hot_limiters.clone(),
        }
    }
}

impl<P: Policy> fmt::Debug for PolicyLimiter<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyLimiter")
            .field("policy", &self.policy())
            .field("name", &self.name())
            .field("prefix", &self.prefix)
            .field("penalty_ms", &self.penalty)
            .field("client", &self.registry)
            .finish_non_exhaustive()
    }
}
