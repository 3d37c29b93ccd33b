//! The breaker's state, with time and chance passed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::{Backoff, shortened};
use crate::error::{Error, Result};
use crate::health::BreakerState;

/// The breaker opens after this many consecutive calls that failed.
const FAILURES: u32 = 3;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// Closed while there is no outage.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Consecutive calls that failed.
    failures: u32,
    outage: Option<Outage>,
    /// The number of the last probe.
    probes: u64,
    /// The cause of the last outage, once that has ended.
    last_cause: Option<Error>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    cause: Error,
    stage: Stage,
    /// How long the breaker stays open after each failed probe.
    pauses: Backoff,
    /// Whether the breaker has been half open in this outage.
    was_half_open: bool,
}

#[derive(Debug)]
enum Stage {
    /// Open: there is no connection. The next one half opens the breaker.
    Disconnected,
    /// Open until this time.
    Paused(Instant),
    /// Half open.
    HalfOpen(Option<Probe>),
}

/// The one call that is sent while the breaker is half open.
#[derive(Debug)]
struct Probe {
    number: u64,
    /// Another call may take its place from then on: its runtime may not be polled any more.
    until: Instant,
}

/// Whether a call is sent: as the probe of a number, or like any other call with `None`. The error
/// says why it is not sent.
pub(super) type Admission = Result<Option<u64>>;

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Opened,
    HalfOpened,
    /// Like `HalfOpened`, but not the first time in an outage.
    HalfOpenedAgain,
    OpenedAgain,
    Closed,
}

impl State {
    /// Whether there is nothing to note about a call that starts or is answered.
    pub(super) fn is_healthy(&self) -> bool {
        self.failures == 0 && self.outage.is_none()
    }

    pub(super) fn has_outage(&self) -> bool {
        self.outage.is_some()
    }

    /// What a caller may know, and the cause of the outage or of the last one.
    pub(super) fn health(&self) -> (BreakerState, Option<&Error>) {
        match &self.outage {
            None => (BreakerState::Closed, self.last_cause.as_ref()),
            Some(outage) => {
                let state = match outage.stage {
                    Stage::HalfOpen(_) => BreakerState::HalfOpen,
                    Stage::Disconnected | Stage::Paused(_) => BreakerState::Open,
                };
                (state, Some(&outage.cause))
            }
        }
    }

    /// Why calls are refused, while the breaker is open.
    pub(super) fn open_cause(&self) -> Option<&Error> {
        let outage = self.outage.as_ref()?;
        let is_open = !matches!(outage.stage, Stage::HalfOpen(_));
        is_open.then_some(&outage.cause)
    }

    /// Whether a call without patience would be admitted.
    pub(super) fn would_admit(&self, now: Instant) -> bool {
        self.outage
            .as_ref()
            .is_none_or(|outage| match &outage.stage {
                Stage::Disconnected => false,
                Stage::Paused(until) => now >= *until,
                Stage::HalfOpen(probe) => probe.as_ref().is_none_or(|probe| now >= probe.until),
            })
    }

