//! The handle on one limiter: what it holds, and what its methods in the other files need.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Result, at_least_one};
use crate::event::{QueueTime, Reported};
use crate::fallback::{GuardedQueue, TargetRequest};
use crate::leases::LeaseHold;
use crate::limiter_options::LimiterOptions;
use crate::limiters::Charge;
use crate::policies::call::Target;
use crate::policies::shared_rate::SharedRate;
use crate::store::LimiterStore;
use crate::window::SetUp;

/// Redisson's rate limiter: the permits of a sliding window, shared by everyone who names the same
/// limiter. From [`RedissonClient::rate_limiter`](crate::RedissonClient::rate_limiter); cheap to
/// clone.
///
/// Permits are 1 to `u32::MAX`. Redisson's methods without a number, such as `acquire()`, are
/// `acquire(1)` here: Rust has no overloads, and a second name for each method would add nothing.
/// Durations are whole milliseconds, at least 1, unless the method says otherwise.
///
/// A limiter in Redis and one in memory are both of this type, so a test can pass a limiter [in
/// memory](crate::RedissonClient::in_memory) to code that uses one in Redis. Code for limiters of
/// any kind takes a [`Limiter`](crate::Limiter).
///
/// # State
/// The hash `name` holds the rate; `{name}:value`, a string, the permits left; `{name}:permits`, a
/// sorted set, a member for each grant. With a rate [per client](crate::RateType::PerClient), the
/// latter two end in `:` and the [client's id](crate::RedissonClient::id). The names and contents
/// are Redisson's.
///
/// # Errors
/// Every method that calls the store can fail with
/// [`Error::InvalidName`](crate::Error::InvalidName) (the name cannot be used),
/// [`Error::StoreUnavailable`](crate::Error::StoreUnavailable),
/// [`Error::Indeterminate`](crate::Error::Indeterminate) (sent, but not answered),
/// [`Error::AuthenticationFailed`](crate::Error::AuthenticationFailed),
/// [`Error::PermissionDenied`](crate::Error::PermissionDenied),
/// [`Error::BadState`](crate::Error::BadState) (the keys hold something else),
/// [`Error::NoRuntime`](crate::Error::NoRuntime) and [`Error::Redis`](crate::Error::Redis). Each
/// method lists the errors that it adds.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
/// assert!(limiter.try_acquire(5).await?);
/// assert!(!limiter.try_acquire(1).await?);
/// limiter.acquire(1).await?; // waits until the first permits come back
/// assert_eq!(limiter.available_permits().await?, 4);
/// # Ok(()) }
/// ```
#[doc(alias = "RRateLimiter")]
#[derive(Debug, Clone)]
pub struct RateLimiter {
    pub(in crate::limiters) queue: Arc<GuardedQueue>,
    pub(super) options: LimiterOptions,
    /// The settings that its requests give the limiter, or create it with.
    pub(super) set_up: Option<SetUp>,
    /// The name that its events and joint decisions give it, if that is not the limiter's own.
    pub(super) label: Option<Arc<str>>,
    /// Keeps the limiter leased while it lives.
    pub(super) _lease: Option<Arc<LeaseHold>>,
}

impl RateLimiter {
    pub(crate) fn new(queue: Arc<GuardedQueue>, options: LimiterOptions) -> Self {
        Self {
            queue,
            options,
            set_up: None,
            label: None,
            _lease: None,
        }
    }

    /// The limiter's name in Redis, after the name mapper.
    #[doc(alias = "getName")]
    #[must_use]
    pub fn name(&self) -> &str {
        &self.queue.store().keys().name
    }

    /// The keys that hold the limiter in Redis: the settings; the value, for all clients and for
    /// this one; the permits, for all clients and for this one. Those of another client end in its
    /// id.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let client = RedissonClient::builder().client_id("a").in_memory(&MemoryStore::new());
    /// assert_eq!(
    ///     client.rate_limiter("orders").keys(),
    ///     ["orders", "{orders}:value", "{orders}:value:a", "{orders}:permits", "{orders}:permits:a"],
    /// );
    /// ```
    #[must_use]
    pub fn keys(&self) -> [&str; 5] {
        self.queue.store().keys().in_order()
    }

    /// This limiter with options of its own. Those that `options` does not set stay as they are. It
    /// still shares its queue with the other handles of the limiter.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, LimiterOptions, RedissonClient};
    ///
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let lenient = LimiterOptions::new().failure_policy(FailurePolicy::Allow);
    /// assert_eq!(*limiter.clone().with_options(lenient.clone()).options(), lenient);
    /// assert_eq!(*limiter.options(), LimiterOptions::new());
    /// ```
    #[must_use]
    pub fn with_options(mut self, options: LimiterOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// The options set for this limiter, or for all limiters of its client.
    pub fn options(&self) -> &LimiterOptions {
        &self.options
    }

    /// How many callers in this process wait for permits: calls of
    /// [`acquire`](RateLimiter::acquire) and
    /// [`try_acquire_timeout`](RateLimiter::try_acquire_timeout) without an answer, including those
    /// whose first call is in flight.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("mail");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// limiter.acquire(1).await?;
    /// assert_eq!(limiter.waiters(), 0);
    /// let (waited, ()) = tokio::join!(limiter.acquire(1), async {
    ///     assert_eq!(limiter.waiters(), 1);
    /// });
    /// waited?;
    /// assert_eq!(limiter.waiters(), 0);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getQueueLength")]
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.queue.unguarded.waiters()
    }

