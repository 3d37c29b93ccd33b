//! How a client connects to Redis.

use std::time::Duration;

use redis::aio::ConnectionLike;

use super::{RedissonClient, RedissonClientBuilder};
use crate::breaker::Breakers;
use crate::clock::LATE;
use crate::error::{Error, Result};
#[cfg(feature = "tls")]
use crate::link::TlsConfig;
use crate::link::{Credentials, Provider};
use crate::store::redis::RedisStore;

/// With the feature `redis`, which is on by default.
impl RedissonClientBuilder {
    /// The longest time that a call takes, including its retries and the wait for a connection, and
    /// the longest time that connecting takes. Waiting for permits comes on top. The default is 3
    /// s.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let no_time = RedissonClient::builder().response_timeout(Duration::ZERO);
    /// let refused = no_time.connect("redis://127.0.0.1:6379").await;
    /// assert!(matches!(refused, Err(Error::InvalidArgument { argument: "response_timeout", .. })));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "setTimeout")]
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        // The timeout is added to the present time in many places, which must not overflow.
        self.redis.response_timeout = timeout.min(LATE);
        self
    }

    /// Calls `provide` for the credentials of each new connection, instead of taking them from the
    /// URL. So a password or a token can change while the client lives: the next connection logs in
    /// with the new one.
    ///
    /// While the server refuses the credentials, or `provide` fails, the client tries again in the
    /// background, and its calls fail at their response timeout.
    ///
    /// ```
    /// use redisson_rate_limiter::{Credentials, RedissonClient};
    ///
    /// let builder = RedissonClient::builder().credentials(|| async {
    ///     let password = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok::<_, std::io::Error>(Credentials::password(password.trim()))
    /// });
    /// // It is called when the client connects; no credentials are ever printed.
    /// assert!(!format!("{builder:?}").contains("password"));
    /// ```
    #[doc(alias = "setCredentialsResolver")]
    #[must_use]
    pub fn credentials<F, A, E>(mut self, provide: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.redis.credentials = Some(Provider::new(provide));
        self
    }

    /// Calls `provide` for the credentials of each new connection to a Sentinel, if the Sentinels
    /// have other credentials than the servers. Without it, a Sentinel that requires a login gets
    /// the credentials of the servers.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use redisson_rate_limiter::{Credentials, RedissonClient};
    ///
    /// let builder = RedissonClient::builder()
    ///     .sentinel_credentials(|| async { Ok::<_, Infallible>(Credentials::new("watcher", "s3cret")) });
    /// assert!(!format!("{builder:?}").contains("s3cret"));
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
        self.redis.sentinel_credentials = Some(Provider::new(provide));
        self
    }

    /// Which certificate authorities the client trusts on `rediss://` connections, and its own
    /// certificate. Requires the feature `tls`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let tls = TlsConfig::new().ca_pem("not a certificate");
    /// let client = RedissonClient::builder().tls(tls).connect("rediss://127.0.0.1:6379").await;
    /// assert!(matches!(client, Err(Error::InvalidArgument { .. })));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tls")]
    #[doc(alias = "setSslTruststore")]
    #[must_use]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.redis.tls = tls;
        self
    }

    /// How long [`connect`](Self::connect) waits for a server that is not there or not ready. A
    /// `tracing` event names the reason for the wait. Refused credentials end the wait. By default
    /// it does not wait; only a server that accepts the connection and does not answer is asked
    /// again until the response timeout.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let builder = RedissonClient::builder().wait_for_server(Duration::from_millis(10));
    /// let nobody_listens = builder.connect("redis://127.0.0.1:1").await;
    /// assert!(matches!(nobody_listens, Err(Error::StoreUnavailable { .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn wait_for_server(mut self, wait: Duration) -> Self {
        self.redis.wait_for_server = wait;
        self
    }

    /// Whether [`connect`](Self::connect) fails if no server answers. The default is `true`.
    ///
    /// With `false`, `connect` then returns a client that starts in an outage: at once if nobody
    /// listens, and after the response timeout if nothing answers; or after
    /// [`wait_for_server`](Self::wait_for_server), if that is longer. The client goes on trying to
    /// connect. Until there is a server, the [`FailurePolicy`](crate::FailurePolicy) decides on
    /// requests and waiters, other calls fail with [`Error::StoreUnavailable`], and
    /// [`health`](RedissonClient::health) and [`ping`](RedissonClient::ping) say why. If the server
    /// refuses the client when it is first reached, calls fail with that error, as in any outage.
    ///
    /// `connect` still returns an error for what is wrong with its arguments, and for credentials
    /// or a database that a server refuses.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder()
    ///     .require_server(false)
    ///     .default_options(LimiterOptions::new().failure_policy(FailurePolicy::Allow))
    ///     .connect("redis://127.0.0.1:1") // nobody listens there
    ///     .await?;
    /// assert!(!client.health().is_healthy());
    /// let decision = client.rate_limiter("orders:api").check(1).await?;
    /// assert!(decision.is_granted() && decision.is_by_failure_policy());
    /// # Ok(()) }
    /// ```
    #[doc(alias = "setLazyInitialization")]
    #[doc(alias = "connect_lazy")]
    #[must_use]
    pub fn require_server(mut self, is_required: bool) -> Self {
        self.redis.require_server = is_required;
        self
    }

    /// Connects to a single server, to the primary that Sentinels name, or to a cluster: pass one
    /// URL, or several nodes of a cluster separated by commas. A single server that is part of a
    /// cluster is recognized.
    ///
    /// A URL is `redis://[user[:password]@]host[:port][/db]`, `rediss://…` for TLS (feature `tls`),
    /// `redis+unix:///path`, or
    /// `redis-sentinel://[user:password@]host1:26379,host2:26379/primary-name[/db]`. Clusters
    /// require the feature `cluster`.
    ///
    /// Each tokio runtime that makes calls has its own connection to each server, so that no
    /// runtime waits for another one to be polled. A connection that is lost or silent, or whose
    /// server is no longer a primary, is replaced in the background. Calls wait for the next one
    /// until their response timeout.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let refused = RedissonClient::builder().connect("http://127.0.0.1:6379").await;
    /// assert!(matches!(refused, Err(Error::InvalidArgument { .. })));
    /// # if false {
    /// let client = RedissonClient::builder()
    ///     .response_timeout(Duration::from_millis(500))
    ///     .connect("redis://127.0.0.1:6379")
    ///     .await?;
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a malformed URL, a URL that needs a feature which is not
    /// enabled, or a response timeout of 0; [`Error::StoreUnavailable`] if no server answers and
    /// one is [required](Self::require_server); [`Error::AuthenticationFailed`] if it refuses the
    /// credentials; [`Error::NoRuntime`] outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that it opened.
    #[doc(alias = "SentinelServersConfig")]
    #[doc(alias = "ClusterServersConfig")]
    pub async fn connect(self, urls: &str) -> Result<RedissonClient> {
        self.check_response_timeout()?;
        let (connecting, clock) = (self.redis.clone(), self.clock.clone());
        let breakers = Breakers::new(self.events.clone());
        let backend = RedisStore::connect(urls, connecting, breakers, clock).await?;
        Ok(self.build(backend))
    }

    /// Uses a connection of redis-rs, for example one that the application already has. It is the
    /// only method with a type of redis-rs, and so the only one that changes with a new major
    /// version of redis-rs.
    ///
    /// The connection keeps its own behaviour: its timeouts, and retries after a lost connection.
    /// Use a `ClusterConnection` with `retries(0)`, or [`connect`](Self::connect) instead, so that
    /// only this crate retries a call. A call ends at its response timeout whatever the connection
    /// does. All runtimes share the connection: calls stall while the runtime that drives it is not
    /// polled.
    ///
    /// ```no_run
    /// # use redisson_rate_limiter::*;
    /// # async fn connect() -> std::result::Result<(), Box<dyn std::error::Error>> {
    /// let redis = redis::Client::open("redis://127.0.0.1:6379")?;
    /// let connection = redis.get_multiplexed_async_connection().await?;
    /// let client = RedissonClient::builder().connection(connection)?;
    /// let limiter = client.rate_limiter("orders:api");
    /// assert_eq!(limiter.config().await?, None);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a response timeout of 0.
    pub fn connection<C>(self, connection: C) -> Result<RedissonClient>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        self.check_response_timeout()?;
        let (clock, breakers) = (self.clock.clone(), Breakers::new(self.events.clone()));
        let backend = RedisStore::over(connection, clock, self.redis.response_timeout, breakers);
        Ok(self.build(backend))
    }

    fn check_response_timeout(&self) -> Result<()> {
        if self.redis.response_timeout.is_zero() {
            return Err(Error::InvalidArgument {
                argument: "response_timeout",
                reason: "must not be zero",
            });
        }
        Ok(())
    }
}