    /// Decides whether a call is sent that starts now and accepts an outage of up to `patience`. A
    /// probe must end within `lease`.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        patience: Duration,
        lease: Duration,
    ) -> (Admission, Option<Change>) {
        let may_probe = self.would_admit(now);
        let Some(outage) = &mut self.outage else {
            return (Ok(None), None);
        };
        if now.saturating_duration_since(outage.since) < patience {
            return (Ok(None), None);
        }
        if !may_probe {
            return (Err(outage.cause.clone()), None);
        }
        let change = match outage.stage {
            Stage::HalfOpen(_) => None,
            _ => Some(outage.half_opened()),
        };
        self.probes += 1;
        outage.stage = Stage::HalfOpen(Some(Probe {
            number: self.probes,
            until: now + lease,
        }));
        (Ok(Some(self.probes)), change)
    }

    /// Notes that a call was answered, whatever the answer.
    pub(super) fn answered(&mut self) -> Option<Change> {
        self.failures = 0;
        // Without a connection, this is a late answer on an old one.
        let outage = self
            .outage
            .take_if(|it| !matches!(it.stage, Stage::Disconnected));
        self.last_cause = Some(outage?.cause);
        Some(Change::Closed)
    }

    /// Notes that a call has used up its time without an answer, or was refused as all calls are.
    pub(super) fn failed(&mut self, now: Instant, cause: Error, random: f64) -> Option<Change> {
        if self.outage.is_some() {
            return None; // the probe decides
        }
        self.failures += 1;
        if self.failures < FAILURES {
            return None;
        }
        self.open(now, cause, |pause| {
            Stage::Paused(now + shortened(pause, random))
        })
    }

    /// Notes that the probe of this number has ended. `cause` says why it failed; `None` if it was
    /// dropped or answered.
    pub(super) fn probe_ended(
        &mut self,
        number: u64,
        cause: Option<Error>,
        now: Instant,
        random: f64,
    ) -> Option<Change> {
        let outage = self.outage.as_mut()?;
        let Stage::HalfOpen(probe) = &mut outage.stage else {
            return None;
        };
        probe.take_if(|probe| probe.number == number)?;
        // A dropped probe says nothing about the server: the next call is the probe.
        let cause = cause?;
        outage.cause = cause;
        outage.stage = Stage::Paused(now + shortened(outage.pauses.next_pause(), random));
        Some(Change::OpenedAgain)
    }

    /// Notes that an attempt to connect has failed.
    pub(super) fn disconnected(&mut self, now: Instant, cause: Error) -> Option<Change> {
        let Some(outage) = &mut self.outage else {
            return self.open(now, cause, |_| Stage::Disconnected);
        };
        outage.cause = cause;
        let before = std::mem::replace(&mut outage.stage, Stage::Disconnected);
        matches!(before, Stage::HalfOpen(_)).then_some(Change::OpenedAgain)
    }

    /// Notes that a connection was made.
    pub(super) fn connected(&mut self) -> Option<Change> {
        let outage = self.outage.as_mut()?;
        if matches!(outage.stage, Stage::HalfOpen(_)) {
            return None;
        }
        outage.stage = Stage::HalfOpen(None);
        Some(outage.half_opened())
    }

    /// Begins an outage. `stage` returns its first stage for the first pause.
    fn open(
        &mut self,
        since: Instant,
        cause: Error,
        stage: impl FnOnce(Duration) -> Stage,
    ) -> Option<Change> {
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        self.outage = Some(Outage {
            since,
            cause,
            stage: stage(pauses.next_pause()),
            pauses,
            was_half_open: false,
        });
        Some(Change::Opened)
    }
}

