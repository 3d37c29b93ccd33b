//! What a client connects with, and what all its connections share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::PushInfo;

use super::credentials::Provider;
use super::server_time::ServerTime;
use super::tls::{Tls, TlsConfig};
use crate::breaker::Breakers;

/// How the builder of a client says to connect.
#[derive(Clone)]
pub(crate) struct Connecting {
    pub(crate) credentials: Option<Provider>,
    pub(crate) sentinel_credentials: Option<Provider>,
    pub(crate) response_timeout: Duration,
    pub(crate) tls: TlsConfig,
    /// How long `connect` keeps trying if no server is ready.
    pub(crate) wait_for_server: Duration,
    /// Whether `connect` fails if no server is ready in that time.
    pub(crate) require_server: bool,
}

impl Default for Connecting {
    fn default() -> Self {
        Self {
            credentials: None,
            sentinel_credentials: None,
            response_timeout: Duration::from_secs(3),
            tls: TlsConfig::default(),
            wait_for_server: Duration::ZERO,
            require_server: true,
        }
    }
}

/// Without credentials and keys.
impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting")
            .field("response_timeout", &self.response_timeout)
            .field("wait_for_server", &self.wait_for_server)
            .field("require_server", &self.require_server)
            .finish_non_exhaustive()
    }
}

pub(super) struct Settings {
    pub(super) credentials: Option<Provider>,
    pub(super) sentinel_credentials: Option<Provider>,
    pub(super) tls: Tls,
    pub(super) response_timeout: Duration,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) breakers: Arc<Breakers>,
    /// Takes what arrives on a connection that subscribes to channels.
    pub(super) on_push: Option<OnPush>,
}

/// Called for each message, on the task that reads the connection.
#[derive(Clone)]
pub(super) struct OnPush(pub(super) Arc<dyn Fn(PushInfo) + Send + Sync>);

impl Settings {
    /// Returns the settings for a connection to a Sentinel, which logs in with these credentials.
    /// The Sentinel's clock is not that of the limiters.
    pub(super) fn of_sentinel(&self, credentials: Option<Provider>) -> Self {
        Self {
            credentials,
            sentinel_credentials: None,
            tls: self.tls.clone(),
            response_timeout: self.response_timeout,
            server_time: Arc::new(ServerTime::unknown()),
            breakers: Arc::default(),
            on_push: None,
        }
    }

    /// Returns the settings for a connection beside that of the calls. It reports no events, and
    /// does not learn the server's time.
    pub(super) fn of_subscriber(&self, on_push: OnPush) -> Self {
        Self {
            credentials: self.credentials.clone(),
            sentinel_credentials: self.sentinel_credentials.clone(),
            on_push: Some(on_push),
            ..self.of_sentinel(None)
        }
    }
}

#[cfg(test)]
impl Settings {
    /// Without a login or TLS.
    pub(super) fn for_test() -> Self {
        let address = super::address::parse("redis://127.0.0.1").unwrap();
        Self {
            credentials: None,
            sentinel_credentials: None,
            tls: Tls::new(&address, &TlsConfig::default()).unwrap(),
            response_timeout: Duration::from_secs(1),
            server_time: Arc::new(ServerTime::unknown()),
            breakers: Arc::default(),
            on_push: None,
        }
    }
}
