//! Single steps of the state.

mod answers;
mod bounds;
mod first_tries;
mod freed_elsewhere;
mod leaving;
mod next_call;
mod outages;
mod runtimes;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::Instant;

use super::availability::LONGEST_SLEEP;
use super::drivers::CAPACITY;
use super::waiter::TIME_FOR_A_CALL;
use super::*;
use crate::batch::LONGEST_HOLD_UP;
use crate::denials::{Denial, Denials, Sent};
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::store::AcquireCall;
use crate::window::{Acquired, Requests};

const RATE: i64 = 10;

struct Queue {
    state: State,
    denials: Denials,
    now: Instant,
    /// The last call.
    sent: Option<Sent>,
    runtimes: [Runtime; 2],
}

type AnswerReceiver = Receiver<Result<Grant>>;

impl Queue {
    fn new() -> Self {
        Self {
            state: State::over(Duration::MAX),
            denials: Denials::default(),
            now: Instant::now(),
            sent: None,
            runtimes: [(); 2].map(|()| Builder::new_current_thread().build().unwrap()),
        }
    }

    fn join(
        &mut self,
        sequence: u64,
        permits: u32,
        denied: Option<Availability>,
    ) -> AnswerReceiver {
        self.join_on(0, sequence, permits, denied)
    }

    fn join_on(
        &mut self,
        runtime: usize,
        sequence: u64,
        permits: u32,
        denied: Option<Availability>,
    ) -> AnswerReceiver {
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter::new(permits, sequence, answer);
        let runtime = self.runtimes[runtime].handle().id();
        self.state.join(waiter, runtime, denied);
        receiver
    }

    fn leave(&mut self, sequence: u64) -> Left {
        self.state.leave(sequence)
    }

    fn fail(&mut self, call: &Arc<AcquireCall>) -> bool {
        let lost = Error::Indeterminate { source: None };
        let is_reclaimed = self.state.failed(call, &lost, self.now);
        self.deliver();
        is_reclaimed
    }

    fn lose_driver(
        &mut self,
        runtime: usize,
        call: Option<&Arc<AcquireCall>>,
    ) -> Option<Arc<AcquireCall>> {
        let runtime = self.runtimes[runtime].handle().id();
        let abandoned = self.state.driver_lost(runtime, call, self.now);
        self.deliver();
        abandoned
    }

    fn deliver(&mut self) {
        let outbox = self.state.take_outbox();
        let unreceived = outbox.map_or_else(Vec::new, Outbox::deliver);
        assert_eq!(unreceived.len(), 0);
    }

    fn next_on(&mut self, runtime: usize) -> Next {
        let runtime = self.runtimes[runtime].handle().id();
        self.state.next(runtime, self.now, false, false)
    }

    fn call(&mut self) -> Arc<AcquireCall> {
        self.call_held_up().0
    }

    /// A call that is sent now.
    fn sent(&self) -> Sent {
        let mut sent = self.denials.sent(0);
        sent.at = self.now;
        sent
    }

    /// Notes the answer to requests.
    fn note(&self, answer: &Acquired, requests: &Requests, sent: Sent) {
        let denial = Denial::by_answer(answer, requests, None, sent);
        if let Some(denial) = denial.filter(|_| !self.state.is_left()) {
            self.denials.remember(denial);
        }
    }

    /// A call, and for how long its waiters have been held up.
    fn call_held_up(&mut self) -> (Arc<AcquireCall>, Duration) {
        self.sent = Some(self.sent());
        match self.next_on(0) {
            Next::Call(call, held_up) => (call, held_up),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, call: &Arc<AcquireCall>, score: i64, available: i64) -> Rest {
        let answer = &Acquired::new(score, RATE, available, 60_000, 60_000);
        if let Some(sent) = self.sent {
            self.note(answer, &call.requests, sent);
        }
        let rest = self.state.answered(&Answered {
            call,
            answer,
            sent_at: self.now,
            now: self.now,
            own: 0,
            name: "limiter",
        });
        self.deliver();
        rest
    }

    /// Whether a runtime's driver has been notified since the last call of this.
    fn is_notified(&mut self, runtime: usize) -> bool {
        self.deliver();
        let runtime = self.runtimes[runtime].handle().id();
        let slot = self.state.drivers.iter().find(|it| it.runtime == runtime);
        let notified = pin!(slot.expect("its driver").notify.notified());
        let mut context = Context::from_waker(Waker::noop());
        notified.poll(&mut context).is_ready()
    }

    /// The denial of a request that was sent `ago`: permits come back in a minute.
    fn denied(&self, ago: Duration) -> Option<Availability> {
        let at = self.now - ago;
        Some(Availability::new(0, at, Duration::from_secs(60), at))
    }
}

fn is_abandoned(left: Left) -> bool {
    matches!(left, Left::Abandoned(_))
}

/// This many permits without an owner.
fn rest(permits: u32) -> Rest {
    Rest {
        permits,
        is_reclaimed: false,
    }
}

fn permits(call: &AcquireCall) -> Vec<u32> {
    let runs = call.requests.runs.iter();
    runs.flat_map(|run| vec![run.permits; run.count as usize])
        .collect()
}
