//! The handle on one limiter: it checks what it is given and passes it on.

mod acquire;
mod expiry;
mod rate;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::failure_policy::FailurePolicy;
use crate::fallback::{GuardedQueue, Place};
use crate::handle_options::HandleOptions;
use crate::policy::Charge;
use crate::policy::call::Target;
use crate::policy::shared_rate::SharedRate;
use crate::store::LimiterStore;

/// A rate limiter as Redisson has it: permits of a sliding window, shared by all who name the same limiter. From
/// [`RedissonClient::rate_limiter`](crate::RedissonClient::rate_limiter); cheap to clone.
///
/// Every method that asks the store can fail with [`Error::InvalidName`] (a name that cannot be used),
/// [`Error::StoreUnavailable`], [`Error::Indeterminate`] (sent, but no answer came), [`Error::AuthenticationFailed`],
/// [`Error::PermissionDenied`], [`Error::BadState`] (the keys hold something else) and [`Error::Redis`]; what else it can
/// fail with stands with it.
///
/// Permits are 1 to `u32::MAX`. Redisson's forms without a number, such as `acquire()`, are `acquire(1)` here: Rust has no
/// overloads, and a second name for each method would say no more. Durations are whole milliseconds, at least 1, where nothing else stands.
///
/// A limiter of Redis and one of memory are both of this type. Where a trait object is wanted, take
/// [`RRateLimiter`](crate::RRateLimiter).
#[doc(alias = "RRateLimiter")]
#[derive(Debug, Clone)]
pub struct RateLimiter {
    queue: Arc<GuardedQueue>,
    options: HandleOptions,
}

impl RateLimiter {
    pub(crate) fn new(queue: Arc<GuardedQueue>, options: HandleOptions) -> Self {
        Self { queue, options }
    }

    pub(crate) fn with_options(self, options: HandleOptions) -> Self {
        Self { options, ..self }
    }

    /// The limiter's name in Redis, after the name mapper.
    #[doc(alias = "getName")]
    #[must_use]
    pub fn name(&self) -> &str {
        &self.queue.store().keys().name
    }

    /// This limiter with another [`FailurePolicy`] than its client has. Handles on it still share its queue.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, RedissonClient};
    ///
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let lenient = limiter.clone().with_failure_policy(FailurePolicy::Allow);
    /// assert_eq!(lenient.failure_policy(), FailurePolicy::Allow);
    /// assert_eq!(limiter.failure_policy(), FailurePolicy::Error);
    /// ```
    #[must_use]
    pub fn with_failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.options.failure_policy = policy;
        self
    }

    /// What requests get while Redis is away.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.options.failure_policy
    }

    /// This limiter with another setting for [remembered denials](crate::RedissonClientBuilder::remember_denials) than its
    /// client has. Zero has every request ask Redis.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .rate_limiter("logins")
    ///     .with_remember_denials(Duration::from_millis(100));
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// assert!(!limiter.try_acquire(1).await?);
    /// limiter.release(1).await?; // what this client gives back counts at once
    /// assert!(limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_remember_denials(mut self, at_most: Duration) -> Self {
        self.options.remember_denials = at_most;
        self
    }

    /// This limiter with another [bound on those who wait](crate::RedissonClientBuilder::max_waiters) than its client has.
    /// All handles on a limiter share the one line: each is refused by its own bound.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("mail").with_max_waiters(1);
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// limiter.acquire(1).await?;
    /// let waiting = tokio::spawn({
    ///     let limiter = limiter.clone();
    ///     async move { limiter.acquire(1).await }
    /// });
    /// tokio::task::yield_now().await;
    /// assert!(matches!(limiter.acquire(1).await, Err(Error::QueueFull { waiters: 1, .. })));
    /// waiting.await.unwrap()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_max_waiters(mut self, max: usize) -> Self {
        self.options.max_waiters = max;
        self
    }

    /// This limiter with another setting for [waits that are hopeless](crate::RedissonClientBuilder::fail_fast) than its
    /// client has.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("mail").with_fail_fast(true);
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// limiter.acquire(1).await?;
    /// let start = tokio::time::Instant::now();
    /// assert!(!limiter.try_acquire_timeout(1, Duration::from_secs(59)).await?);
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_secs(61)).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_fail_fast(mut self, fail_fast: bool) -> Self {
        self.options.fail_fast = fail_fast;
        self
    }

    /// How many callers in this process wait for permits: those of [`acquire`](RateLimiter::acquire) and its timed form
    /// that have no answer yet, also where their first call is still under way.
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
        self.queue.waiters()
    }

    /// How long a caller that comes now would wait for so many permits, at the least: until the first of the permits in use
    /// are back, and one interval more for each time that the rate is used up by those in front and the caller.
    ///
    /// That is as if nobody in front gives up, nobody gives permits back, and nobody raises the rate. Other processes may
    /// take permits meanwhile, so that it takes longer. It follows from the last answer of the store to one that waits, or to
    /// any request where the store is Redis. `None` where that is older than 1.003 s, or where a change by this client may
    /// have made it wrong. The interval counts as zero where this client has neither set nor read it.
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
        self.queue.estimated_wait(permits)
    }

    #[cfg(test)]
    pub(crate) fn shares_queue_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }

    /// What a request for so many permits takes from this limiter where several decide together: see
    /// [`RedissonClient::check_all`](crate::RedissonClient::check_all). Sends nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 0 permits, [`Error::InvalidName`] for a name that cannot be used.
    pub fn charge(&self, permits: u32) -> Result<Charge> {
        let queue = self.asked_for(permits)?;
        let keys = queue.store().keys();
        let rate = SharedRate::as_it_is(&keys.client_id, queue.known_settings());
        let place = Place {
            target: Target {
                model: Arc::new(rate),
                key: keys.name.as_str().into(),
                penalty: None,
            },
            cost: permits,
            policy: self.options.failure_policy,
        };
        Ok(Charge::new(Arc::clone(queue.client_store()), place))
    }

    /// The queue, once the name and the permits are found good.
    fn asked_for(&self, permits: u32) -> Result<&GuardedQueue> {
        if permits == 0 {
            return Err(Error::InvalidArgument {
                argument: "permits",
                reason: "they are 0",
            });
        }
        self.checked()?;
        Ok(&self.queue)
    }

    /// The limiter's store, once its name is checked.
    fn checked(&self) -> Result<&dyn LimiterStore> {
        let store = self.queue.store();
        store.keys().check(store.is_cluster())?;
        Ok(store)
    }

    /// The call that starts now may change what the last answer said, also where it is dropped under way.
    fn changing(&self) -> Changing<'_> {
        Changing(&self.queue)
    }
}

/// A change that may have been made once this is dropped.
struct Changing<'a>(&'a GuardedQueue);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.forget_last_answer();
    }
}