impl Outage {
    fn half_opened(&mut self) -> Change {
        if std::mem::replace(&mut self.was_half_open, true) {
            Change::HalfOpenedAgain
        } else {
            Change::HalfOpened
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NO_PATIENCE: Duration = Duration::ZERO;

    fn cause() -> Error {
        Error::not_sent()
    }

    fn after_failures(count: u32, now: Instant) -> State {
        let mut state = State::default();
        for _ in 0..count {
            state.failed(now, cause(), 1.0);
        }
        state
    }

    fn admitted(state: &mut State, now: Instant) -> Admission {
        state.admit(now, NO_PATIENCE, SECOND).0
    }

    fn probe(state: &mut State, now: Instant) -> u64 {
        match admitted(state, now) {
            Ok(Some(number)) => number,
            admission => panic!("{admission:?}"),
        }
    }

    #[tokio::test]
    async fn it_opens_after_three_failures_in_a_row() {
        let now = Instant::now();
        let mut state = after_failures(2, now);
        assert!(matches!(admitted(&mut state, now), Ok(None)));
        assert_eq!(state.answered(), None);
        assert_eq!(state.failed(now, cause(), 1.0), None);
        assert_eq!(state.failed(now, cause(), 1.0), None);
        assert_eq!(state.failed(now, cause(), 1.0), Some(Change::Opened));
        assert!(admitted(&mut state, now).is_err());
    }

    #[tokio::test]
    async fn it_opens_at_once_without_a_connection_and_half_opens_only_with_one() {
        let now = Instant::now();
        let mut state = State::default();
        assert_eq!(state.disconnected(now, cause()), Some(Change::Opened));
        assert_eq!(state.disconnected(now, cause()), None);
        // Answers and failures of calls over the last connection.
        assert_eq!(state.answered(), None);
        for _ in 0..FAILURES {
            assert_eq!(state.failed(now, cause(), 1.0), None);
        }
        assert!(admitted(&mut state, now + 3600 * SECOND).is_err());
        assert_eq!(state.connected(), Some(Change::HalfOpened));
        probe(&mut state, now);
        assert_eq!(state.answered(), Some(Change::Closed));
        assert!(state.is_healthy());
    }

    #[tokio::test]
    async fn half_open_it_lets_one_call_through_at_a_time() {
        let now = Instant::now();
        let mut state = after_failures(3, now);
        let due = now + FIRST_PAUSE;
        assert!(!state.would_admit(due - Duration::from_millis(1)));
        assert!(state.would_admit(due));
        let first = probe(&mut state, due);
        assert!(admitted(&mut state, due).is_err());
        // The first probe was dropped: the next call is the probe.
        assert_eq!(state.probe_ended(first, None, due, 1.0), None);
        let second = probe(&mut state, due);
        assert_eq!(state.probe_ended(first, Some(cause()), due, 1.0), None);
        assert!(admitted(&mut state, due).is_err());
        assert_eq!(
            state.probe_ended(second, Some(cause()), due, 1.0),
            Some(Change::OpenedAgain)
        );
        assert!(admitted(&mut state, due).is_err());
    }

    #[tokio::test]
    async fn a_connection_half_opens_it_within_a_pause_and_leaves_a_probe_alone() {
        let now = Instant::now();
        let mut state = after_failures(3, now);
        assert_eq!(state.connected(), Some(Change::HalfOpened));
        let number = probe(&mut state, now);
        assert_eq!(state.connected(), None);
        assert!(admitted(&mut state, now).is_err());
        assert_eq!(state.probe_ended(number, None, now, 1.0), None);
        // The breaker is half open already, so nothing changes.
        let (admission, change) = state.admit(now, NO_PATIENCE, SECOND);
        assert!(matches!(admission, Ok(Some(_))));
        assert_eq!(change, None);
    }

    #[tokio::test]
    async fn calls_are_refused_with_the_last_failure_as_the_cause() {
        let now = Instant::now();
        let named = |name: &str| Error::NotInitialized { name: name.into() };
        let is_named = |state: &State, expected: &str| {
            let cause = state.open_cause();
            matches!(cause, Some(Error::NotInitialized { name }) if name == expected)
        };
        let mut state = State::default();
        state.disconnected(now, named("first"));
        assert!(is_named(&state, "first"));
        state.disconnected(now, named("second"));
        assert!(is_named(&state, "second"));
        state.connected();
        assert!(state.open_cause().is_none());
        let number = probe(&mut state, now);
        state.probe_ended(number, Some(named("third")), now, 1.0);
        assert!(is_named(&state, "third"));
        let (Err(cause), _) = state.admit(now, NO_PATIENCE, SECOND) else {
            panic!("it is open");
        };
        assert!(matches!(cause, Error::NotInitialized { name } if name == "third"));
    }

    #[tokio::test]
    async fn a_probe_that_nobody_polls_is_replaced_after_its_lease() {
        let now = Instant::now();
        let mut state = State::default();
        state.disconnected(now, cause());
        state.connected();
        let stalled = probe(&mut state, now);
        let late = now + SECOND;
        assert!(!state.would_admit(late - Duration::from_millis(1)));
        assert_ne!(probe(&mut state, late), stalled);
    }

    #[tokio::test]
    async fn pauses_between_probes_double_up_to_a_bound_and_are_shortened_randomly() {
        let now = Instant::now();
        let mut state = after_failures(3, now);
        let mut at = now + FIRST_PAUSE;
        let in_full = [100, 200, 400, 400, 400].map(|expected| (expected, 1.0));
        for (expected, random) in in_full.into_iter().chain([(200, 0.0), (300, 0.5)]) {
            let number = probe(&mut state, at);
            state.probe_ended(number, Some(cause()), at, random);
            let pause = Duration::from_millis(expected);
            assert!(!state.would_admit(at + pause - Duration::from_millis(1)));
            at += pause;
            assert!(state.would_admit(at));
        }
    }

    #[tokio::test]
    async fn a_patient_call_goes_out_until_the_outage_has_lasted_for_its_patience() {
        let now = Instant::now();
        let mut state = State::default();
        state.disconnected(now, cause());
        let just_before = now + SECOND - Duration::from_millis(1);
        let (admission, _) = state.admit(just_before, SECOND, SECOND);
        assert!(matches!(admission, Ok(None)));
        // Patience counts from the first failure, however often the breaker changed since.
        state.connected();
        state.disconnected(just_before, cause());
        let (admission, _) = state.admit(now + SECOND, SECOND, SECOND);
        assert!(admission.is_err());
    }

    #[tokio::test]
    async fn repeated_changes_in_an_outage_are_distinguished_from_the_first_ones() {
        let now = Instant::now();
        let mut state = after_failures(3, now);
        let due = now + SECOND;
        assert_eq!(
            state.admit(due, NO_PATIENCE, SECOND).1,
            Some(Change::HalfOpened)
        );
        assert_eq!(state.disconnected(due, cause()), Some(Change::OpenedAgain));
        assert_eq!(state.connected(), Some(Change::HalfOpenedAgain));
        assert_eq!(state.answered(), Some(Change::Closed));
    }
}
