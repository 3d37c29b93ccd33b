//! The primary that Sentinels name.
//!
//! The Sentinels are asked in turn, starting with the one that answered last. The server that a
//! Sentinel names must confirm that it is a primary: during a failover a Sentinel may still name
//! the old one. If no Sentinel answers, the primary that was found last is used, if it still is
//! one: a connection that was not lost would lead to it, too.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{ErrorKind, RedisError, Value, cmd, from_redis_value};
use tokio::time::timeout;

use super::address::{Endpoint, Options, SentinelSet, Server};
use super::failure::{self, timed_out};
use super::open::Open;
use super::round_trip::RoundTrip;
use super::settings::Settings;
use super::setup;
use crate::escaped::Escaped;
use crate::lock::Lock;

#[derive(Debug)]
pub(super) struct Sentinels {
    set: SentinelSet,
    /// The index of the Sentinel that is asked first.
    first: AtomicUsize,
    /// The primary that was found last.
    last_primary: Lock<Option<Endpoint>>,
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary `{}`", self.set.primary_name)
    }
}

impl Sentinels {
    pub(super) fn new(set: SentinelSet) -> Self {
        Self {
            set,
            first: AtomicUsize::new(0),
            last_primary: Lock::default(),
        }
    }

    pub(super) async fn open(
        &self,
        settings: &Settings,
        round_trip: &Arc<RoundTrip>,
        step: Duration,
    ) -> Result<(Open, Endpoint), RedisError> {
        let count = self.set.sentinels.len();
        let first = self.first.load(Ordering::Relaxed);
        let (mut last_error, mut is_answered) = (None, false);
        for index in (first..first + count).map(|index| index % count) {
            let sentinel = &self.set.sentinels[index];
            let opened = match self.primary(sentinel, settings, step).await {
                Ok(primary) => {
                    is_answered = true;
                    let opening = self.open_primary(&primary, settings, round_trip, step);
                    let opened = opening.await.map_err(failure::of_named_primary);
                    opened.map(|open| (open, primary))
                }
                Err(error) => {
                    is_answered |= !error.is_io_error();
                    Err(error)
                }
            };
            match opened {
                Ok((open, primary)) => {
                    self.first.store(index, Ordering::Relaxed);
                    *self.last_primary.lock() = Some(primary.clone());
                    return Ok((open, primary));
                }
                Err(error) => {
                    tracing::debug!(sentinel = %Escaped(sentinel), error = %Escaped(&error), "the Sentinel leads to no primary");
                    // A Sentinel that names a primary says more than one that is down.
                    if !last_error.as_ref().is_some_and(failure::is_not_yet) {
                        last_error = Some(error);
                    }
                }
            }
        }
        let last_primary = self.last_primary.lock().clone().filter(|_| !is_answered);
        if let Some(primary) = last_primary
            && let Ok(open) = self
                .open_primary(&primary, settings, round_trip, step)
                .await
        {
            return Ok((open, primary));
        }
        Err(last_error.unwrap_or_else(timed_out))
    }

    /// Opens a connection to the primary that a Sentinel named.
    async fn open_primary(
        &self,
        primary: &Endpoint,
        settings: &Settings,
        round_trip: &Arc<RoundTrip>,
        step: Duration,
    ) -> Result<Open, RedisError> {
        let server = Server {
            endpoint: primary.clone(),
            options: self.set.options.clone(),
        };
        let open = setup::open(&server, settings, round_trip, step).await?;
        setup::expect_primary(&open, step).await?;
        Ok(open)
    }

    /// The address of the primary according to one Sentinel. If no credentials are configured for
    /// Sentinels, a Sentinel that asks for a login gets those of the servers.
    async fn primary(
        &self,
        sentinel: &Endpoint,
        settings: &Settings,
        step: Duration,
    ) -> Result<Endpoint, RedisError> {
        let own = settings.of_sentinel(settings.sentinel_credentials.clone());
        match self.ask(sentinel, &own, Options::default(), step).await {
            Err(error) if own.credentials.is_none() && error.code() == Some("NOAUTH") => {
                let options = Options {
                    credentials: self.set.options.credentials.clone(),
                    ..Options::default()
                };
                let as_servers = settings.of_sentinel(settings.credentials.clone());
                self.ask(sentinel, &as_servers, options, step).await
            }
            result => result,
        }
    }

    async fn ask(
        &self,
        sentinel: &Endpoint,
        settings: &Settings,
        options: Options,
        step: Duration,
    ) -> Result<Endpoint, RedisError> {
        let server = Server {
            endpoint: sentinel.clone(),
            options,
        };
        let open = setup::open(&server, settings, &Arc::default(), step).await?;
        let mut command = cmd("SENTINEL");
        command
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.set.primary_name);
        let answer = timeout(step, open.ask(&command));
        let answer = answer.await.map_err(|_| timed_out())??;
        let Some((host, port)) = read_address(answer)? else {
            return Err((
                ErrorKind::MasterNameNotFoundBySentinel,
                "the Sentinel knows no primary of this name",
                self.set.primary_name.clone(),
            )
                .into());
        };
        let is_tls = matches!(sentinel, Endpoint::Tcp { is_tls: true, .. });
        Ok(Endpoint::Tcp { host, port, is_tls })
    }
}

/// Host and port in a Sentinel's answer; `None` if it knows none.
pub(super) fn read_address(answer: Value) -> Result<Option<(String, u16)>, RedisError> {
    from_redis_value(answer).map_err(RedisError::from)
}
