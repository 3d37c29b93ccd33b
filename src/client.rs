//! The client of one Redis, or of one store in memory, and the limiters in it.

mod builder;
#[cfg(feature = "redis")]
mod commands;
#[cfg(feature = "redis")]
mod connect;
mod hands_out;
mod operation;

use std::fmt;
use std::sync::Arc;

pub use builder::RedissonClientBuilder;
#[cfg(feature = "redis")]
pub use commands::{Reply, Server};

use crate::error::Result;
use crate::limiters::Registry;
use crate::store::memory::MemoryStore;

/// Hands out the limiters of one Redis, or of one store in memory. Cheap to clone; clones share
/// everything.
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
pub struct RedissonClient(Arc<Registry>);

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
    #[doc(alias = "Redisson.create")]
    pub async fn connect(urls: &str) -> Result<Self> {
        Self::builder().connect(urls).await
    }

    /// A client with a store of its own in this process, and no server. For clients that share a
    /// store, see [`MemoryStore`].
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

    #[cfg(test)]
    pub(crate) fn local_store(&self) -> &crate::fallback::LocalStore {
        &self.0.local_store
    }

    /// The client's id: the one that it was [given](RedissonClientBuilder::client_id), or a UUID. A
    /// rate [per client](crate::RateType::PerClient) identifies clients by it.
    #[doc(alias = "getId")]
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.client_id
    }
}

impl fmt::Debug for RedissonClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
