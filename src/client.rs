//! The client: one connection, or one store in memory, and the limiters in it.

mod builder;
#[cfg(feature = "redis")]
mod connect;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};

pub use builder::RedissonClientBuilder;

use crate::error::Result;
use crate::failure_policy::FailurePolicy;
use crate::fallback::{GuardedQueue, LocalStore, RecentDenials};
use crate::handle_options::HandleOptions;
use crate::keys::Keys;
use crate::limiter::RateLimiter;
use crate::policy::{Policy, PolicyLimiter};
use crate::store::Store;
use crate::store::memory::MemoryStore;

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

pub(crate) type NameMapper = Box<dyn Fn(&str) -> String + Send + Sync>;

struct Inner {
    store: Arc<dyn Store>,
    id: String,
    name_mapper: Option<NameMapper>,
    handles: HandleOptions,
    /// The queues whose last answer may be asked for again.
    recent: Arc<RecentDenials>,
    /// The shares of limiters that are granted here while the store is away.
    local_store: Arc<LocalStore>,
    queues: RwLock<Queues>,
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
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let refused = RedissonClient::connect("http://127.0.0.1:6379").await;
    /// assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    /// # if false {
    /// let client = RedissonClient::connect("redis://127.0.0.1:6379").await?;
    /// let limiter = client.rate_limiter("orders:api");
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClientBuilder::connect`].
    ///
    /// # Cancel safety
    /// As [`RedissonClientBuilder::connect`].
    #[cfg(feature = "redis")]
    #[doc(alias = "Redisson.create")]
    pub async fn connect(urls: &str) -> Result<Self> {
        Self::builder().connect(urls).await
    }

    /// A client with a store of its own in this process, without a server. For clients that share a store, see [`MemoryStore`].
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.rate_limiter("orders:api");
    /// assert!(limiter.try_set_rate(Rate::overall(5, Duration::from_secs(1))).await?);
    /// assert!(RedissonClient::in_memory().rate_limiter("orders:api").config().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory(&MemoryStore::new())
    }

    /// Builds a client with settings of its own.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::builder().client_id("worker-7").in_memory(&MemoryStore::new());
    /// assert_eq!(client.id(), "worker-7");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "Config")]
    #[must_use]
    pub fn builder() -> RedissonClientBuilder {
        RedissonClientBuilder::new()
    }

    /// The limiter of this name, whether it exists or not. Sends nothing.
    ///
    /// All handles of one name that a client hands out share one queue of waiters. The calls of a limiter whose name cannot
    /// be used fail with [`Error::InvalidName`](crate::Error::InvalidName).
    ///
    /// The name is used in Redis as it is, as Redisson does. Do not build it from text that a user chooses: the limiters
    /// `u{1` and `u{1:value` use the same key in Redis. A [`KeyedRateLimiter`](crate::KeyedRateLimiter) accepts any text as
    /// a key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.rate_limiter("orders:api");
    /// assert!(!limiter.exists().await?); // nothing was created
    /// assert!(matches!(client.rate_limiter("").exists().await, Err(Error::InvalidName { .. })));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getRateLimiter")]
    pub fn rate_limiter(&self, name: &str) -> RateLimiter {
        self.limiter_of_mapped(&self.mapped_name(name))
    }

    /// The limiter of a name that the name mapper has mapped already.
    pub(crate) fn limiter_of_mapped(&self, mapped: &str) -> RateLimiter {
        let inner = &*self.0;
        let queue = self.queue_in_use(mapped).unwrap_or_else(|| {
            let mut queues = inner.queues.write().unwrap_or_else(PoisonError::into_inner);
            queues.get_or_create(mapped, inner)
        });
        RateLimiter::new(queue, inner.handles)
    }

    /// The queue of a name that the name mapper has mapped already, if there is one.
    pub(crate) fn queue_in_use(&self, mapped: &str) -> Option<Arc<GuardedQueue>> {
        // The map stays whole whatever panics elsewhere. Requests by key come here each time, so those of a queue in use
        // do not wait for each other.
        let queues = self.0.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.get(mapped)
    }

    /// A limiter that decides by `policy`, for any number of targets. Sends nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// assert!(!limiter.check("user:123", 1).await?.is_granted());
    /// let no_requests = FixedWindow::new(0, Duration::from_secs(60));
    /// assert!(matches!(client.limiter(no_requests), Err(Error::InvalidArgument { .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a number of the policy is out of its range.
    pub fn limiter<P: Policy>(&self, policy: P) -> Result<PolicyLimiter<P>> {
        PolicyLimiter::new(self.clone(), policy)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub(crate) fn local_store(&self) -> &Arc<LocalStore> {
        &self.0.local_store
    }

    /// What requests get while Redis is unavailable, unless a limiter has a policy of its own.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(RedissonClient::in_memory().failure_policy(), FailurePolicy::Error);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.0.handles.failure_policy
    }

    pub(crate) fn handle_options(&self) -> HandleOptions {
        self.0.handles
    }

    pub(crate) fn name_mapper(&self) -> Option<&NameMapper> {
        self.0.name_mapper.as_ref()
    }

    pub(crate) fn mapped_name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        match &self.0.name_mapper {
            Some(map) => Cow::Owned(map(name)),
            None => Cow::Borrowed(name),
        }
    }

    /// The client's id: the one that it was [given](RedissonClientBuilder::client_id), or a UUID. A rate [per
    /// client](crate::RateType::PerClient) identifies clients by it.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let (a, b) = (RedissonClient::in_memory(), RedissonClient::in_memory());
    /// assert_ne!(a.id(), b.id());
    /// assert_eq!(a.id(), a.clone().id());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getId")]
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }
}

impl Queues {
    fn get(&self, name: &str) -> Option<Arc<GuardedQueue>> {
        self.by_name.get(name).and_then(Weak::upgrade)
    }

    fn get_or_create(&mut self, name: &str, client: &Inner) -> Arc<GuardedQueue> {
        if let Some(queue) = self.get(name) {
            return queue;
        }
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, queue| queue.strong_count() > 0);
            self.sweep_at = SMALLEST_SWEEP.max(self.by_name.len() * 2);
        }
        let keys = Arc::new(Keys::new(name, &client.id));
        let (store, local) = (Arc::clone(&client.store), Arc::clone(&client.local_store));
        let queue = GuardedQueue::new(store, local, &client.recent, keys);
        let queue = Arc::new(queue);
        self.by_name.insert(name.to_owned(), Arc::downgrade(&queue));
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
        assert!(client.0.queues.read().unwrap().by_name.len() <= SMALLEST_SWEEP + 1);
        assert!(client.rate_limiter("kept").shares_queue_with(&kept));
    }
}
