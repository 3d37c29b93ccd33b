//! The limiter: the trait with all of Redisson's `RRateLimiter`, and the handle that checks what it is given and passes
//! it on.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::failure_policy::FailurePolicy;
use crate::fallback::{GuardedQueue, Place, RecentDenials};
use crate::grant::Grant;
use crate::handle_options::HandleOptions;
use crate::model::{Condition, Expiry, SetUp};
use crate::policy::Share;
use crate::policy::call::Target;
use crate::policy::shared_rate::SharedRate;
use crate::rate::{Rate, millis_from_zero};
use crate::store::{IfMissing, LimiterStore, State, TimeToLive};
use crate::wait_queue::ReadSetUp;

/// A rate limiter as Redisson has it: permits of a sliding window, shared by all who name the same limiter.
///
/// Every method can fail with [`Error::InvalidName`] (a name that cannot be used), [`Error::StoreUnavailable`],
/// [`Error::Indeterminate`] (sent, but no answer came), [`Error::AuthenticationFailed`], [`Error::PermissionDenied`],
/// [`Error::BadState`] (the keys hold something else) and [`Error::Redis`]; what else it can fail with stands with it.
///
/// Permits are 1 to `u32::MAX`. Durations are whole milliseconds, at least 1, where nothing else stands.
#[async_trait]
pub trait RRateLimiter: fmt::Debug + Send + Sync {
    /// The limiter's name in Redis, after the name mapper.
    #[doc(alias = "getName")]
    fn name(&self) -> &str;

    /// Sets the rate where the limiter has none, and tells whether it did.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let five_a_second = Rate::overall(5, Duration::from_secs(1));
    /// assert!(limiter.try_set_rate(five_a_second).await?);
    /// assert!(!limiter.try_set_rate(Rate::overall(9, Duration::from_secs(1))).await?);
    /// assert_eq!(limiter.config().await?, Some(five_a_second));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the rate is not 1 to 2^53, the interval or keep alive not whole milliseconds from 1,
    /// or the keep alive is shorter than the interval.
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have set the rate.
    #[doc(alias = "trySetRate")]
    async fn try_set_rate(&self, rate: Rate) -> Result<bool>;

    /// Sets the rate, whatever it was. What is in use is forgotten: for [`Rate::overall`] for all clients, for
    /// [`Rate::per_client`] for this one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// limiter.set_rate(Rate::overall(2, Duration::from_secs(60))).await?;
    /// assert_eq!(limiter.available_permits().await?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as for [`try_set_rate`](Self::try_set_rate).
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have set the rate.
    #[doc(alias = "setRate")]
    async fn set_rate(&self, rate: Rate) -> Result<()>;

    /// Sets the rate, whatever it was, and keeps what is in use or forgets it. A change of the type forgets it for all
    /// clients.
    ///
    /// ```
    /// # use redisson_rate_limiter::{RRateLimiter, Rate, RedissonClient, State};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("l");
    /// let minute = Duration::from_secs(60);
    /// limiter.try_set_rate(Rate::overall(10, minute)).await?;
    /// limiter.try_acquire(3).await?;
    /// limiter.set_rate_with(Rate::overall(20, minute), State::Keep).await?;
    /// assert_eq!(limiter.available_permits().await?, 17);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as for [`try_set_rate`](Self::try_set_rate).
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have set the rate.
    #[doc(alias = "setRate")]
    async fn set_rate_with(&self, rate: Rate, state: State) -> Result<()>;

    /// Changes the rate of a limiter that has one, as [`set_rate_with`](Self::set_rate_with) does; `false`, and nothing
    /// changed, where it has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let minute = Duration::from_secs(60);
    /// assert!(!limiter.update_rate(Rate::overall(10, minute), State::Keep).await?);
    /// limiter.set_rate(Rate::overall(10, minute)).await?;
    /// limiter.try_acquire(8).await?;
    /// assert!(limiter.update_rate(Rate::overall(5, minute), State::Keep).await?);
    /// assert_eq!(limiter.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] as for [`try_set_rate`](Self::try_set_rate), also where there is no limiter.
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have set the rate.
    #[doc(alias = "updateRate")]
    async fn update_rate(&self, rate: Rate, state: State) -> Result<bool>;

    /// The rate, or `None` where the limiter has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// assert_eq!(limiter.config().await?, None);
    /// let rate = Rate::per_client(3, Duration::from_secs(10));
    /// limiter.set_rate(rate).await?;
    /// assert_eq!(limiter.config().await?, Some(rate));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It reads only.
    #[doc(alias = "getConfig")]
    async fn config(&self) -> Result<Option<Rate>>;

