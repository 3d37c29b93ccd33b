//! What all connections of one client share.

use std::sync::Arc;
use std::time::Duration;

use super::credentials::Provider;
use super::tls::Tls;
use crate::store::breaker::Breakers;
use crate::store::redis::server_time::ServerTime;

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) credentials: Option<Provider>,
    pub(super) sentinel_credentials: Option<Provider>,
    pub(super) tls: Tls,
    pub(super) response_timeout: Duration,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) breakers: Arc<Breakers>,
}

impl Settings {
    /// For a Sentinel, which is asked to log in with these credentials. Its clock is not that of the limiters.
    pub(super) fn of_sentinel(&self, credentials: Option<Provider>) -> Self {
        Self {
            credentials,
            sentinel_credentials: None,
            tls: self.tls.clone(),
            response_timeout: self.response_timeout,
            server_time: Arc::new(ServerTime::unknown()),
            breakers: Arc::default(),
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
            tls: Tls::new(&address, &super::TlsConfig::default()).unwrap(),
            response_timeout: Duration::from_secs(1),
            server_time: Arc::new(ServerTime::unknown()),
            breakers: Arc::default(),
        }
    }
}
