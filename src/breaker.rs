//! A circuit breaker: while a server is down, calls to it are refused at once instead of waiting
//! for it.
//!
//! Each connection has one, so there is one for each runtime and each node of a cluster: no runtime
//! waits for a probe that another one makes. It opens when the server cannot be connected to, or
//! when consecutive calls use up their time without an answer, or are refused as all calls are. A
//! refusal that concerns one call only is an answer, as is any other answer to one of its attempts.
//! A new connection, or else the end of a pause, half opens it. Then one call at a time is sent,
//! and an answer closes it.

mod state;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::random;
use crate::error::{Error, Refused, Result};
use crate::escaped::Escaped;
use crate::event::{Event, Events};
use crate::health::{BreakerState, ServerHealth};
use state::{Change, State};

pub(crate) struct Breaker {
    /// The server, for the log and for errors.
    server: Arc<str>,
    response_timeout: Duration,
    state: watch::Sender<State>,
    /// Whether there is neither an outage nor a failure to count, so that a call takes no lock.
    is_healthy: AtomicBool,
    shared: Arc<Breakers>,
}

/// What the breakers and connections of a client share.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    /// How many breakers are not healthy. While it is 0, a call does not look up its server's.
    unhealthy: AtomicUsize,
    pub(crate) events: Events,
}

impl Breakers {
    #[cfg(any(feature = "redis", feature = "test-util", test))]
    pub(crate) fn new(events: Events) -> Arc<Self> {
        Arc::new(Self {
            events,
            ..Self::default()
        })
    }

    #[cfg(any(feature = "redis", test))]
    pub(crate) fn are_healthy(&self) -> bool {
        self.unhealthy.load(Ordering::Relaxed) == 0
    }
}

/// How long an outage a call accepts before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    /// One response timeout, counted from the start of the outage.
    ResponseTimeout,
}

/// A call that may be sent. Dropping a probe lets another call be the probe.
#[derive(Debug)]
struct Admitted {
    /// The breaker and the number of the probe, if the call is one.
    probe: Option<(Arc<Breaker>, u64)>,
}

