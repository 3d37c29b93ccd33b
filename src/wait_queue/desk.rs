//! What is put down and who works on it: the queue's state and its rules, without any waiting. Whoever changes it holds
//! its lock and then does what it returns.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::Batch;
use crate::decision::{Decision, Grant};
use crate::error::Result;

/// The state of one limiter's queue.
#[derive(Default)]
pub(super) struct Desk {
    /// Plain requests, for the next call.
    arrivals: VecDeque<Request>,
    /// Those who wait for permits.
    line: VecDeque<Request>,
    /// When to ask for the line; `None` for at once.
    ask_line_at: Option<Instant>,
    /// Permits came back while a call was under way, which may have missed them.
    ask_line_again: bool,
    /// A lone caller's own call is under way.
    lone_call: bool,
    /// The turn of the next who comes to wait.
    next_turn: u64,
    driver: Driver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Driver {
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
    /// Who came first has the lower one. It counts in line only.
    pub(super) turn: u64,
    pub(super) answer: oneshot::Sender<Result<Decision>>,
}

/// What to do for the driver after something was put down.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// There is none: start it.
    Start,
    /// It sleeps: wake it.
    Rouse,
    /// It will look at the desk by itself.
    Nothing,
}

/// What the driver does next.
pub(super) enum Next {
    Call(Batch),
    Sleep(Instant),
    Stop,
}

impl Desk {
    /// Lets a caller make its own call where nobody else asks; it says when that is over.
    pub(super) fn start_lone_call(&mut self) -> bool {
        let is_idle = !self.lone_call && self.driver != Driver::Calling && self.arrivals.is_empty();
        if is_idle {
            self.lone_call = true;
            self.ask_line_again = false;
        }
        is_idle
    }

    pub(super) fn end_lone_call(&mut self) {
        self.lone_call = false;
    }

    pub(super) fn has_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// Puts a plain request down.
    pub(super) fn arrive(&mut self, request: Request) -> Wake {
        self.arrivals.push_back(request);
        self.wake()
    }

    /// The turn of one who comes to wait now, however late it joins the line.
    pub(super) fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    /// Puts a request in line.
    pub(super) fn join_line(&mut self, request: Request) -> Wake {
        if self.line.is_empty() {
            self.ask_line_at = None;
        }
        self.stand_in_turn(request);
        self.wake()
    }

    /// Puts a request in line that was just denied.
    pub(super) fn join_line_denied(&mut self, request: Request, ask_at: Instant) -> Wake {
        self.stay_in_line(vec![request], ask_at);
        self.wake()
    }

    /// Puts requests that a call denied back in line.
    pub(super) fn stay_in_line(&mut self, requests: Vec<Request>, ask_at: Instant) {
        if !requests.is_empty() {
            self.ask_line_at = (!self.ask_line_again).then_some(ask_at);
        }
        for request in requests.into_iter().rev() {
            self.stand_in_turn(request);
        }
    }

    fn stand_in_turn(&mut self, request: Request) {
        if self.line.back().is_none_or(|last| last.turn < request.turn) {
            self.line.push_back(request);
            return;
        }
        let place = self.line.partition_point(|other| other.turn < request.turn);
        self.line.insert(place, request);
    }

    /// Lets the line be asked for at once.
    pub(super) fn ask_line_now(&mut self) -> Wake {
        self.ask_line_again = true;
        if self.line.is_empty() {
            return Wake::Nothing;
        }
        self.ask_line_at = None;
        self.wake()
    }

    fn wake(&mut self) -> Wake {
        match self.driver {
            Driver::None => {
                self.driver = Driver::Calling;
                Wake::Start
            }
            Driver::Asleep => Wake::Rouse,
            Driver::Calling => Wake::Nothing,
        }
    }

    /// What the driver does next.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        while self.line.front().is_some_and(Request::is_gone) {
            self.line.pop_front();
        }
        let mut batch = Batch::default();
        if self.ask_line_at.is_none_or(|at| at <= now) {
            batch.fill_from(&mut self.line);
            batch.in_line = batch.requests.len();
        }
        batch.fill_from(&mut self.arrivals);
        if !batch.requests.is_empty() {
            self.driver = Driver::Calling;
            self.ask_line_again = false;
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

    /// Gives the head of the line what fits out of a grant that nobody holds.
    pub(super) fn pass_on(&mut self, grant: &mut Grant) {
        while let Some(head) = self.line.pop_front() {
            if head.is_gone() {
                continue;
            }
            if head.permits > grant.permits {
                self.line.push_front(head);
                return;
            }
            // Who stands in line learns of this only that it was granted.
            let decision = Decision::Granted {
                grant: Grant {
                    permits: head.permits,
                    ..*grant
                },
                limit: 0,
                remaining: 0,
                reset: Duration::ZERO,
                delay: Duration::ZERO,
            };
            let permits = head.permits;
            if head.answer.send(Ok(decision)).is_ok() {
                grant.permits -= permits;
            }
        }
    }

    /// The driver is gone in the middle of its work: hands over all that is put down. Dropping it tells those who wait.
    pub(super) fn abandon(&mut self) -> impl Sized + use<> {
        self.driver = Driver::None;
        self.ask_line_at = None;
        (
            std::mem::take(&mut self.arrivals),
            std::mem::take(&mut self.line),
        )
    }
}

impl Request {
    /// Whether its caller has given up.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}
