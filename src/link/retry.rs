//! The attempts of one call: when it is sent again, and which error ends it.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::time::{Instant, sleep};

use super::connection::Connection;
use super::failure::{self, Failure};
use super::limits::{Limits, Repeat};
use super::round_trip::Pace;
use crate::backoff::Backoff;
use crate::error::{Error, Result};
use crate::same_runtime::{Moved, SameRuntime, wherever_polled};

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause after an answer was lost with its connection: the server is there, but each
/// connection may be lost after one call.
const LONGEST_PAUSE_AFTER_LOSS: Duration = Duration::from_millis(50);

/// Returns the error of a call that the server has refused: from the call's first key, the refusal,
/// and whether an earlier attempt may have run.
type OfRefusal = fn(&str, RedisError, bool) -> Error;

/// One call while it is sent, perhaps more than once. All its attempts share one time budget.
pub(crate) struct Attempts<'a> {
    connection: &'a Connection,
    /// The first key, which leads to the server.
    pub(crate) name: &'a str,
    of_refusal: OfRefusal,
    pub(crate) deadline: Instant,
    pauses: Backoff,
    repeat: Repeat,
    /// Whether an earlier attempt may have run.
    pub(crate) sent_before: bool,
    /// The number of the next attempt that is sent, from 1.
    pub(crate) number: u32,
    /// Why the server last refused an attempt.
    refusal: Option<RedisError>,
    /// Whether the server has answered an attempt other than by refusing all calls.
    is_answered: bool,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        name: &'a str,
        of_refusal: OfRefusal,
        deadline: Instant,
        repeat: Repeat,
    ) -> Self {
        Self {
            connection,
            name,
            of_refusal,
            deadline,
            pauses: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
            repeat,
            sent_before: false,
            number: 1,
            refusal: None,
            is_answered: false,
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn limits(&self) -> Limits {
        let attempt = self.number;
        Limits {
            attempt,
            ..Limits::new(self.deadline, self.repeat)
        }
    }

    /// Sends a call until it is answered.
    pub(crate) async fn run<F>(&mut self, mut send: impl FnMut(Limits) -> F) -> Result<Value>
    where
        F: Future<Output = Result<Value, Failure>>,
    {
        loop {
            let attempt = send(self.limits());
            if let Some(answer) = self.step(attempt).await? {
                return Ok(answer);
            }
        }
    }

    /// Waits before the next attempt, where a decision needs another one. Fails if the call ends
    /// before.
    pub(crate) async fn again_after(&self, wait: Duration) -> Result<()> {
        if wait >= self.remaining() {
            return Err(self.indeterminate(None));
        }
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(())
    }

    /// Waits until the next attempt can be sent.
    pub(crate) async fn ready(&mut self, may_have_run: impl Fn() -> bool) -> Result<Pace> {
        loop {
            match self.connection.ready(self.name, self.deadline).await {
                Ok(pace) => return Ok(pace),
                Err(failure) => {
                    // Another runtime may have made an attempt in the meantime.
                    self.sent_before |= may_have_run();
                    self.after::<Value>(Err(failure)).await?;
                }
            }
        }
    }

    /// Makes one attempt, which ends at its deadline. Returns its answer, or `None` for another
    /// attempt, or the error that ends the call.
    pub(crate) async fn step(
        &mut self,
        attempt: impl Future<Output = Result<Value, Failure>>,
    ) -> Result<Option<Value>> {
        let is_repeatable = self.repeat == Repeat::Safe;
        let attempted = wherever_polled(self.deadline, is_repeatable, attempt).await;
        let result = attempted.unwrap_or_else(|moved| match moved {
            Moved::NoRuntime => Err(Failure::NoRuntime),
            Moved::AskAgain | Moved::TimeIsUp => Err(Failure::Lost(None)),
        });
        self.after(result).await
    }

    /// Returns an attempt's answer, or `None` after the pause before the next attempt, or the error
    /// that ends the call.
    pub(crate) async fn after<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>> {
        match result {
            Ok(answer) => {
                self.is_answered = true;
                Ok(Some(answer))
            }
            // Boxed, so that the future of each call needs no room for it.
            Err(failure) => Box::pin(self.pause_after(failure)).await.map(|()| None),
        }
    }

    /// Pauses before the next attempt. Fails with the call's error if no attempt is to follow.
    async fn pause_after(&mut self, failure: Failure) -> Result<()> {
        let mut longest = LONGEST_PAUSE;
        let cause = match failure {
            Failure::NoRuntime => return Err(Error::NoRuntime),
            Failure::Refused(error) => {
                return Err((self.of_refusal)(self.name, error, self.sent_before));
            }
            Failure::Lost(cause) => {
                self.sent_before = true;
                self.number += 1;
                if self.repeat == Repeat::Never {
                    return Err(self.give_up(cause));
                }
                longest = LONGEST_PAUSE_AFTER_LOSS;
                cause
            }
            Failure::NotRun(cause) => {
                self.number += 1;
                self.is_answered |= failure::refuses_one_call(&cause);
                self.refusal = Some(cause.clone());
                Some(cause)
            }
            Failure::NotSent(cause) => Some(cause),
        };
        // The last attempt is made while its answer can still come.
        let answer_time = self.connection.answer_time(self.name.as_bytes());
        let room = self.remaining().saturating_sub(answer_time);
        let pause = self.pauses.next_pause().min(longest).min(room);
        if pause < SHORTEST_PAUSE {
            return Err(self.give_up(cause));
        }
        // The pause ends early if another runtime polls the call.
        let _ = SameRuntime::new(pin!(sleep(pause)))?.await;
        Ok(())
    }

    /// The error of a call of which an attempt may have run.
    pub(crate) fn indeterminate(&self, cause: Option<RedisError>) -> Error {
        let source = match self.is_answered {
            true => Some(failure::source_of_answered(cause)),
            false => cause.map(failure::source_of),
        };
        Error::Indeterminate { source }
    }

    fn give_up(&mut self, cause: Option<RedisError>) -> Error {
        if self.sent_before {
            return self.indeterminate(cause);
        }
        // Why the server refused the call says more than that there was no more time.
        let cause = cause.filter(|cause| !cause.is_timeout());
        let cause = cause.or_else(|| self.refusal.take());
        failure::of_connecting(cause.unwrap_or_else(failure::timed_out))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redis::make_extension_error;

    use super::super::supplied::Silent;
    use super::*;
    use crate::error::Refused;

    const HOUR: Duration = Duration::from_secs(3600);

    fn attempts(connection: &Connection, time: Duration) -> Attempts<'_> {
        let of_refusal: OfRefusal = |_, _, may_have_run| Error::unanswered(may_have_run);
        let deadline = Instant::now() + time;
        Attempts::new(connection, "key", of_refusal, deadline, Repeat::Safe)
    }

    /// How long a call pauses after each of its attempts that fails like this.
    async fn pauses_after(failure: Failure) -> Vec<u128> {
        let connection = Connection::over(Silent, HOUR, Arc::default());
        let mut attempts = attempts(&connection, HOUR);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let start = Instant::now();
            let again = attempts.after::<()>(Err(failure.clone())).await;
            assert!(again.unwrap().is_none());
            pauses.push(start.elapsed().as_millis());
        }
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_asked_for_again_soon_however_many_were_lost_before() {
        let pauses = pauses_after(Failure::Lost(Some(failure::closed()))).await;
        assert_eq!(pauses, [10, 20, 40, 50, 50, 50, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_tells_whether_an_earlier_attempt_may_have_run() {
        let connection = Connection::over(Silent, HOUR, Arc::default());
        for sent_before in [false, true] {
            let mut attempts = attempts(&connection, HOUR);
            if sent_before {
                let lost = Failure::Lost(Some(failure::closed()));
                assert!(attempts.after::<()>(Err(lost)).await.unwrap().is_none());
            }
            let refused = make_extension_error("NOPERM".to_owned(), None);
            let error = attempts.after::<()>(Err(Failure::Refused(refused))).await;
            let may_have_run = matches!(error, Err(Error::Indeterminate { .. }));
            assert_eq!(may_have_run, sent_before);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_answers_decide_nothing_is_not_silent() {
        let connection = Connection::over(Silent, HOUR, Arc::default());
        let loading = || make_extension_error("BUSY".to_owned(), None);
        let mut attempts = attempts(&connection, HOUR);
        assert_eq!(attempts.indeterminate(None).refused(), None);
        // A busy server serves nobody now, so the call did not run.
        let busy = Failure::NotRun(loading());
        assert!(attempts.after::<()>(Err(busy)).await.unwrap().is_none());
        assert_eq!(attempts.indeterminate(None).refused(), None);
        assert!(attempts.after(Ok(())).await.unwrap().is_some());
        for cause in [None, Some(failure::closed())] {
            let error = attempts.indeterminate(cause);
            assert_eq!(error.refused(), Some(Refused::Call));
        }
        let error = attempts.indeterminate(Some(loading()));
        assert_eq!(error.refused(), Some(Refused::AllCalls));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_run_a_call_is_asked_less_and_less_often() {
        let pauses = pauses_after(Failure::NotSent(failure::timed_out())).await;
        assert_eq!(pauses, [10, 20, 40, 80, 160, 250, 250]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_more_time_says_why_the_server_refused_it() {
        let connection = Connection::over(Silent, HOUR, Arc::default());
        let mut attempts = attempts(&connection, Duration::from_millis(20));
        let busy = Failure::NotRun(make_extension_error("BUSY".to_owned(), None));
        assert!(attempts.after::<()>(Err(busy)).await.unwrap().is_none());
        tokio::time::advance(attempts.remaining()).await;
        let late = Failure::NotSent(failure::timed_out());
        let error = attempts.after::<()>(Err(late)).await.unwrap_err();
        assert!(error.to_string().contains("BUSY"), "{error}");
    }
}
