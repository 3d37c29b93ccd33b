//! What is put down and who works on it: the queue's state, without any waiting.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::Batch;
use super::books::Books;
use crate::decision::Decision;
use crate::error::Result;

/// The state of one limiter's queue.
#[derive(Default)]
pub(super) struct Desk {
    pub(super) arrivals: VecDeque<Request>,
    pub(super) line: VecDeque<Request>,
    /// When to ask for the line; `None` for at once.
    pub(super) ask_line_at: Option<Instant>,
    /// A lone caller's own call is under way.
    pub(super) lone_call: bool,
    pub(super) driver: Driver,
    pub(super) books: Books,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Driver {
    #[default]
    /// No task: there is nothing to do.
    None,
    /// It waits for the line's time or for an arrival.
    Asleep,
    Calling,
}

/// One caller that waits for its answer.
pub(super) struct Request {
    pub(super) permits: u32,
    pub(super) answer: oneshot::Sender<Result<Decision>>,
}

/// What the driver does next.
pub(super) enum Next {
    Call(Batch),
    Sleep(Instant),
    Stop,
}

impl Desk {
    /// Whether a caller may make its own call.
    pub(super) fn is_idle(&self) -> bool {
        !self.lone_call && self.driver != Driver::Calling && self.arrivals.is_empty()
    }

    pub(super) fn next(&mut self) -> Next {
        while self.line.front().is_some_and(|r| r.answer.is_closed()) {
            self.line.pop_front();
        }
        let line_is_due = self.ask_line_at.is_none_or(|at| at <= Instant::now());
        let mut batch = Batch::default();
        if line_is_due {
            batch.fill_from(&mut self.line);
            batch.in_line = batch.requests.len();
        }
        batch.fill_from(&mut self.arrivals);
        if !batch.requests.is_empty() {
            self.driver = Driver::Calling;
            return Next::Call(batch);
        }
        match self.ask_line_at {
            Some(at) if !self.line.is_empty() => {
                self.driver = Driver::Asleep;
                Next::Sleep(at)
            }
            _ => {
                self.driver = Driver::None;
                self.ask_line_at = None;
                Next::Stop
            }
        }
    }
}
