//! The client: one connection, or one store in memory, and the limiters in it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::aio::ConnectionLike;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::failure_policy::FailurePolicy;
use crate::fallback::{GuardedQueue, RecentDenials};
use crate::handle_options::HandleOptions;
use crate::keys::Keys;
use crate::limiter::RateLimiter;
use crate::policy::{Policy, PolicyLimiter};
use crate::store::Store;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::redis::RedisStore;
use crate::store::redis::connection::{Connecting, Credentials, Provider, TlsConfig};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Hands out the limiters of one Redis, or of one store in memory. Cheap to clone; clones share everything.
///
/// ```
/// use redisson_rate_limiter::{Rate, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory(); // or RedissonClient::connect("redis://127.0.0.1:6379").await?
/// let limiter = client.rate_limiter("orders:api");
/// assert!(limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?);
/// assert!(limiter.try_acquire(5).await?);
/// assert!(!limiter.try_acquire(1).await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedissonClient(Arc<Inner>);

type NameMapper = Box<dyn Fn(&str) -> String + Send + Sync>;

struct Inner {
    store: Arc<dyn Store>,
    id: String,
    name_mapper: Option<NameMapper>,
    handles: HandleOptions,
    /// The queues of keys whose last answer may be asked for again.
    recent: RecentDenials,
    /// The shares of limiters that are granted here while the store is away.
    local_store: Arc<MemoryClient>,
    queues: Mutex<Queues>,
}

/// The queues in use. One that no limiter holds any more leaves a dead entry, which is dropped when they are many.
#[derive(Default)]
struct Queues {
    by_name: HashMap<String, Weak<GuardedQueue>>,
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 64;

impl RedissonClient {
    /// Connects to Redis with the default settings: see [`RedissonClientBuilder::connect`].
    ///
    /// # Errors
    /// As [`RedissonClientBuilder::connect`].
    #[doc(alias = "Redisson.create")]
    pub async fn connect(urls: &str) -> Result<Self> {
        Self::builder().connect(urls).await
    }

    /// A client with a store of its own in this process, without any server.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory(&MemoryStore::new())
    }

    /// A client with settings of its own.
    #[doc(alias = "Config")]
    #[must_use]
    pub fn builder() -> RedissonClientBuilder {
        RedissonClientBuilder {
            id: None,
            name_mapper: None,
            clock: Clock::server(),
            response_timeout: RESPONSE_TIMEOUT,
            credentials: None,
            sentinel_credentials: None,
            tls: TlsConfig::default(),
            wait_for_server: Duration::ZERO,
            handles: HandleOptions::default(),
        }
    }

    /// The limiter of this name, set up or not. Sends nothing.
    ///
    /// All handles of one name that a client hands out share one queue. A name that cannot be used is told by the
    /// limiter's calls, as [`Error::InvalidName`].
    ///
    /// The name is Redisson's, as it is. So do not build it from text that a user chose: the limiters `u{1` and `u{1:value` use
    /// the same key in Redis. A [`KeyedRateLimiter`](crate::KeyedRateLimiter) takes any text for a key.
    #[doc(alias = "getRateLimiter")]
    pub fn rate_limiter(&self, name: &str) -> RateLimiter {
        let inner = &*self.0;
        let mapped = self.mapped_name(name).into_owned();
        // The map stays whole whatever panics elsewhere.
        let mut queues = inner.queues.lock().unwrap_or_else(PoisonError::into_inner);
        RateLimiter::new(queues.get(mapped, inner), inner.handles)
    }

    /// A limiter that decides by `policy`, for any number of targets. Sends nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for numbers of the policy that are out of their range.
    pub fn limiter<P: Policy>(&self, policy: P) -> Result<PolicyLimiter<P>> {
        PolicyLimiter::new(self.clone(), policy)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn local_store(&self) -> &MemoryClient {
        &self.0.local_store
    }

    /// What requests get while Redis is away, where a limiter has no policy of its own.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.0.handles.failure_policy
    }

    pub(crate) fn handle_options(&self) -> HandleOptions {
        self.0.handles
    }

    /// The limiters whose last denial is kept while nobody has a handle on them.
    pub(crate) fn recent_denials(&self) -> &RecentDenials {
        &self.0.recent
    }

    pub(crate) fn mapped_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match &self.0.name_mapper {
            Some(map) => Cow::Owned(map(name)),
            None => Cow::Borrowed(name),
        }
    }

    /// The client's id. Limiters with a rate per client tell clients apart by it.
    #[doc(alias = "getId")]
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }
}

impl Queues {
    fn get(&mut self, name: String, client: &Inner) -> Arc<GuardedQueue> {
        if let Some(queue) = self.by_name.get(&name).and_then(Weak::upgrade) {
            return queue;
        }
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, queue| queue.strong_count() > 0);
            self.sweep_at = SMALLEST_SWEEP.max(self.by_name.len() * 2);
        }
        let keys = Keys::new(&name, &client.id);
        let (store, local) = (Arc::clone(&client.store), Arc::clone(&client.local_store));
        let queue = Arc::new(GuardedQueue::new(store, local, keys));
        self.by_name.insert(name, Arc::downgrade(&queue));
        queue
    }
}

impl fmt::Debug for RedissonClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedissonClient")
            .field("id", &self.0.id)
            .field("store", &self.0.store)
            .finish_non_exhaustive()
    }
}

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
    clock: Clock,
    response_timeout: Duration,
    credentials: Option<Provider>,
    sentinel_credentials: Option<Provider>,
    tls: TlsConfig,
    wait_for_server: Duration,
    handles: HandleOptions,
}

