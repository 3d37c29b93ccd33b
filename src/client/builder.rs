//! A client's settings.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(feature = "redis")]
use super::connect::RedisSettings;
use super::{Inner, NameMapper, RedissonClient};
use crate::clock::Clock;
use crate::failure_policy::FailurePolicy;
use crate::fallback::RecentDenials;
use crate::handle_options::HandleOptions;
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

    /// The client's id, by which limiters with a rate per client tell clients apart. A process that keeps its id over
    /// a restart keeps its permits. The default is a new UUID.
    #[must_use]
    pub fn client_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// How the name of a limiter becomes its name in Redis, as Redisson's `NameMapper` does it. The default leaves it
    /// as it is.
    #[doc(alias = "setNameMapper")]
    #[must_use]
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.name_mapper = Some(Box::new(map));
        self
    }

    /// The clock that scores the grants. The default is the server's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// What requests get while Redis is away. The default is [`FailurePolicy::Error`].
    ///
    /// [`connect`](Self::connect) itself needs a server, whatever the policy:
    /// [`wait_for_server`](Self::wait_for_server) lets it wait for one.
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

    /// Lets a limiter remember what Redis told it: where fewer than n permits are left until some time, requests for n or
    /// more are denied without asking again until then, for `at_most` after that answer was asked for. So a client that is
    /// mostly denied sends one call in `at_most`, however many requests it has. The default, zero, asks for each.
    ///
    /// What others change, by giving permits back, setting the rate or removing the limiter, is seen up to `at_most` late.
    /// What this client changes by a method of that limiter, or with the rate of a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter), counts at once. Permits that come back with time are never late.
    ///
    /// It holds for `try_acquire`, a timeout of zero, `check`. Their denial has the time until the first permits
    /// are back, counted down, the other numbers as they were, and [`DecisionSource::Store`](crate::DecisionSource::Store).
    /// Waiters ask as they do without it, and [`check_all`](RedissonClient::check_all) always asks. A client with more than
    /// one tokio runtime may send one call for each of them.
    ///
    /// It makes no difference [in memory](RedissonClient::in_memory): there the decision itself takes no longer.
    ///
    /// ```
    /// use redisson_rate_limiter::RedissonClient;
    /// use std::time::Duration;
    ///
    /// let builder = RedissonClient::builder().remember_denials(Duration::from_millis(100));
    /// # drop(builder);
    /// ```
    #[must_use]
    pub fn remember_denials(mut self, at_most: Duration) -> Self {
        self.handles.remember_denials = at_most;
        self
    }

    /// How many callers may wait for permits of one limiter in this process: where there are so many, `acquire` and its timed
    /// form fail at once with [`Error::QueueFull`](crate::Error::QueueFull). The default is no bound. With 0, all of them fail.
    ///
    /// A caller counts from its call until its answer, also while its first call to Redis is under way: the bound should be
    /// larger than the number of callers that come at once where permits are there.
    ///
    /// ```
    /// use redisson_rate_limiter::RedissonClient;
    ///
    /// let builder = RedissonClient::builder().max_waiters(1_000);
    /// # drop(builder);
    /// ```
    #[doc(alias = "ArrayBlockingQueue")]
    #[must_use]
    pub fn max_waiters(mut self, max: usize) -> Self {
        self.handles.max_waiters = max;
        self
    }

    /// Whether the timed form of `acquire` is `false` at once where its permits certainly come later than its timeout. The
    /// default is to wait until then.
    ///
    /// It goes by [`RateLimiter::estimated_wait`](crate::RateLimiter::estimated_wait), without those in front who give
    /// up before the caller does. So nobody is
    /// refused who would have been served, unless others in front are dropped, give permits back, or raise the rate
    /// meanwhile. Where nothing is known, the caller waits.
    ///
    /// ```
    /// use redisson_rate_limiter::RedissonClient;
    ///
    /// let builder = RedissonClient::builder().fail_fast(true);
    /// # drop(builder);
    /// ```
    #[must_use]
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.handles.fail_fast = fail_fast;
        self
    }

    /// Keeps the limiters in memory, shared with all clients of the same store. No call fails for want of a server.
    #[must_use]
    pub fn in_memory(self, store: &MemoryStore) -> RedissonClient {
        let store = MemoryClient::new(store, self.clock.clone());
        self.build(store)
    }

    pub(crate) fn build(self, store: impl Store + 'static) -> RedissonClient {
        RedissonClient(Arc::new(Inner {
            store: Arc::new(store),
            id: self.id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            name_mapper: self.name_mapper,
            handles: self.handles,
            recent: RecentDenials::default(),
            local_store: Arc::new(MemoryClient::new(&MemoryStore::new(), Clock::server())),
            queues: Mutex::default(),
        }))
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