    /// The shortest time that a caller who asks now would wait for this many permits: the time
    /// until the first of the permits in use comes back, and one more interval for each time that
    /// the waiters in front and the caller use up the rate. `None` if unknown, and for more permits
    /// than the rate.
    ///
    /// The estimate assumes that no waiter in front gives up, no permits are given back, and the
    /// rate is not raised. Other processes may take permits in the meantime, so that the wait gets
    /// longer. It is computed from the store's last denial of a waiter, or, in Redis, of any
    /// request. It is `None` if that denial is older than 1.003 s or does not say exactly how many
    /// permits were left, if a call of this client since may have freed permits or changed the
    /// limiter, and if this handle or a waiter in front has another
    /// [rate of its own](Self::with_rate).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("mail");
    /// let second = Duration::from_secs(1);
    /// limiter.set_rate(Rate::overall(1, second)).await?;
    /// assert_eq!(limiter.estimated_wait(1), None);
    /// limiter.acquire(1).await?;
    /// let (waited, ()) = tokio::join!(limiter.acquire(1), async {
    ///     assert_eq!(limiter.estimated_wait(1), Some(2 * second)); // behind the other one
    /// });
    /// waited?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn estimated_wait(&self, permits: u32) -> Option<Duration> {
        self.queue.unguarded.shortest_wait(permits, self.set_up)
    }

    #[cfg(test)]
    pub(crate) fn shares_queue_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }

    /// A request for permits of this limiter, as one part of a decision by several limiters: an
    /// argument of [`RedissonClient::check_all`](crate::RedissonClient::check_all). Sends nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let orders = client.rate_limiter("orders");
    /// orders.set_rate(Rate::overall(2, Duration::from_secs(1))).await?;
    /// let per_user = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    ///
    /// let charges = [orders.charge(1)?, per_user.charge("user:123", 1)?];
    /// assert!(client.check_all(charges).await?.is_granted());
    /// let charges = [orders.charge(1)?, per_user.charge("user:123", 1)?];
    /// assert!(!client.check_all(charges).await?.is_granted()); // the user has no request left
    /// assert_eq!(orders.available_permits().await?, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for 0 permits,
    /// [`Error::InvalidName`](crate::Error::InvalidName) for a name that cannot be used.
    pub fn charge(&self, permits: u32) -> Result<Charge> {
        let queue = self.asked_for(permits)?;
        let keys = queue.store().keys();
        let client_id = &keys.client_id;
        let target = match self.set_up {
            Some(set_up) => {
                let rate = SharedRate::with_set_up(Arc::clone(client_id), set_up);
                self.target(rate.with_known(self.queue.known_settings()))
            }
            None => self.target_as_it_is(),
        };
        let request = TargetRequest {
            queue_time: QueueTime::default(),
            name: self.label.as_ref().unwrap_or(&target.key).clone(),
            target,
            cost: permits,
            policy: self.options.policy().clone(),
            queue: Some(Arc::clone(&self.queue)),
        };
        Ok(Charge::new(Arc::clone(&queue.client_store), request))
    }

    /// This handle, but its events carry the name of the keyed limiter that it belongs to.
    pub(crate) fn labelled(mut self, label: Arc<str>) -> Self {
        self.label = Some(label);
        self
    }

    /// Starts the report of a request.
    #[inline]
    pub(super) fn reported(&self, permits: u32) -> Reported<'_> {
        let name = || self.label.as_deref().unwrap_or_else(|| self.name());
        self.queue.client.events.request(permits, name)
    }

    /// Like [`asked_for`](Self::asked_for), but fails once the client is closed.
    pub(super) fn requested(&self, permits: u32) -> Result<&Arc<GuardedQueue>> {
        self.queue.client.admit()?;
        self.asked_for(permits)
    }

    /// The limiter as one target of a call, with the settings that it has.
    pub(super) fn target_as_it_is(&self) -> Target {
        let client_id = &self.queue.store().keys().client_id;
        self.target(SharedRate::as_it_is(client_id, self.queue.known_settings()))
    }

    fn target(&self, rate: SharedRate) -> Target {
        Target {
            model: Arc::new(rate.into()),
            key: self.name().into(),
            penalty: None,
        }
    }

    /// The queue, if the name and the number of permits are valid.
    pub(super) fn asked_for(&self, permits: u32) -> Result<&Arc<GuardedQueue>> {
        at_least_one(permits, "permits")?;
        self.validated()?;
        Ok(&self.queue)
    }

    /// The limiter's store, if the name is valid.
    pub(super) fn validated(&self) -> Result<&dyn LimiterStore> {
        let store = self.queue.store();
        store.keys().validate(store.client().is_cluster())?;
        Ok(store)
    }

    /// Makes a call that may free permits, even if the future is dropped in flight.
    pub(super) async fn freeing<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let change = self
            .queue
            .unguarded
            .change(self.queue.store().call_deadline());
        let answer = call.await?;
        change.done();
        Ok(answer)
    }

    /// Makes a call that changes the limiter, even if the future is dropped in flight. Leases end
    /// before it.
    pub(super) async fn change<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let change = self.queue.unguarded.change_limiter();
        let answer = call.await?;
        change.done();
        Ok(answer)
    }
}
