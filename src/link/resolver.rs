//! Which server a connection leads to: resolved for each connection.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::RedisError;

use super::address::{Endpoint, Server};
use super::failure;
use super::open::Open;
use super::round_trip::RoundTrip;
use super::sentinel::Sentinels;
use super::settings::Settings;
use super::setup;

#[derive(Debug)]
pub(super) enum Resolver {
    Server {
        server: Server,
        /// Whether calls go on from it to the nodes of a cluster, once that is known.
        leads_to_cluster: OnceLock<bool>,
    },
    Sentinels(Sentinels),
}

impl Resolver {
    /// The one server of a URL. Its first connection shows whether it is part of a cluster.
    pub(super) fn first(server: Server) -> Self {
        Self::Server {
            server,
            leads_to_cluster: OnceLock::new(),
        }
    }

    /// A node of a cluster.
    pub(super) fn node(server: Server) -> Self {
        Self::Server {
            server,
            leads_to_cluster: false.into(),
        }
    }

    /// Whether its server is known to be part of a cluster, whose nodes have links of their own.
    pub(super) fn leads_to_cluster(&self) -> bool {
        match self {
            Self::Server {
                leads_to_cluster, ..
            } => leads_to_cluster.get() == Some(&true),
            Self::Sentinels(_) => false,
        }
    }

    /// Opens a connection to the server that is to be used now. `wants_primary` is set if the last
    /// server was no primary.
    pub(super) async fn open(
        &self,
        settings: &Settings,
        round_trip: &Arc<RoundTrip>,
        step: Duration,
        wants_primary: bool,
    ) -> Result<(Open, Endpoint), RedisError> {
        match self {
            Self::Server {
                server,
                leads_to_cluster,
            } => {
                let open = setup::open(server, settings, round_trip, step).await?;
                if wants_primary {
                    setup::expect_primary(&open, step).await?;
                }
                if leads_to_cluster.get().is_none() {
                    let answer = setup::is_part_of_cluster(&open, step).await?;
                    if answer && !cfg!(feature = "cluster") {
                        return Err(failure::needs_cluster());
                    }
                    // Another runtime may have learnt it first.
                    let _ = leads_to_cluster.set(answer);
                }
                Ok((open, server.endpoint.clone()))
            }
            Self::Sentinels(sentinels) => sentinels.open(settings, round_trip, step).await,
        }
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server { server, .. } => server.endpoint.fmt(f),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
        }
    }
}
