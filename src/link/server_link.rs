//! A link: one runtime's connection to one server, which is replaced whenever it is lost.
//!
//! A task on that runtime sets the connection up, waits until it is retired, and sets up the next
//! one at once. A failure to connect is never kept. Calls use the open connection, or wait for the
//! next one until their deadline.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{RedisError, Value};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::address::Endpoint;
use super::failure::{Failure, closed, of_connecting, timed_out};
use super::limits::Limits;
use super::open::{Open, Retired};
use super::request::{Message, Outgoing};
use super::resolver::Resolver;
use super::round_trip::{self, Pace, RoundTrip};
use super::settings::Settings;
use super::supplied::SendsCommands;
use crate::backoff::{self, Backoff, shortened};
use crate::breaker::{Breaker, Breakers};
use crate::escaped::Escaped;
use crate::event::Event;

/// How long a step of the first attempt to connect may be silent. Doubles with each attempt.
const FIRST_STEP: Duration = Duration::from_millis(500);
const LONGEST_STEP: Duration = Duration::from_secs(3);
/// The next attempt to connect starts beside one that has been silent for this long. So a slow
/// server has time to answer, and a server is found soon after its network has lost an attempt.
const STAGGER: Duration = FIRST_STEP;
/// A connection that lasted less than this is replaced after a pause.
const STABLE: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The pauses are longer for a server that cannot be connected to than for one that accepts
/// connections and loses them.
const LONGEST_PAUSE_AFTER_FAILURES: Duration = Duration::from_millis(400);
const LONGEST_PAUSE_AFTER_LOSSES: Duration = Duration::from_millis(50);

pub(super) struct Link {
    state: watch::Receiver<State>,
    /// The open connection of `state`, which calls find here without a lock.
    open: Arc<ArcSwapOption<Open>>,
    round_trip: Arc<RoundTrip>,
    breaker: Arc<Breaker>,
    response_timeout: Duration,
    /// Keeps the link connected; `None` for a supplied connection, which is never replaced.
    task: Option<AbortHandle>,
}

#[derive(Clone)]
enum State {
    /// There is no connection. Holds why the last attempt to connect failed, if one has.
    Connecting(Option<RedisError>),
    Open(Arc<Open>),
}