    /// Takes permits if they are there now.
    ///
    /// It never waits for permits, and may overtake those who do.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(3, Duration::from_secs(10))).await?;
    /// assert!(limiter.try_acquire(2).await?);
    /// assert!(!limiter.try_acquire(2).await?);
    /// assert!(matches!(limiter.try_acquire(4).await, Err(Error::PermitsExceedRate { rate: 3, .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`], [`Error::PermitsExceedRate`], [`Error::InvalidArgument`] for 0 permits.
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing: what a call under way is granted goes back.
    #[doc(alias = "tryAcquire")]
    async fn try_acquire(&self, permits: u32) -> Result<bool>;

    /// Takes permits as soon as they are there, first come, first served; `false` when `timeout` has passed before.
    /// A timeout of zero asks once.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(1))).await?;
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_millis(300)).await?);
    /// assert!(!limiter.try_acquire_timeout(1, Duration::from_millis(300)).await?);
    /// assert!(limiter.try_acquire_timeout(1, Duration::from_millis(900)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), and [`Error::QueueFull`] for a limiter with a
    /// [bound](RateLimiter::with_max_waiters).
    ///
    /// # Cancel safety
    /// Dropping the future takes nothing: its place in line is given up, and what a call under way is granted goes to
    /// the next in line or back.
    ///
    /// A future that is kept and not polled keeps its place, and what it is granted: the permits are the caller's from
    /// that moment on, and count in the window of that moment, however late the future is polled.
    #[doc(alias = "tryAcquire")]
    async fn try_acquire_timeout(&self, permits: u32, timeout: Duration) -> Result<bool>;

    /// Takes permits as soon as they are there, first come, first served.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_millis(500))).await?;
    /// let start = tokio::time::Instant::now();
    /// limiter.acquire(1).await?;
    /// limiter.acquire(1).await?; // asks again 3 ms after the first is back
    /// assert_eq!(start.elapsed(), Duration::from_millis(503));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`try_acquire_timeout`](Self::try_acquire_timeout).
    async fn acquire(&self, permits: u32) -> Result<()>;

    /// Takes permits if they are there now, and tells what a response header or a retry needs to know.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`try_acquire`](Self::try_acquire).
    async fn check(&self, permits: u32) -> Result<Decision>;

    /// Gives a grant back, exactly and once, and tells how many permits came back: 0 where its window has passed, fewer
    /// than it had where others [released](Self::release) part of it.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Decision, RRateLimiter, Rate, RedissonClient};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("l");
    /// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
    /// if let Decision::Granted { grant, .. } = limiter.check(3).await? {
    ///     assert_eq!(limiter.refund(grant).await?, 3);
    /// }
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`] where the limiter is gone.
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have given the grant back; what was not given back comes back with its
    /// window.
    async fn refund(&self, grant: Grant) -> Result<u32>;

    /// Gives permits back without naming their grant. They come out of the oldest grants, so that no window ever holds
    /// more than the rate; what would lift the permits above the rate is passed over. [`refund`](Self::refund) is exact.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
    /// limiter.try_acquire(4).await?;
    /// limiter.release(3).await?;
    /// assert_eq!(limiter.available_permits().await?, 4);
    /// limiter.release(3).await?; // two more than were taken
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`], [`Error::InvalidArgument`] for 0 permits.
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have given them back.
    async fn release(&self, permits: u32) -> Result<()>;

    /// How many permits are there now. It changes nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// limiter.try_acquire(4).await?;
    /// assert_eq!(limiter.available_permits().await?, 1);
    /// tokio::time::advance(Duration::from_secs(1)).await;
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`].
    ///
    /// # Cancel safety
    /// It reads only.
    #[doc(alias = "availablePermits")]
    async fn available_permits(&self) -> Result<i64>;

    /// Whether the limiter has a rate.
    ///
    /// # Cancel safety
    /// It reads only.
    #[doc(alias = "isExists")]
    async fn exists(&self) -> Result<bool>;

    /// Removes the limiter and its state, of other clients' own permits only what all share; tells whether there was
    /// any.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.exists().await?);
    /// assert!(limiter.delete().await?);
    /// assert!(!limiter.exists().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have removed it.
    async fn delete(&self) -> Result<bool>;

    /// Lets the limiter expire after `time_to_live`; zero deletes it at once. Returns whether there was anything to expire.
    ///
    /// ```
    /// # use redisson_rate_limiter::{RRateLimiter, Rate, RedissonClient, TimeToLive};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("l");
    /// limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(limiter.expire(hour).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour));
    /// assert!(limiter.expire(Duration::ZERO).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Missing);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the time is not whole milliseconds, or longer than 2^52 of them.
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have had its effect, here and in the calls below.
    async fn expire(&self, time_to_live: Duration) -> Result<bool>;

    /// Lets the limiter expire at `time`; one that has passed deletes it at once. Returns whether there was anything to
    /// expire.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(limiter.expire_at(std::time::UNIX_EPOCH + Duration::from_secs(1)).await?);
    /// assert!(!limiter.exists().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: the time is before 1970 or after 2^52 ms.
    #[doc(alias = "expireAt")]
    async fn expire_at(&self, time: SystemTime) -> Result<bool>;

    /// As [`expire`](Self::expire), for each key that has a time to live. Needs Redis 7.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// let hour = Duration::from_secs(3600);
    /// assert!(!limiter.expire_if_set(hour).await?);
    /// assert!(limiter.expire_if_not_set(hour).await?);
    /// assert!(!limiter.expire_if_greater(hour / 2).await?);
    /// assert!(limiter.expire_if_less(hour / 2).await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Remaining(hour / 2));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfSet")]
    async fn expire_if_set(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`expire`](Self::expire), for each key that has no time to live. Needs Redis 7.
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfNotSet")]
    async fn expire_if_not_set(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`expire`](Self::expire), for each key whose time to live is shorter. Needs Redis 7.
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfGreater")]
    async fn expire_if_greater(&self, time_to_live: Duration) -> Result<bool>;

    /// As [`expire`](Self::expire), for each key whose time to live is longer or that has none. Needs Redis 7.
    ///
    /// # Errors
    /// As [`expire`](Self::expire).
    #[doc(alias = "expireIfLess")]
    async fn expire_if_less(&self, time_to_live: Duration) -> Result<bool>;

    /// Lets the limiter stay; tells whether it had a time to live.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert!(!limiter.clear_expire().await?);
    /// limiter.expire(Duration::from_secs(3600)).await?;
    /// assert!(limiter.clear_expire().await?);
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Unlimited);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "clearExpire")]
    async fn clear_expire(&self) -> Result<bool>;

    /// How long the limiter stays.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// assert_eq!(limiter.remain_time_to_live().await?, TimeToLive::Missing);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// It reads only.
    #[doc(alias = "remainTimeToLive")]
    async fn remain_time_to_live(&self) -> Result<TimeToLive>;
}

