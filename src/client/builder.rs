//! A client's settings.

use std::fmt;
use std::sync::Arc;

use super::RedissonClient;
#[cfg(any(feature = "test-util", test))]
use crate::breaker::Breakers;
use crate::clock::Clock;
#[cfg(not(feature = "redis"))]
use crate::error::Error;
use crate::error::Result;
use crate::event::{Event, Events};
use crate::limiter_options::LimiterOptions;
use crate::limiters::{NameMapper, Registry};
#[cfg(feature = "redis")]
use crate::link::Connecting;
use crate::store::Store;
#[cfg(any(feature = "test-util", test))]
use crate::store::memory::{Faults, FaultyStore};
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
    options: LimiterOptions,
    pub(super) events: Events,
    #[cfg(feature = "redis")]
    pub(super) redis: Connecting,
}

impl RedissonClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            id: None,
            name_mapper: None,
            clock: Clock::server(),
            options: LimiterOptions::new(),
            events: Events::default(),
            #[cfg(feature = "redis")]
            redis: Connecting::default(),
        }
    }

    /// The client's id, by which a rate [per client](crate::RateType::PerClient) identifies
    /// clients. A process that keeps its id across a restart keeps its permits. The default is a
    /// new UUID.
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

    /// Maps the name of a limiter to its name in Redis, as Redisson's `NameMapper` does. The
    /// default leaves it as it is.
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

    /// The options of all limiters of the client, unless a limiter has its own. Those that
    /// `options` does not set stay as they are.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, LimiterOptions, MemoryStore, RedissonClient};
    ///
    /// let options = LimiterOptions::new().failure_policy(FailurePolicy::Allow);
    /// let builder = RedissonClient::builder().default_options(options.clone());
    /// let client = builder.in_memory(&MemoryStore::new());
    /// assert_eq!(*client.rate_limiter("orders").options(), options);
    /// ```
    #[must_use]
    pub fn default_options(mut self, options: LimiterOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// Calls `handler` for each [`Event`]: how each request ended, each call to Redis, and each
    /// change of a connection. By default nothing is called, and an event costs nothing.
    ///
    /// The handler runs on the thread on which the event happens, mostly of a tokio runtime: it
    /// should be quick and must not block. Events of several threads come in any order. The handler
    /// may use the client. If it owns a clone of the client or a limiter, the client's connections
    /// stay open for ever. If it panics, the panic is caught, and the request goes on.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let (sender, results) = std::sync::mpsc::channel();
    /// let builder = RedissonClient::builder().on_event(move |event| {
    ///     if let Event::Request { limiters, result, took, .. } = event {
    ///         let _ = sender.send((limiters[0].name.to_owned(), *result, *took));
    ///     }
    /// });
    /// let limiter = builder.in_memory(&MemoryStore::new()).rate_limiter("orders:api");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(1))).await?;
    /// limiter.acquire(1).await?;
    /// limiter.acquire(1).await?; // waits until the permit is back
    /// let granted = RequestResult::Granted(DecisionSource::Store);
    /// let waited = |(name, result, took): &(String, _, Duration)| {
    ///     name == "orders:api" && *result == granted && *took >= Duration::from_secs(1)
    /// };
    /// assert_eq!(results.try_iter().map(|it| waited(&it)).collect::<Vec<_>>(), [false, true]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn on_event(mut self, handler: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.events = Events::new(handler);
        self
    }

    /// Makes a client that keeps its limiters in memory, shared with all clients of the same store,
    /// and needs no server.
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
        let store = store.reporting_to(self.events.clone());
        self.build(store)
    }

    /// Connects to Redis if there are URLs; otherwise keeps the limiters in memory, in a store of
    /// this client's own: for a service whose Redis is optional.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let urls = std::env::var("NOT_SET_REDIS_URL").ok();
    /// let client = RedissonClient::builder().connect_or_memory(urls).await?;
    /// client.ping().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_or_memory(self, urls: Option<impl AsRef<str>>) -> Result<RedissonClient> {
        match urls {
            Some(urls) => self.connect(urls.as_ref()).await,
            None => Ok(self.in_memory(&MemoryStore::new())),
        }
    }

    /// Makes a client of a store in memory that `faults` makes fail, stall or deny requests: see
    /// [`Faults`](crate::Faults). With the feature `test-util`.
    ///
    /// The client behaves as one of a server does: its requests need a tokio runtime, have a
    /// response timeout (3 s unless the builder has another one) and pass the circuit breaker of a
    /// server that is called `memory`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let (store, faults) = (MemoryStore::new(), Faults::new());
    /// let cut_off = RedissonClient::builder().in_memory_with_faults(&store, &faults).rate_limiter("shared");
    /// let other = RedissonClient::builder().in_memory(&store).rate_limiter("shared");
    /// cut_off.set_rate(Rate::overall(5, Duration::from_secs(1))).await?;
    /// faults.lose_store();
    /// assert!(matches!(cut_off.try_acquire(1).await, Err(Error::StoreUnavailable { .. })));
    /// assert!(other.try_acquire(5).await?);
    /// # Ok(()) }
    /// ```
    #[cfg(any(feature = "test-util", test))]
    #[must_use]
    pub fn in_memory_with_faults(self, store: &MemoryStore, faults: &Faults) -> RedissonClient {
        #[cfg(feature = "redis")]
        let response_timeout = self.redis.response_timeout;
        #[cfg(not(feature = "redis"))]
        let response_timeout = std::time::Duration::from_secs(3);
        let memory = MemoryClient::new(store, self.clock.clone());
        let memory = memory.reporting_to(self.events.clone());
        let breakers = Breakers::new(self.events.clone());
        let store = FaultyStore::new(memory, faults, response_timeout, breakers);
        self.build(store)
    }

    pub(crate) fn build(self, store: impl Store + 'static) -> RedissonClient {
        let id = self.id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let registry = Registry::new(
            Arc::new(store),
            id.into(),
            self.name_mapper,
            self.options,
            self.events,
        );
        RedissonClient(Arc::new(registry))
    }
}

#[cfg(not(feature = "redis"))]
impl RedissonClientBuilder {
    /// Needs the feature `redis`, and fails without it.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let client = RedissonClient::builder().connect("redis://127.0.0.1:6379").await;
    /// let error = client.unwrap_err().to_string();
    /// assert_eq!(error, "invalid argument: `urls` names a server, which needs this crate's feature `redis`");
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument), which names the feature.
    ///
    /// # Cancel safety
    /// Nothing is done.
    pub async fn connect(self, _urls: &str) -> Result<RedissonClient> {
        Err(Error::InvalidArgument {
            argument: "urls",
            reason: "names a server, which needs this crate's feature `redis`",
        })
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
