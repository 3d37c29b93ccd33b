//! What all connections of one client share.

use std::sync::Arc;
use std::time::Duration;

use super::credentials::Provider;
use super::tls::Tls;
use crate::store::redis::server_time::ServerTime;

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) credentials: Option<Provider>,
    pub(super) tls: Tls,
    pub(super) response_timeout: Duration,
    pub(super) server_time: Arc<ServerTime>,
}

impl Settings {
    /// For a server whose clock is not that of the limiters.
    pub(super) fn apart(&self) -> Self {
        Self {
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
            response_timeout: self.response_timeout,
            server_time: Arc::new(ServerTime::unknown()),
        }
    }

    pub(super) fn without_login(&self) -> Self {
        Self {
            credentials: None,
            ..self.apart()
        }
    }
}
