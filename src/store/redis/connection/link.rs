//! A connection that always comes back: one runtime's way to one server.
//!
//! A task on that runtime sets the connection up, waits until it is retired, and sets up the next one at once. What
//! failed is never kept. Calls take the connection that is open, or wait for the next one until their deadline.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::sync::watch;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, sleep, timeout_at};

use super::backoff::Backoff;
pub(super) use super::open::Request;
use super::open::{Open, Retired};
use super::resolver::Resolver;
use super::round_trip::RoundTrip;
use super::settings::Settings;
use crate::store::breaker::Breaker;
use crate::store::redis::failure::{Failure, closed, of_connecting, timed_out};
use crate::store::redis::retry::Limits;

/// How long a step of the first attempt to connect may be silent. It doubles after each attempt that was.
const FIRST_STEP: Duration = Duration::from_millis(500);
const LONGEST_STEP: Duration = Duration::from_secs(5);
/// Connections that last for less are replaced after a pause.
const STABLE: Duration = Duration::from_secs(1);

pub(super) struct Link {
    state: watch::Receiver<State>,
    round_trip: Arc<RoundTrip>,
    breaker: Arc<Breaker>,
    task: AbortHandle,
}

#[derive(Clone)]
enum State {
    /// With the cause of the last failure.
    Connecting(Option<RedisError>),
    Open(Arc<Open>),
}

/// How long to wait for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until the deadline, whatever fails before.
    UntilDeadline,
    /// Until an attempt to connect fails because the server says so or is not there.
    UntilRefused,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// Starts to connect. Has to be called on a runtime, to which the link belongs.
    pub(super) fn start(resolver: Arc<Resolver>, settings: Arc<Settings>) -> Self {
        let (sender, state) = watch::channel(State::Connecting(None));
        let round_trip = Arc::<RoundTrip>::default();
        let breaker = Breaker::new(
            resolver.to_string(),
            settings.response_timeout,
            Arc::clone(&settings.not_calm),
        );
        let keeper = Keeper {
            resolver,
            settings,
            round_trip: Arc::clone(&round_trip),
            breaker: Arc::clone(&breaker),
            state: sender,
        };
        Self {
            state,
            round_trip,
            breaker,
            task: tokio::spawn(keeper.run()).abort_handle(),
        }
    }

    pub(super) fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    /// Waits until a command can be sent.
    pub(super) async fn ready(&self, deadline: Instant, patience: Patience) -> Result<(), Failure> {
        if self.usable().is_none() {
            self.connected(deadline, patience).await?;
        }
        Ok(())
    }

    /// Sends a command once there is a connection, and waits for its answer, until the deadline at most.
    pub(super) async fn send(
        &self,
        request: Request<'_>,
        limits: Limits,
        patience: Patience,
    ) -> Result<Value, Failure> {
        let open = match self.usable() {
            Some(open) => open,
            None => self.replaced(limits, patience).await?,
        };
        if open.has_unread() {
            yield_now().await; // the runtime looks
            yield_now().await; // what it found is read
            if open.is_retired() {
                let open = self.replaced(limits, patience).await?;
                return open.call(request, limits, &self.round_trip).await;
            }
        }
        open.call(request, limits, &self.round_trip).await
    }

    #[cfg(feature = "cluster")]
    pub(super) fn is_open(&self) -> bool {
        self.usable().is_some()
    }

    fn usable(&self) -> Option<Arc<Open>> {
        match &*self.state.borrow() {
            State::Open(open) if open.is_usable(&self.round_trip) => Some(Arc::clone(open)),
            _ => None,
        }
    }

    /// Waits for another connection where the command may do so.
    async fn replaced(&self, limits: Limits, patience: Patience) -> Result<Arc<Open>, Failure> {
        if !limits.waits_to_connect {
            return Err(Failure::NotSent(closed()));
        }
        self.connected(limits.deadline, patience).await
    }

    /// Waits for a connection.
    pub(super) async fn connected(
        &self,
        deadline: Instant,
        patience: Patience,
    ) -> Result<Arc<Open>, Failure> {
        let mut state = self.state.clone();
        let round_trip = &self.round_trip;
        let usable = state.wait_for(|state| match state {
            State::Open(open) => open.is_usable(round_trip),
            State::Connecting(Some(cause)) => {
                patience == Patience::UntilRefused && !is_silence(cause)
            }
            State::Connecting(None) => false,
        });
        let cause = match timeout_at(deadline, usable).await {
            Ok(Ok(state)) => match &*state {
                State::Open(open) => return Ok(Arc::clone(open)),
                State::Connecting(cause) => cause.clone(),
            },
            Ok(Err(_)) => Some(closed()), // its runtime is shutting down
            Err(_elapsed) => match &*self.state.borrow() {
                State::Connecting(cause) => cause.clone(),
                State::Open(_) => None,
            },
        };
        Err(Failure::NotSent(cause.unwrap_or_else(timed_out)))
    }
}

/// Nobody knows whether the server is there.
fn is_silence(cause: &RedisError) -> bool {
    cause.is_timeout()
}

/// Whether a failure only follows from the last one, for which the server gave its cause. A server that closes a connection as soon as it has
/// refused it may be heard or not.
fn follows(failure: &RedisError, last: &RedisError) -> bool {
    failure.is_connection_dropped() && !failure.is_connection_refusal() && !last.is_io_error()
}

/// Keeps a link connected.
struct Keeper {
    resolver: Arc<Resolver>,
    settings: Arc<Settings>,
    round_trip: Arc<RoundTrip>,
    breaker: Arc<Breaker>,
    state: watch::Sender<State>,
}

impl Keeper {
    async fn run(self) {
        let mut after_failures = Backoff::after_failures();
        let mut after_losses = Backoff::after_losses();
        let mut step = FIRST_STEP;
        let mut last_failure: Option<RedisError> = None;
        let mut wants_primary = false;
        loop {
            let opened = self
                .resolver
                .open(&self.settings, &self.round_trip, step, wants_primary)
                .await;
            match opened {
                Ok((open, endpoint)) => {
                    tracing::info!(server = %endpoint, "connected");
                    self.breaker.connected();
                    last_failure = None;
                    step = FIRST_STEP;
                    after_failures.reset();
                    let since = Instant::now();
                    let open = Arc::new(open);
                    self.state.send_replace(State::Open(Arc::clone(&open)));
                    let cause = open.retirement().await;
                    wants_primary = matches!(cause, Retired::Refused(_));
                    self.state.send_replace(State::Connecting(None));
                    tracing::warn!(server = %endpoint, %cause, "replacing the connection");
                    if since.elapsed() >= STABLE {
                        after_losses.reset();
                    } else {
                        sleep(after_losses.next_pause()).await;
                    }
                }
                Err(error) => {
                    let error = match &last_failure {
                        Some(last) if follows(&error, last) => last.clone(),
                        _ => error,
                    };
                    let cause = error.to_string();
                    if last_failure.is_none_or(|last| last.to_string() != cause) {
                        tracing::warn!(server = %self.resolver, %cause, "cannot connect, trying again");
                    }
                    last_failure = Some(error.clone());
                    self.breaker.disconnected(&of_connecting(error.clone()));
                    if is_silence(&error) {
                        step = (step * 2).min(self.longest_step());
                    }
                    self.state.send_replace(State::Connecting(Some(error)));
                    sleep(after_failures.next_pause()).await;
                }
            }
        }
    }

    /// A caller that waits for all of its response timeout sees at least two attempts.
    fn longest_step(&self) -> Duration {
        (self.settings.response_timeout / 2).clamp(FIRST_STEP, LONGEST_STEP)
    }
}
