//! Which server a connection leads to: resolved for each connection.

use std::fmt;
use std::time::Duration;

use redis::RedisError;

use super::address::{Endpoint, Server};
use super::open::Open;
use super::round_trip::RoundTrip;
use super::sentinel::Sentinels;
use super::settings::Settings;
use super::setup;

#[derive(Debug)]
pub(super) enum Resolver {
    Server(Server),
    Sentinels(Sentinels),
}

impl Resolver {
    /// Opens a connection to the server to be used now. `wants_primary` after a server that was no primary.
    pub(super) async fn open(
        &self,
        settings: &Settings,
        round_trip: &RoundTrip,
        step: Duration,
        wants_primary: bool,
    ) -> Result<(Open, Endpoint), RedisError> {
        match self {
            Self::Server(server) => {
                let open = setup::open(server, settings, round_trip, step).await?;
                if wants_primary {
                    setup::expect_primary(&open, step).await?;
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
            Self::Server(server) => server.endpoint.fmt(f),
            Self::Sentinels(sentinels) => sentinels.fmt(f),
        }
    }
}
