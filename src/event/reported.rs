//! A request whose end is reported as an event: it ends with an answer, with an error, or because
//! its future is dropped.

use std::slice;

use smallvec::SmallVec;
use tokio::time::Instant;
use tracing::Span;

use super::{AskedLimiter, Event, Events, QueueTime, RequestResult, spans};
use crate::decision::{Decision, DecisionSource};
use crate::error::{Error, Result};
use crate::grant::{Grant, Origin};

/// The report of one request. If it is dropped before it has [ended](Self::ended), the request was
/// cancelled.
///
/// Without a handler it is as small as a pointer: it is part of each request's future.
#[derive(Default)]
pub(crate) struct Reported<'a>(Option<Box<Started<'a>>>);

type Limiters<'a> = SmallVec<[AskedLimiter<'a>; 1]>;

struct Started<'a> {
    events: &'a Events,
    at: Instant,
    limiters: Limiters<'a>,
    mode: Mode,
    queue_time: QueueTime,
    span: Span,
}

/// Whether the decision of limiters is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Enforced,
    Shadow,
}

impl Mode {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
        }
    }
}

/// What a method returns about a request.
pub(crate) trait Reports {
    fn result(&self) -> RequestResult;

    /// The decision of each limiter, in their order.
    fn decisions(&self) -> &[Decision] {
        &[]
    }

    /// The index of the limiter that decides.
    fn deciding(&self) -> usize {
        0
    }
}

impl<'a> Reported<'a> {
    #[cold]
    pub(super) fn new(events: &'a Events, at: Instant, mode: Mode, limiters: Limiters<'a>) -> Self {
        Self(Some(Box::new(Started {
            events,
            at,
            limiters,
            mode,
            queue_time: match events.is_handled() {
                true => QueueTime::begin(),
                false => QueueTime::default(),
            },
            span: spans::request(),
        })))
    }

    /// The request's time in queues, for the code that takes it out of a queue.
    #[inline]
    pub(crate) fn queue_time(&self) -> QueueTime {
        let started = self.0.as_ref();
        started.map_or_else(QueueTime::default, |it| it.queue_time.clone())
    }

    /// Whether there is no handler. Then a method may return what was decided at once without
    /// [`ended`](Self::ended): an answer that nothing refers to is made where the caller gets it,
    /// and copying one takes as long as making it.
    #[inline]
    pub(crate) fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Reports how the request has ended.
    #[inline]
    pub(crate) fn ended<T: Reports>(mut self, answer: Result<T>) -> Result<T> {
        if let Some(started) = self.0.take() {
            started.end(&answer);
        }
        answer
    }

    /// Reports that the request failed.
    pub(crate) fn failed(mut self, error: Error) -> Error {
        if let Some(started) = self.0.take() {
            started.fail(&error);
        }
        error
    }
}

impl Drop for Reported<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(started) = self.0.take() {
            started.tell(RequestResult::Cancelled, &started.limiters);
        }
    }
}

impl Started<'_> {
    #[cold]
    fn end(&self, answer: &Result<impl Reports>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.fail(error),
        };
        let (result, decisions) = (answer.result(), answer.decisions());
        let is_granted = matches!(result, RequestResult::Granted(_));
        let limiters = self.limiters.iter().enumerate();
        let limiters = limiters.map(|(place, limiter)| AskedLimiter {
            decision: decisions.get(place),
            is_deciding: is_granted || place == answer.deciding(),
            ..*limiter
        });
        self.tell(result, &limiters.collect::<Limiters<'_>>());
    }

    fn fail(&self, error: &Error) {
        self.tell(RequestResult::Failed(error.kind()), &self.limiters);
    }

    fn tell(&self, result: RequestResult, limiters: &[AskedLimiter<'_>]) {
        let took = self.at.elapsed();
        let queued = self.queue_time.end();
        let queued = queued.map_or(took, |end| end.saturating_duration_since(self.at));
        spans::end_request(&self.span, result, limiters, self.mode);
        self.events.tell(|| Event::Request {
            limiters,
            result,
            took,
            queued,
            is_shadow: self.mode == Mode::Shadow,
        });
    }
}

impl<'a> AskedLimiter<'a> {
    pub(super) fn new(name: &'a str, permits: u32) -> Self {
        Self {
            name,
            permits,
            decision: None,
            is_deciding: true,
        }
    }
}

impl RequestResult {
    pub(crate) fn of(is_granted: bool, source: DecisionSource) -> Self {
        match is_granted {
            true => Self::Granted(source),
            false => Self::Denied(source),
        }
    }
}

impl Reports for Decision {
    fn result(&self) -> RequestResult {
        RequestResult::of(self.is_granted(), self.source())
    }

    fn decisions(&self) -> &[Decision] {
        slice::from_ref(self)
    }
}

/// Whether the permits were taken, and who decided.
impl Reports for (bool, DecisionSource) {
    fn result(&self) -> RequestResult {
        RequestResult::of(self.0, self.1)
    }
}

/// A waiter's permits; `None` if its time is up.
impl Reports for Option<Grant> {
    fn result(&self) -> RequestResult {
        match self.as_ref().map(|grant| grant.origin) {
            None => RequestResult::TimedOut,
            Some(Origin::Store) => RequestResult::Granted(DecisionSource::Store),
            Some(Origin::Local | Origin::Nowhere) => {
                RequestResult::Granted(DecisionSource::FailurePolicy)
            }
        }
    }
}
