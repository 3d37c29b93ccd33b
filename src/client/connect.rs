//! How a client connects to Redis.

use std::fmt;
use std::time::Duration;

use redis::aio::ConnectionLike;

use super::{RedissonClient, RedissonClientBuilder};
use crate::error::{Error, Result};
use crate::store::redis::RedisStore;
use crate::store::redis::connection::{Connecting, Credentials, Provider, TlsConfig};

/// The settings that only a client of Redis has.
pub(super) struct RedisSettings {
    response_timeout: Duration,
    credentials: Option<Provider>,
    sentinel_credentials: Option<Provider>,
    tls: TlsConfig,
    wait_for_server: Duration,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            response_timeout: Duration::from_secs(3),
            credentials: None,
            sentinel_credentials: None,
            tls: TlsConfig::default(),
            wait_for_server: Duration::ZERO,
        }
    }
}

/// Without credentials and keys.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("response_timeout", &self.response_timeout)
            .field("wait_for_server", &self.wait_for_server)
            .finish_non_exhaustive()
    }
}

/// With the feature `redis`, which is on by default.
impl RedissonClientBuilder {
    /// How long a call waits for the server's answer, its repetitions included; also how long connecting may take.
    /// The default is 3 s.
    #[doc(alias = "setTimeout")]
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.redis.response_timeout = timeout;
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
        self.redis.credentials = Some(Provider::new(provide));
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
        self.redis.sentinel_credentials = Some(Provider::new(provide));
        self
    }

    /// Whom `rediss://` URLs trust, and how the client shows who it is.
    #[cfg(feature = "tls")]
    #[doc(alias = "setSslTruststore")]
    #[must_use]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.redis.tls = tls;
        self
    }

    /// How long [`connect`](Self::connect) waits for a server that is not there or not ready yet. What it waits for is a
    /// tracing event. Refused credentials end the waiting. The default is not to wait.
    #[must_use]
    pub fn wait_for_server(mut self, wait: Duration) -> Self {
        self.redis.wait_for_server = wait;
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
            credentials: self.redis.credentials.clone(),
            sentinel_credentials: self.redis.sentinel_credentials.clone(),
            tls: self.redis.tls.clone(),
            response_timeout: self.redis.response_timeout,
            wait: self.redis.wait_for_server,
        };
        let backend = RedisStore::connect(urls, connecting, self.clock.clone()).await?;
        Ok(self.build(backend))
    }

    /// Uses a connection of redis-rs as it is, for example one that the application has already. It is the only method with a
    /// type of redis-rs, and so the only one that changes with a new major version of that.
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
        let backend = RedisStore::over(connection, self.clock.clone(), self.redis.response_timeout);
        Ok(self.build(backend))
    }

    fn check_response_timeout(&self) -> Result<()> {
        if self.redis.response_timeout.is_zero() {
            return Err(Error::InvalidArgument {
                argument: "response timeout",
                reason: "it is zero",
            });
        }
        Ok(())
    }
}