impl Breaker {
    pub(crate) fn new(
        server: String,
        response_timeout: Duration,
        shared: Arc<Breakers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: server.into(),
            response_timeout,
            state: watch::Sender::new(State::default()),
            is_healthy: AtomicBool::new(true),
            shared,
        })
    }

    /// Admits a call, or refuses it with the error that it ends with: nothing was sent.
    fn admit(self: &Arc<Self>, patience: Patience) -> Result<Admitted> {
        if self.is_healthy() {
            return Ok(Admitted { probe: None });
        }
        let patience = match patience {
            Patience::None => Duration::ZERO,
            Patience::ResponseTimeout => self.response_timeout,
        };
        let (now, lease) = (Instant::now(), self.response_timeout);
        let mut admission = Ok(None);
        self.change(|state| {
            let change;
            (admission, change) = state.admit(now, patience, lease);
            change
        });
        let probe = admission?.map(|number| (Arc::clone(self), number));
        if probe.is_some() {
            // Wakes `refusing`: other calls are refused from now on.
            self.state.send_modify(|_| {});
        }
        Ok(Admitted { probe })
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    /// Notes the result of a call that had time until `deadline`.
    pub(crate) fn note<T>(&self, result: &Result<T>, deadline: Instant) {
        let Err(error) = result else {
            return self.note_answer();
        };
        match (error, error.refused()) {
            (Error::NoRuntime, _) => {}
            (_, Some(Refused::Call)) => self.note_answer(),
            (_, Some(Refused::AllCalls)) => self.note_failure(error),
            (_, None) if !error.is_unavailable() => self.note_answer(),
            (_, None) if is_over(deadline) => self.note_failure(error),
            // The call lost its connection, and the connection itself reports that.
            (_, None) => {}
        }
    }

    fn note_answer(&self) {
        if !self.is_healthy() {
            self.change(State::answered);
        }
    }

    fn note_failure(&self, error: &Error) {
        let (now, cause, random) = (Instant::now(), self.not_sent(error), random());
        self.change(|state| state.failed(now, cause, random));
    }

    /// Notes that an attempt to connect has failed.
    pub(crate) fn disconnected(&self, cause: &Error) {
        let (now, cause) = (Instant::now(), self.not_sent(cause));
        self.change(|state| state.disconnected(now, cause));
    }

    /// Notes that a connection was made.
    pub(crate) fn connected(&self) {
        self.change(State::connected);
    }

    /// Waits until the breaker is open, and returns why.
    pub(crate) async fn opened(&self) -> Error {
        let mut state = self.state.subscribe();
        loop {
            if let Some(cause) = state.borrow_and_update().open_cause() {
                return cause.clone();
            }
            // The sender lives as long as `self`.
            let _ = state.changed().await;
        }
    }

    /// Waits until a call without patience would be refused.
    pub(crate) async fn refusing(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = state
            .wait_for(|state| !state.would_admit(Instant::now()))
            .await;
    }

    /// Waits until a call without patience would be admitted.
    pub(crate) async fn recovered(&self) {
        /// The interval of polling: the breaker may half open by itself, without a notification.
        const INTERVAL: Duration = Duration::from_millis(50);
        let mut state = self.state.subscribe();
        while !state.borrow_and_update().would_admit(Instant::now()) {
            let _ = tokio::time::timeout(INTERVAL, state.changed()).await;
        }
    }

    /// Whether a call without patience would be admitted now.
    pub(crate) fn would_admit(&self) -> bool {
        self.is_healthy() || self.state.borrow().would_admit(Instant::now())
    }

    /// Whether there is an outage, which the next answer may end.
    pub(crate) fn has_outage(&self) -> bool {
        !self.is_healthy() && self.state.borrow().has_outage()
    }

    #[cfg(feature = "redis")]
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    #[cfg_attr(
        not(any(feature = "redis", feature = "test-util", test)),
        expect(dead_code, reason = "a store in memory is no server")
    )]
    pub(crate) fn health(&self) -> ServerHealth {
        let state = self.state.borrow();
        let (breaker, last_cause) = state.health();
        ServerHealth {
            server: Arc::clone(&self.server),
            breaker,
            last_cause: last_cause.cloned(),
        }
    }

    fn change(&self, step: impl FnOnce(&mut State) -> Option<Change>) {
        let mut event = None;
        self.state.send_if_modified(|state| {
            let change = step(state);
            self.note_health(state.is_healthy());
            event = change.map(|change| (change, state.open_cause().cloned()));
            change.is_some()
        });
        if let Some((change, cause)) = event {
            self.report(change, cause.as_ref());
        }
    }

    /// Notes whether the breaker is healthy, and counts it if not. Called under the lock of the
    /// state.
    fn note_health(&self, is_healthy: bool) {
        match (
            self.is_healthy.swap(is_healthy, Ordering::Relaxed),
            is_healthy,
        ) {
            (true, false) => self.shared.unhealthy.fetch_add(1, Ordering::Relaxed),
            (false, true) => self.shared.unhealthy.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }

    /// Logs and reports a change. Changes that repeat in a long outage are logged at a lower level.
    fn report(&self, change: Change, cause: Option<&Error>) {
        let server = &self.server;
        let text = cause.map(Error::cause_text).unwrap_or_default();
        let state = match change {
            Change::Opened => {
                tracing::warn!(server = %Escaped(server), cause = %Escaped(&text), "circuit breaker opened");
                BreakerState::Open
            }
            Change::OpenedAgain => {
                tracing::debug!(server = %Escaped(server), cause = %Escaped(&text), "circuit breaker opened again");
                BreakerState::Open
            }
            Change::HalfOpened => {
                tracing::info!(server = %Escaped(server), "circuit breaker half open");
                BreakerState::HalfOpen
            }
            Change::HalfOpenedAgain => {
                tracing::debug!(server = %Escaped(server), "circuit breaker half open again");
                BreakerState::HalfOpen
            }
            Change::Closed => {
                tracing::info!(server = %Escaped(server), "circuit breaker closed");
                BreakerState::Closed
            }
        };
        self.shared.events.tell(|| Event::BreakerChanged {
            server,
            state,
            cause: cause.map(Error::kind),
        });
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        let has_outage = self.state.borrow().has_outage();
        self.note_health(true);
        if has_outage {
            // The client no longer uses the server, such as a node that has left its cluster. A
            // dashboard of the events would otherwise show the outage for ever.
            self.report(Change::Closed, None);
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Admitted {
    /// Ends the call; a probe that failed opens the breaker again.
    fn end<T>(mut self, result: &Result<T>) {
        if let Some((breaker, number)) = self.probe.take() {
            let failure = result.as_ref().err();
            let failure =
                failure.filter(|it| it.is_unavailable() && it.refused() != Some(Refused::Call));
            breaker.end_probe(number, failure.map(|it| breaker.not_sent(it)));
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some((breaker, number)) = self.probe.take() {
            breaker.end_probe(number, None);
        }
    }
}

impl Breaker {
    /// Adds the server's name to the error of a call to it.
    pub(crate) fn name_server(&self, error: Error) -> Error {
        error.at(&self.server)
    }

    /// The error of a call that was refused because of `cause`, and was not sent.
    fn not_sent(&self, cause: &Error) -> Error {
        let error = match cause {
            Error::Indeterminate {
                source: Some(source),
            } => Error::unavailable(Arc::clone(source)),
            Error::Indeterminate { source: None } => Error::not_sent(),
            other => other.clone(),
        };
        self.name_server(error)
    }

    fn end_probe(&self, number: u64, failure: Option<Error>) {
        let (now, random) = (Instant::now(), random());
        let is_dropped = failure.is_none();
        self.change(|state| state.probe_ended(number, failure, now, random));
        if is_dropped {
            // Wakes `recovered`: a call that waits may be the next probe.
            self.state.send_modify(|_| {});
        }
    }
}

/// Makes a call unless the breaker refuses it; then nothing was sent. A call without patience ends
/// when the breaker opens.
pub(crate) async fn guarded<T>(
    breaker: &Arc<Breaker>,
    patience: Patience,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let admitted = match breaker.admit(patience) {
        Ok(admitted) => admitted,
        Err(cause) => {
            // A caller that asks again and again must not keep its runtime from connecting.
            tokio::task::yield_now().await;
            return Err(cause);
        }
    };
    let result = match patience {
        Patience::ResponseTimeout => call.await,
        Patience::None => tokio::select! {
            biased;
            result = call => result,
            cause = breaker.opened() => Err(cause),
        },
    };
    admitted.end(&result);
    result.map_err(|error| breaker.name_server(error))
}

/// Whether a call with this deadline has used up its time: it ends a little before if another
/// attempt makes no sense.
fn is_over(deadline: Instant) -> bool {
    const MARGIN: Duration = Duration::from_millis(5);
    Instant::now() + MARGIN >= deadline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_calls_without_an_answer_in_all_their_time_open_the_breaker() {
        let timeout = Duration::from_secs(1);
        let breaker = Breaker::new("a server".to_owned(), timeout, Arc::default());
        // Quick failures: each call has lost its connection, which the connection reports itself.
        for _ in 0..10 {
            let deadline = Instant::now() + timeout;
            tokio::time::advance(timeout / 2).await;
            breaker.note::<()>(&Err(Error::not_sent()), deadline);
            assert!(breaker.is_healthy());
        }
        for is_open in [false, false, true] {
            let deadline = Instant::now() + timeout;
            tokio::time::advance(timeout).await;
            breaker.note::<()>(&Err(Error::not_sent()), deadline);
            assert!(!breaker.is_healthy());
            assert_eq!(!breaker.would_admit(), is_open);
        }
    }

    #[tokio::test]
    async fn a_client_is_healthy_once_each_of_its_breakers_is_closed_or_dropped() {
        let breakers = Arc::<Breakers>::default();
        let breaker = || {
            let name = "a server".to_owned();
            Breaker::new(name, Duration::from_secs(1), Arc::clone(&breakers))
        };
        let (one, other) = (breaker(), breaker());
        for breaker in [&one, &other, &one] {
            breaker.disconnected(&Error::not_sent());
            assert!(!breakers.are_healthy());
        }
        one.connected();
        one.note(&Ok(()), Instant::now());
        assert!(one.is_healthy() && !breakers.are_healthy());
        drop(other);
        assert!(breakers.are_healthy());
        drop(one);
        assert!(breakers.are_healthy());
    }

    /// A breaker that the next connection has half opened.
    fn half_open() -> Arc<Breaker> {
        let breaker = Breaker::new("a server".to_owned(), LEASE, Arc::default());
        breaker.disconnected(&Error::not_sent());
        breaker.connected();
        breaker
    }

    const LEASE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_probe_under_way_wakes_those_that_wait_for_a_refusal() {
        let breaker = half_open();
        let (at, refusing) = (Instant::now(), breaker.refusing());
        let probed = async { breaker.admit(Patience::None).unwrap() };
        let both = async { tokio::join!(refusing, probed).1 };
        let probe = tokio::time::timeout(LEASE, both).await.unwrap();
        assert_eq!(at.elapsed(), Duration::ZERO);
        drop(probe);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_takes_the_place_of_a_dropped_probe_at_once() {
        let breaker = half_open();
        let probe = breaker.admit(Patience::None).unwrap();
        assert!(breaker.admit(Patience::None).is_err());
        let at = Instant::now();
        tokio::join!(breaker.recovered(), async { drop(probe) });
        assert_eq!(at.elapsed(), Duration::ZERO);
        assert!(breaker.admit(Patience::None).is_ok());
    }
}