/// A handle on one limiter, from [`RedissonClient::rate_limiter`](crate::RedissonClient::rate_limiter). Cheap to clone;
/// its methods are those of [`RRateLimiter`].
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

    /// How many callers in this process wait for permits: those of [`acquire`](RRateLimiter::acquire) and its timed form
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
    pub fn estimated_wait(&self, permits: u32) -> Option<Duration> {
        self.queue.estimated_wait(permits)
    }

    #[cfg(test)]
    pub(crate) fn shares_queue_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }

    /// This limiter's share in a decision of several: see
    /// [`RedissonClient::decide_all`](crate::RedissonClient::decide_all).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 0 permits, [`Error::InvalidName`] for a name that cannot be used.
    pub fn share(&self, permits: u32) -> Result<Share> {
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
        Ok(Share::new(Arc::clone(queue.client_store()), place))
    }

    /// As [`RRateLimiter::check`], and creates the limiter, or gives it these settings, in the same call.
    pub(crate) async fn check_set_up(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Decision> {
        let queue = self.asked_for(permits)?;
        queue.check(permits, set_up, &self.options).await
    }

    /// Waits until the permits are granted, or for the timeout; creates the limiter as
    /// [`check_set_up`](Self::check_set_up) does.
    pub(crate) async fn wait_set_up(
        &self,
        permits: u32,
        timeout: Option<Duration>,
        set_up: Option<ReadSetUp>,
    ) -> Result<bool> {
        // A time beyond what the clock can count is as good as none.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let queue = self.asked_for(permits)?;
        queue.wait(permits, until, set_up, &self.options).await
    }

    /// Keeps the last denial while nobody has a handle on the limiter, where it is to be remembered.
    pub(crate) fn keep_denial(&self, recent: &RecentDenials) {
        let at_most = self.options.remember_denials;
        if self.queue.remembers(at_most) {
            recent.keep(&self.queue, at_most);
        }
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

    async fn update(&self, rate: Rate, state: State, if_missing: IfMissing) -> Result<bool> {
        let store = self.checked()?;
        let valid = rate.validate()?;
        let _changing = self.changing();
        let answer = store.update_rate(valid, state, if_missing).await;
        self.learn(rate, matches!(answer, Ok(true)));
        answer
    }

    /// The call that starts now may change what the last answer said, also where it is dropped under way.
    fn changing(&self) -> Changing<'_> {
        Changing(&self.queue)
    }

    /// The limiter may have another rate: this one, where it `is_set`.
    fn learn(&self, rate: Rate, is_set: bool) {
        if is_set {
            self.queue.learn(rate);
        } else {
            self.queue.forget_rate();
        }
        self.queue.permits_freed();
    }

    async fn expire_where(&self, time_to_live: Duration, condition: Condition) -> Result<bool> {
        let store = self.checked()?;
        let expiry = Expiry::In(millis_from_zero(time_to_live, "time to live")?);
        let _changing = self.changing();
        store.expire(expiry, condition).await
    }
}

