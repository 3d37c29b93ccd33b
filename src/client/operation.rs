//! A client in operation: its health, and its end.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;

use super::RedissonClient;
use crate::error::Result;
use crate::health::Health;

impl RedissonClient {
    /// What the client knows about its servers, without asking them: the state of each circuit
    /// breaker, and why it was opened. These are the circuit breakers of the current tokio
    /// runtime's connections; of the connections of all runtimes if it has none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let client = RedissonClient::in_memory();
    /// assert!(client.health().is_healthy());
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        Health::new(self.0.store.health())
    }

    /// Asks each server for an answer, on a cluster each primary, within the response timeout. In
    /// memory it succeeds at once.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// RedissonClient::in_memory().ping().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// That of the first server that does not answer, or refuses:
    /// [`Error::StoreUnavailable`](crate::Error::StoreUnavailable) and
    /// [`Error::Indeterminate`](crate::Error::Indeterminate) (no answer came),
    /// [`Error::AuthenticationFailed`](crate::Error::AuthenticationFailed),
    /// [`Error::PermissionDenied`](crate::Error::PermissionDenied) and
    /// [`Error::NoRuntime`](crate::Error::NoRuntime). Once a server has been down for a response
    /// timeout, it fails at once.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn ping(&self) -> Result<()> {
        self.0.store.ping().await
    }

    /// Closes the client, its clones and all their limiters. From now on requests for permits fail
    /// with [`Error::Closed`](crate::Error::Closed), whatever the failure policy, and so do those
    /// who wait for permits. A request whose call is in flight still gets its answer, and a request
    /// that a [`LeakyBucket`](crate::LeakyBucket) granted still gets its turn. Then waits until the
    /// grants of requests without a caller are given back, and returns whether they all are.
    ///
    /// If the timeout passes first, giving back goes on in the background while the process runs.
    /// Permits that could not be given back, because the process ended or Redis was unavailable,
    /// are available again when their window has passed. Calls that give permits back, set or read
    /// a limiter still work, so that a handler that is about to end can
    /// [refund](crate::RateLimiter::refund) its grant.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.rate_limiter("mail");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
    /// limiter.acquire(1).await?;
    /// let waiting = tokio::spawn({
    ///     let limiter = limiter.clone();
    ///     async move { limiter.acquire(1).await }
    /// });
    /// tokio::task::yield_now().await;
    /// assert!(client.close(Duration::from_secs(5)).await);
    /// assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    /// assert!(matches!(limiter.try_acquire(1).await, Err(Error::Closed)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// The client is closed when the future is first polled. Dropping it ends only the wait.
    /// Another call waits again.
    #[doc(alias = "shutdown")]
    pub async fn close(&self, timeout: Duration) -> bool {
        self.0.close();
        let mut given_back = pin!(self.0.store.given_back());
        if Handle::try_current().is_ok() {
            let given_back = tokio::time::timeout(timeout, given_back).await;
            return given_back.unwrap_or(false);
        }
        // Without a runtime there is no timer.
        poll_fn(|context| Poll::Ready(given_back.as_mut().poll(context) == Poll::Ready(true))).await
    }

    /// Waits until the client is [closed](Self::close); returns at once if it already is: for tasks
    /// of a service that end with the client.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let client = RedissonClient::in_memory();
    /// let reporter = tokio::spawn({
    ///     let client = client.clone();
    ///     async move { tokio::time::timeout(Duration::from_secs(60), client.closed()).await }
    /// });
    /// tokio::task::yield_now().await;
    /// assert!(client.close(Duration::from_secs(5)).await);
    /// assert!(reporter.await.unwrap().is_ok());
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn closed(&self) {
        self.0.state.closed().await;
    }

    /// How many callers wait for permits, of all limiters of the client. See also
    /// [`RateLimiter::waiters`](crate::RateLimiter::waiters).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let mut waiting = tokio::task::JoinSet::new();
    /// for user in ["alice", "alice", "bob", "bob"] {
    ///     let mails = mails.clone();
    ///     waiting.spawn(async move { mails.acquire(user, 1).await });
    /// }
    /// tokio::task::yield_now().await;
    /// assert_eq!(client.waiters(), 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.0.waiters()
    }

    /// Whether the client was [closed](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.state.is_closed()
    }
}
