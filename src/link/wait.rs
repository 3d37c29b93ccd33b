//! How long `connect` waits for a server that is down, not ready or silent, and what it logs in the
//! meantime.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use tokio::time::{Instant, sleep};

use super::failure::{self, Failure};
use super::settings::Connecting;
use crate::clock::after;
use crate::error::{Error, Result};
use crate::escaped::Escaped;

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Wait {
    until: Instant,
    response_timeout: Duration,
    waits_for_server: bool,
    /// Whether a server that took the connection and did not answer is asked again. A client that
    /// requires no server starts without its answer.
    asks_again: bool,
    name: Arc<str>,
    last_cause: Option<String>,
}

impl Wait {
    pub(super) fn new(connecting: &Connecting, name: String) -> Self {
        let (wait, response_timeout) = (connecting.wait_for_server, connecting.response_timeout);
        let start = Instant::now();
        Self {
            until: after(start, wait.max(response_timeout)),
            response_timeout,
            waits_for_server: !wait.is_zero(),
            asks_again: connecting.require_server,
            name: name.into(),
            last_cause: None,
        }
    }

    /// When the wait for a connection ends, or the next attempt begins.
    pub(super) fn deadline(&self) -> Instant {
        after(Instant::now(), self.response_timeout).min(self.until)
    }

    /// Waits before the next attempt, or returns the error that ends the connecting.
    pub(super) async fn again(&mut self, cause: Failure) -> Result<()> {
        // A server was there: its answer or the connection was lost, or it was not the primary yet.
        let was_there = match &cause {
            Failure::Lost(cause) => cause.as_ref().is_none_or(RedisError::is_io_error),
            Failure::NotSent(cause) => failure::is_not_yet(cause),
            _ => false,
        };
        let cause = match cause {
            Failure::NoRuntime => return Err(Error::NoRuntime),
            Failure::NotSent(cause) | Failure::NotRun(cause) | Failure::Refused(cause) => cause,
            Failure::Lost(cause) => cause.unwrap_or_else(failure::timed_out),
        };
        let error = failure::of_connecting(cause).at(&self.name);
        let may_pass = matches!(error, Error::StoreUnavailable { .. });
        if !(self.waits_for_server || self.asks_again && was_there)
            || !may_pass
            || Instant::now() + PAUSE >= self.until
        {
            return Err(error);
        }
        let cause = error.cause_text();
        if self.last_cause.as_ref() != Some(&cause) {
            let left = self.until - Instant::now();
            tracing::info!(server = %Escaped(&self.name), ?left, cause = %Escaped(&cause), "waiting for the server");
            self.last_cause = Some(cause);
        }
        sleep(PAUSE).await;
        Ok(())
    }
}
