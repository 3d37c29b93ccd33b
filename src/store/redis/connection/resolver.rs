//! Which server a connection leads to: resolved for each connection.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use redis::RedisError;

use super::address::{Endpoint, Server};
use super::open::Open;
use super::round_trip::RoundTrip;
use super::sentinel::Sentinels;
use super::settings::Settings;
use super::setup;
use crate::store::redis::failure;

#[derive(Debug)]
pub(super) enum Resolver {
    Server(Server),
    /// The one server of a URL, which may be part of a cluster.
    First {
        server: Server,
        /// Known once there was a connection.
        is_part_of_cluster: OnceLock<bool>,
    },
    Sentinels(Sentinels),
}

impl Resolver {
    pub(super) fn first(server: Server) -> Self {
        Self::First {
            server,
            is_part_of_cluster: OnceLock::new(),
        }
    }

    /// Whether the server is known to be part of a cluster, whose nodes have links of their own.
    pub(super) fn is_part_of_cluster(&self) -> bool {
        match self {
            Self::First {
                is_part_of_cluster, ..
            } => is_part_of_cluster.get() == Some(&true),
            Self::Server(_) | Self::Sentinels(_) => false,
        }
    }

    /// Opens a connection to the server to be used now. `wants_primary` after a server that was no primary.
    pub(super) async fn open(
        &self,
        settings: &Settings,
        round_trip: &RoundTrip,
        step: Duration,
        wants_primary: bool,
    ) -> Result<(Open, Endpoint), RedisError> {
        match self {
            Self::Server(server) | Self::First { server, .. } => {
                let open = setup::open(server, settings, round_trip, step).await?;
                if wants_primary {
                    setup::expect_primary(&open, step).await?;
                }
                self.learn(&open, step).await?;
                Ok((open, server.endpoint.clone()))
            }
            Self::Sentinels(sentinels) => sentinels.open(settings, round_trip, step).await,
        }
    }

    /// Asks what must be known before a call is sent, unless it is.
    async fn learn(&self, open: &Open, step: Duration) -> Result<(), RedisError> {
        let Self::First {
            is_part_of_cluster, ..
        } = self
        else {
            return Ok(());
        };
        if is_part_of_cluster.get().is_none() {
            let answer = setup::is_part_of_cluster(open, step).await?;
            if answer && !cfg!(feature = "cluster") {
                return Err(failure::needs_cluster());
            }
            // Another runtime may have learnt it first.
            let _ = is_part_of_cluster.set(answer);
        }
        Ok(())
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) | Self::First { server, .. } => server.endpoint.fmt(f),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
        }
    }
}