/// A change that may have been made once this is dropped.
struct Changing<'a>(&'a GuardedQueue);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.forget_last_answer();
    }
}

#[async_trait]
impl RRateLimiter for RateLimiter {
    fn name(&self) -> &str {
        &self.queue.store().keys().name
    }

    async fn try_set_rate(&self, rate: Rate) -> Result<bool> {
        let store = self.checked()?;
        let valid = rate.validate()?;
        let _changing = self.changing();
        let answer = store.try_set_rate(valid).await;
        if !matches!(answer, Ok(false)) {
            self.learn(rate, answer.is_ok());
        }
        answer
    }

    async fn set_rate(&self, rate: Rate) -> Result<()> {
        let store = self.checked()?;
        let valid = rate.validate()?;
        let _changing = self.changing();
        let answer = store.set_rate(valid).await;
        self.learn(rate, answer.is_ok());
        answer
    }

    async fn set_rate_with(&self, rate: Rate, state: State) -> Result<()> {
        self.update(rate, state, IfMissing::Create).await?;
        Ok(())
    }

    async fn update_rate(&self, rate: Rate, state: State) -> Result<bool> {
        self.update(rate, state, IfMissing::DoNothing).await
    }

    async fn config(&self) -> Result<Option<Rate>> {
        let store = self.checked()?;
        let rate = store.config().await?;
        if let Some(rate) = rate {
            self.queue.learn(rate);
        }
        Ok(rate)
    }

    async fn try_acquire(&self, permits: u32) -> Result<bool> {
        let queue = self.asked_for(permits)?;
        queue.try_acquire(permits, &self.options).await
    }

    async fn try_acquire_timeout(&self, permits: u32, timeout: Duration) -> Result<bool> {
        if timeout.is_zero() {
            return self.try_acquire(permits).await;
        }
        self.wait_set_up(permits, Some(timeout), None).await
    }

    async fn acquire(&self, permits: u32) -> Result<()> {
        self.wait_set_up(permits, None, None).await?;
        Ok(())
    }

    async fn check(&self, permits: u32) -> Result<Decision> {
        self.check_set_up(permits, None).await
    }

    async fn refund(&self, grant: Grant) -> Result<u32> {
        self.checked()?;
        let _changing = self.changing();
        let answer = self.queue.refund(&grant).await;
        self.queue.permits_freed();
        answer
    }

    async fn release(&self, permits: u32) -> Result<()> {
        let queue = self.asked_for(permits)?;
        let _changing = self.changing();
        let answer = queue.release(permits, self.options.failure_policy).await;
        self.queue.permits_freed();
        answer
    }

    async fn available_permits(&self) -> Result<i64> {
        let store = self.checked()?;
        store.available_permits().await
    }

    async fn exists(&self) -> Result<bool> {
        let store = self.checked()?;
        store.exists().await
    }

    async fn delete(&self) -> Result<bool> {
        let store = self.checked()?;
        let _changing = self.changing();
        store.delete().await
    }

    async fn expire(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::Always).await
    }

    async fn expire_at(&self, time: SystemTime) -> Result<bool> {
        let store = self.checked()?;
        let since_epoch = time
            .duration_since(UNIX_EPOCH)
            .map_err(|_| Error::InvalidArgument {
                argument: "time",
                reason: "it is before 1970",
            })?;
        // Redis counts in ms; what is below that goes.
        let millis = Duration::from_millis(since_epoch.as_millis().try_into().unwrap_or(u64::MAX));
        let expiry = Expiry::At(millis_from_zero(millis, "time")?);
        let _changing = self.changing();
        store.expire(expiry, Condition::Always).await
    }

    async fn expire_if_set(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfSet).await
    }

    async fn expire_if_not_set(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfNotSet).await
    }

    async fn expire_if_greater(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfGreater).await
    }

    async fn expire_if_less(&self, time_to_live: Duration) -> Result<bool> {
        self.expire_where(time_to_live, Condition::IfLess).await
    }

    async fn clear_expire(&self) -> Result<bool> {
        let store = self.checked()?;
        store.clear_expire().await
    }

    async fn remain_time_to_live(&self) -> Result<TimeToLive> {
        let store = self.checked()?;
        store.remain_time_to_live().await
    }
}
