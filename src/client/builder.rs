//! A client's settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::RedissonClient;
#[cfg(feature = "redis")]
use super::connect::RedisSettings;
use crate::clock::Clock;
use crate::failure_policy::FailurePolicy;
use crate::handle_options::HandleOptions;
use crate::limiters::{NameMapper, Registry};
use crate::store::Store;
use crate::store::memory::{MemoryClient, MemoryStore};

/// Settings of a client.
///
/// ```
/// use redisson_rate_limiter::{MemoryStore, RedissonClient};
///
/// let client = RedissonClient::builder()
///     .client_id("worker-7")
///     .name_mapper(|name| format!("shop:{name}"))
///     .in_memory(&MemoryStore::new());
/// assert_eq!(client.id(), "worker-7");
/// assert_eq!(client.rate_limiter("orders").name(), "shop:orders");
/// ```
pub struct RedissonClientBuilder {
    id: Option<String>,
    name_mapper: Option<NameMapper>,
    pub(super) clock: Clock,
    handles: HandleOptions,
    #[cfg(feature = "redis")]
    pub(super) redis: RedisSettings,
}

impl RedissonClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            id: None,
            name_mapper: None,
            clock: Clock::server(),
            handles: HandleOptions::default(),
            #[cfg(feature = "redis")]
            redis: RedisSettings::default(),
        }
    }

    /// The client's id, by which a rate [per client](crate::RateType::PerClient) identifies clients. A process that
    /// keeps its id across a restart keeps its permits. The default is a new UUID.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let store = MemoryStore::new();
    /// let worker = || RedissonClient::builder().client_id("worker-7").in_memory(&store);
    /// let limiter = worker().rate_limiter("mail");
    /// limiter.set_rate(Rate::per_client(1, Duration::from_secs(60))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// let restarted = worker().rate_limiter("mail");
    /// assert!(!restarted.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Maps the name of a limiter to its name in Redis, as Redisson's `NameMapper` does. The default leaves it as it is.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::builder()
    ///     .name_mapper(|name| format!("shop:{name}"))
    ///     .in_memory(&MemoryStore::new());
    /// assert_eq!(client.rate_limiter("orders").name(), "shop:orders");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "setNameMapper")]
    #[must_use]
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.name_mapper = Some(Box::new(map));
        self
    }

    /// The clock that gives grants their time. The default is [the server's](Clock::server).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder()
    ///     .clock(Clock::from_fn(|| 1_000)) // time stands still
    ///     .in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("orders");
    /// limiter.set_rate(Rate::overall(1, Duration::from_millis(1))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// assert!(!limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// What requests get while Redis is unavailable. The default is [`FailurePolicy::Error`].
    ///
    /// [`connect`](Self::connect) itself needs a server, whatever the policy; [`wait_for_server`](Self::wait_for_server)
    /// makes it wait for one.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, MemoryStore, RedissonClient};
    ///
    /// let builder = RedissonClient::builder().failure_policy(FailurePolicy::Allow);
    /// let client = builder.in_memory(&MemoryStore::new());
    /// assert_eq!(client.rate_limiter("orders").failure_policy(), FailurePolicy::Allow);
    /// ```
    #[must_use]
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.handles.failure_policy = policy;
        self
    }

    /// Remembers denials, for `at_most` from the time that a call was sent: if an answer of Redis shows that fewer than
    /// n permits are left until some time, requests for n or more are denied until that time without another call. So a
    /// client that is mostly denied sends one call per `at_most`, however many requests it has. The default, zero, asks
    /// Redis for each request.
    ///
    /// Changes by other clients (permits given back, a new rate, a deleted limiter) are seen up to `at_most` late. Changes
    /// by this client take effect at once: those of a method, and the rate of a request
    /// ([`with_rate`](crate::RateLimiter::with_rate), [`KeyedRateLimiter`](crate::KeyedRateLimiter)) or of a joint decision.
    /// Permits that come back with time are never late. Only an answer that says exactly how many permits are left is
    /// remembered.
    ///
    /// The client remembers the 1,024 limiters that were denied last, by name: handles may be made anew for each request.
    ///
    /// It applies to `try_acquire`, a timeout of zero, and `check`. A remembered denial has the time that is left until
    /// the first permit comes back and otherwise the numbers of the remembered answer; it is from
    /// [`DecisionSource::Store`](crate::DecisionSource::Store). Waiters and [`check_all`](RedissonClient::check_all)
    /// ask Redis as if nothing was remembered. A client that is used from several tokio runtimes may send one call for
    /// each of them.
    ///
    /// It changes nothing [in memory](RedissonClient::in_memory), where a decision takes no longer than remembering
    /// one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder()
    ///     .remember_denials(Duration::from_millis(100))
    ///     .in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("logins");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// assert!(!limiter.try_acquire(1).await?);
    /// limiter.release(1).await?; // a change by this client
    /// assert!(limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn remember_denials(mut self, at_most: Duration) -> Self {
        self.handles.remember_denials = at_most;
        self
    }

    /// Bounds the callers in this process that wait for permits of one limiter: once there are `max`, `acquire` and
    /// its timed form fail at once with [`Error::QueueFull`](crate::Error::QueueFull). The default is no bound; with 0,
    /// all of them fail.
    ///
    /// A caller counts from its call until its answer, including while its first call to Redis is in flight: choose a bound
    /// larger than the number of callers that come at once when permits are available.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().max_waiters(0).in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("mail");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(1))).await?;
    /// assert!(matches!(limiter.acquire(1).await, Err(Error::QueueFull { waiters: 0, .. })));
    /// assert!(limiter.try_acquire(1).await?); // does not wait
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ArrayBlockingQueue")]
    #[must_use]
    pub fn max_waiters(mut self, max: usize) -> Self {
        self.handles.max_waiters = max;
        self
    }

    /// Whether the timed form of `acquire` returns `false` at once if its permits certainly come back after its timeout. By
    /// default it waits for the timeout.
    ///
    /// It uses [`RateLimiter::estimated_wait`](crate::RateLimiter::estimated_wait), without the waiters in front whose
    /// timeouts pass first. So it refuses no caller that would have been served, unless waiters in front are dropped,
    /// permits are given back or the rate is raised in the meantime. If nothing is known, the caller waits. More permits
    /// than the rate are an error as ever.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().fail_fast(true).in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("mail");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// limiter.acquire(1).await?;
    /// let start = tokio::time::Instant::now();
    /// assert!(!limiter.try_acquire_timeout(1, Duration::from_secs(59)).await?);
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.handles.fail_fast = fail_fast;
        self
    }

    /// Keeps the limiters in memory, shared with all clients of the same store. Its calls need no server.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let store = MemoryStore::new();
    /// let a = RedissonClient::builder().in_memory(&store).rate_limiter("shared");
    /// let b = RedissonClient::builder().in_memory(&store).rate_limiter("shared");
    /// a.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// assert_eq!(b.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn in_memory(self, store: &MemoryStore) -> RedissonClient {
        let store = MemoryClient::new(store, self.clock.clone());
        self.build(store)
    }

    pub(crate) fn build(self, store: impl Store + 'static) -> RedissonClient {
        let id = self.id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let registry = Registry::new(Arc::new(store), id, self.name_mapper, self.handles);
        RedissonClient(Arc::new(registry))
    }
}

impl fmt::Debug for RedissonClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut builder = f.debug_struct("RedissonClientBuilder");
        builder.field("id", &self.id).field("clock", &self.clock);
        #[cfg(feature = "redis")]
        builder.field("redis", &self.redis);
        builder.finish_non_exhaustive()
    }
}