impl RedissonClientBuilder {
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

    /// How long a call waits for the server's answer, its repetitions included; also how long connecting may take.
    /// The default is 3 s.
    #[doc(alias = "setTimeout")]
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
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
    /// form fail at once with [`Error::QueueFull`]. The default is no bound. With 0, all of them fail.
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
    /// It goes by [`RateLimiter::estimated_wait`], without those in front who give up before the caller does. So nobody is
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

    /// Asks `provide` for the credentials of each new connection, instead of taking them from the URL. So a password or a
    /// token may change while the client lives: the next connection logs in with the new one.
    ///
    /// While the credentials are refused, or `provide` fails, the client tries again in the background, and its calls
    /// fail at their response timeout.
    ///
    /// ```
    /// use redisson_rate_limiter::{Credentials, RedissonClient};
    ///
    /// let builder = RedissonClient::builder().credentials(|| async {
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, std::io::Error>(Credentials::password(password.trim()))
    /// });
    /// # drop(builder);
    /// ```
    #[doc(alias = "setCredentialsResolver")]
    #[must_use]
    pub fn credentials<F, A, E>(mut self, provide: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.credentials = Some(Provider::new(provide));
        self
    }

    /// Asks `provide` for the credentials of each new connection to a Sentinel, where the Sentinels have other ones than
    /// the servers. Without it, a Sentinel that asks for a login gets that of the servers.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use redisson_rate_limiter::{Credentials, RedissonClient};
    ///
    /// let builder = RedissonClient::builder()
    ///     .sentinel_credentials(|| async { Ok::<_, Infallible>(Credentials::new("watcher", "s3cret")) });
    /// # drop(builder);
    /// ```
    #[doc(alias = "setSentinelUsername")]
    #[doc(alias = "setSentinelPassword")]
    #[must_use]
    pub fn sentinel_credentials<F, A, E>(mut self, provide: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.sentinel_credentials = Some(Provider::new(provide));
        self
    }

    /// Whom `rediss://` URLs trust, and how the client shows who it is.
    #[cfg(feature = "tls")]
    #[doc(alias = "setSslTruststore")]
    #[must_use]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.tls = tls;
        self
    }

    /// How long [`connect`](Self::connect) waits for a server that is not there or not ready yet. What it waits for is a
    /// tracing event. Refused credentials end the waiting. The default is not to wait.
    #[must_use]
    pub fn wait_for_server(mut self, wait: Duration) -> Self {
        self.wait_for_server = wait;
        self
    }

    /// Connects to one server, to the primary that Sentinels name, or to a cluster: give one URL, or several nodes of a
    /// cluster with commas between them. That a single server is part of a cluster is noticed.
    ///
    /// A URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://…` for TLS (feature `tls`), `redis+unix:///path`,
    /// or `redis-sentinel://[user:password@]host1:26379,host2:26379/primary-name[/db]`.
    ///
    /// Each tokio runtime that makes calls has a connection of its own to each server, so that no runtime waits for
    /// another one to be polled. A connection that is lost, silent, or leads to a server that is no primary any more is
    /// replaced in the background. Calls wait for the next one until their response timeout.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a URL that is none or a response timeout of 0, [`Error::StoreUnavailable`] where
    /// no server answers, [`Error::AuthenticationFailed`] where it refuses the credentials, [`Error::NoRuntime`] outside
    /// a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    #[doc(alias = "SentinelServersConfig")]
    #[doc(alias = "ClusterServersConfig")]
    pub async fn connect(self, urls: &str) -> Result<RedissonClient> {
        self.check_response_timeout()?;
        let connecting = Connecting {
            credentials: self.credentials.clone(),
            sentinel_credentials: self.sentinel_credentials.clone(),
            tls: self.tls.clone(),
            response_timeout: self.response_timeout,
            wait: self.wait_for_server,
        };
        let backend = RedisStore::connect(urls, connecting, self.clock.clone()).await?;
        Ok(self.build(backend))
    }

    /// Uses a connection of redis-rs as it is, for example one that the application has already.
    ///
    /// What that connection does by itself stays: its timeouts, and repetitions after a lost connection. Take a
    /// `ClusterConnection` with `retries(0)` or leave connecting to [`connect`](Self::connect), so that only this crate
    /// repeats a call. A call ends at its response timeout whatever
    /// the connection does. All runtimes use the one connection: where it stands still because its own runtime is not
    /// polled, so do the calls.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a response timeout of 0.
    pub fn connection<C>(self, connection: C) -> Result<RedissonClient>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check_response_timeout()?;
        let backend = RedisStore::over(connection, self.clock.clone(), self.response_timeout);
        Ok(self.build(backend))
    }

    fn check_response_timeout(&self) -> Result<()> {
        if self.response_timeout.is_zero() {
            return Err(Error::InvalidArgument {
                argument: "response timeout",
                reason: "it is zero",
            });
        }
        Ok(())
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
        f.debug_struct("RedissonClientBuilder")
            .field("id", &self.id)
            .field("clock", &self.clock)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_one_name_share_a_queue_and_names_out_of_use_cost_no_memory_for_ever() {
        let client = RedissonClient::in_memory();
        let kept = client.rate_limiter("kept");
        for i in 0..10_000 {
            client.rate_limiter(&i.to_string());
        }
        assert!(client.0.queues.lock().unwrap().by_name.len() <= SMALLEST_SWEEP + 1);
        assert!(client.rate_limiter("kept").shares_queue_with(&kept));
    }
}