/// How long to wait for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitUntil {
    /// Until the deadline, even if attempts to connect fail.
    Deadline,
    /// Until an attempt to connect fails because the server refuses it or does not exist.
    Refused,
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Link {
    /// Starts to connect. Must be called on the runtime that the link belongs to.
    pub(super) fn start(resolver: Arc<Resolver>, settings: Arc<Settings>) -> Self {
        let (sender, state) = watch::channel(State::Connecting(None));
        let open = Arc::<ArcSwapOption<Open>>::default();
        let round_trip = Arc::<RoundTrip>::default();
        let breaker = Breaker::new(
            resolver.to_string(),
            settings.response_timeout,
            Arc::clone(&settings.breakers),
        );
        let response_timeout = settings.response_timeout;
        let keeper = Keeper {
            resolver,
            settings,
            round_trip: Arc::clone(&round_trip),
            breaker: Arc::clone(&breaker),
            state: sender,
            open: Arc::clone(&open),
        };
        Self {
            state,
            open,
            round_trip,
            breaker,
            response_timeout,
            task: Some(tokio::spawn(keeper.run()).abort_handle()),
        }
    }

    /// A link over a connection that the application supplies.
    pub(super) fn supplied(
        connection: impl SendsCommands,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self {
        let round_trip = Arc::default();
        let open = Arc::new(Open::supplied(Arc::new(connection), &round_trip));
        let server = "the application's connection".to_owned();
        Self {
            state: watch::channel(State::Open(Arc::clone(&open))).1,
            open: Arc::new(ArcSwapOption::new(Some(open))),
            round_trip,
            breaker: Breaker::new(server, response_timeout, breakers),
            response_timeout,
            task: None,
        }
    }

    pub(super) fn breaker(&self) -> &Arc<Breaker> {
        &self.breaker
    }

    pub(super) fn pace(&self) -> Pace {
        let pace = self.round_trip.pace();
        match self.is_supplied() {
            false => pace,
            true => Pace {
                silence_limit: round_trip::LONGEST,
                ..pace
            },
        }
    }

    /// Whether the connection is the application's, which is always the same one.
    fn is_supplied(&self) -> bool {
        self.task.is_none()
    }

    /// Waits until a command can be sent.
    pub(super) async fn ready(&self, deadline: Instant, until: WaitUntil) -> Result<Pace, Failure> {
        if self.usable().is_none() {
            // Boxed, so that the future of each call needs no room for it.
            Box::pin(self.connected(deadline, until)).await?;
        }
        Ok(self.pace())
    }

    /// Sends a message once there is a connection, and waits for its answer until the deadline.
    /// What cannot be answered by then is not sent. `asking` is set for a node of a cluster that
    /// the command's slot is moving to.
    pub(super) async fn send(
        &self,
        message: Message<'_>,
        asking: bool,
        limits: Limits,
        until: WaitUntil,
    ) -> Result<Value, Failure> {
        let mut open = match self.usable() {
            Some(open) => open,
            None => self.replaced(limits, until).await?,
        };
        if open.has_unread() {
            yield_now().await; // the runtime polls its sockets
            yield_now().await; // what arrived is read
            if open.is_retired() {
                open = self.replaced(limits, until).await?;
            }
        }
        if limits.needs_one_server && !self.is_supplied() && !open.one_server.is_known() {
            return Err(Failure::NotSent(closed())); // another connection was asked
        }
        let round_trip = &self.round_trip;
        if !round_trip.fits(limits.deadline, self.response_timeout) {
            return Err(Failure::NotSent(timed_out()));
        }
        let script = match message {
            Message::Command(command) => {
                let request = Outgoing { command, asking };
                return open.call(request, limits).await;
            }
            Message::Script(script) => script,
        };
        let fits_twice = round_trip.fits_twice(limits.valid_until);
        let mut sending = open.scripts.begin(script, fits_twice);
        loop {
            let text = sending.text();
            let command = text.as_ref().unwrap_or(script.by_hash);
            let request = Outgoing { command, asking };
            let result = open.call(request, limits).await;
            let fits = round_trip.fits(limits.valid_until, self.response_timeout);
            if let Some(result) = sending.after(result, fits) {
                return result;
            }
        }
    }

    /// Whether the open connection is known to lead to one server. `key` is a key in use, from
    /// which the keys to ask for are made.
    pub(super) fn is_one_server(&self, key: &str) -> bool {
        let open = self.open.load();
        open.as_ref().is_some_and(|open| open.is_one_server(key))
    }

    /// Notes that the server refused a call on several keys because of their slots.
    pub(super) fn refuses_several_keys(&self) {
        if let Some(open) = &*self.open.load() {
            open.one_server.note_refusal();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.usable().is_some()
    }

    fn usable(&self) -> Option<Arc<Open>> {
        let open = self.open.load_full()?;
        open.is_usable().then_some(open)
    }

    /// Waits for the next connection if the call's limits allow that.
    async fn replaced(&self, limits: Limits, until: WaitUntil) -> Result<Arc<Open>, Failure> {
        if !limits.waits_to_connect {
            return Err(Failure::NotSent(closed()));
        }
        self.connected(limits.deadline, until).await
    }

    /// Waits for a connection, as long as what is sent over it can be answered by the deadline.
    pub(super) async fn connected(
        &self,
        deadline: Instant,
        until: WaitUntil,
    ) -> Result<Arc<Open>, Failure> {
        let mut state = self.state.clone();
        let usable = state.wait_for(|state| match state {
            State::Open(open) => open.is_usable(),
            State::Connecting(Some(cause)) => until == WaitUntil::Refused && !is_silence(cause),
            State::Connecting(None) => false,
        });
        let cause = match timeout_at(self.round_trip.send_by(deadline), usable).await {
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

fn next_pause(backoff: &mut Backoff) -> Duration {
    shortened(backoff.next_pause(), backoff::random())
}

/// Whether an attempt to connect got no answer, so that the server may or may not exist.
fn is_silence(cause: &RedisError) -> bool {
    cause.is_timeout()
}

/// Whether a failure only follows from the last one, whose cause the server reported. If a server
/// closes a connection right after refusing it, the refusal may or may not arrive.
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
    open: Arc<ArcSwapOption<Open>>,
}

impl Keeper {
    fn change(&self, state: State) {
        self.open.store(match &state {
            State::Open(open) => Some(Arc::clone(open)),
            State::Connecting(_) => None,
        });
        self.state.send_replace(state);
    }

    fn report<'a>(&'a self, event: impl FnOnce(&'a str) -> Event<'a>) {
        let events = &self.settings.breakers.events;
        events.tell(|| event(self.breaker.server()));
    }

    async fn run(self) {
        let mut after_losses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE_AFTER_LOSSES);
        after_losses.restart();
        let mut wants_primary = false;
        loop {
            let (open, endpoint) = self.connect(wants_primary).await;
            if self.resolver.leads_to_cluster() {
                // The server has answered, and from now on calls go to the nodes.
                self.breaker.connected();
                self.breaker.note(&Ok(()), Instant::now());
                return;
            }
            tracing::info!(server = %Escaped(&endpoint), "connected");
            self.report(|server| Event::Connected { server });
            self.breaker.connected();
            let since = Instant::now();
            let open = Arc::new(open);
            self.change(State::Open(Arc::clone(&open)));
            let cause = open.retirement().await;
            wants_primary = matches!(cause, Retired::Refused(_));
            self.change(State::Connecting(None));
            tracing::warn!(server = %Escaped(&endpoint), cause = %Escaped(&cause), "replacing the connection");
            self.report(|server| Event::ConnectionLost { server });
            if since.elapsed() >= STABLE {
                after_losses.restart();
            } else {
                sleep(next_pause(&mut after_losses)).await;
            }
        }
    }

    /// Attempts to connect until one succeeds.
    async fn connect(&self, wants_primary: bool) -> (Open, Endpoint) {
        let mut attempts = JoinSet::new();
        let mut after_failures = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE_AFTER_FAILURES);
        let mut step = FIRST_STEP;
        let mut last_failure = None;
        loop {
            let (resolver, settings) = (Arc::clone(&self.resolver), Arc::clone(&self.settings));
            let round_trip = Arc::clone(&self.round_trip);
            attempts.spawn(async move {
                let opening = resolver.open(&settings, &round_trip, step, wants_primary);
                opening.await
            });
            step = (step * 2).min(LONGEST_STEP);
            let mut next = Instant::now() + STAGGER;
            loop {
                tokio::select! {
                    biased;
                    Some(attempt) = attempts.join_next() => match attempt {
                        Ok(Ok(opened)) => return opened,
                        Ok(Err(error)) => {
                            if !is_silence(&error) {
                                next = Instant::now() + next_pause(&mut after_failures);
                            }
                            self.note_failure(error, &mut last_failure);
                        }
                        // The task panicked, as was reported, or its runtime is shutting down.
                        Err(_) => {}
                    },
                    () = sleep_until(next) => break,
                }
            }
            if !attempts.is_empty() {
                self.note_failure(timed_out(), &mut last_failure);
            }
        }
    }

    fn note_failure(&self, error: RedisError, last_failure: &mut Option<RedisError>) {
        let error = match last_failure {
            Some(last) if follows(&error, last) => last.clone(),
            _ => error,
        };
        let cause = error.to_string();
        if last_failure
            .as_ref()
            .is_none_or(|last| last.to_string() != cause)
        {
            tracing::warn!(server = %Escaped(&self.resolver), cause = %Escaped(&cause), "cannot connect, trying again");
        }
        *last_failure = Some(error.clone());
        self.breaker.disconnected(&of_connecting(error.clone()));
        self.change(State::Connecting(Some(error)));
    }
}
