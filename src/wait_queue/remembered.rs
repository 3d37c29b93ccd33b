//! Plain requests that the store's last answer denies. See [`LastAnswer`](super::state::LastAnswer).

use std::time::Duration;

use tokio::time::Instant;

use super::plain::{Decided, Request};
use super::state::{Deniable, Epoch, Told};
use super::{Line, WaitQueue};
use crate::decision::Decision;
use crate::error::Result;
use crate::model::{Answer, SetUp};
use crate::store::AcquireCall;

impl WaitQueue {
    /// The denial of a request, where an answer of the store says so that is no older than `at_most`.
    pub(crate) fn remembered(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
    ) -> Option<Decision> {
        if at_most.is_zero() {
            return None;
        }
        let request = Deniable::one(permits, set_up, at_most);
        if set_up.is_none() {
            return self
                .line
                .last_answer
                .told()?
                .denial(&request, Instant::now());
        }
        let state = self.line.state.lock();
        state.last_answer.denial(&request, Instant::now())
    }

    /// As [`check`](Self::check), after [`remembered`](Self::remembered). Where it is probably denied again, the requests
    /// that come meanwhile share its answer.
    pub(crate) fn check_remembering(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
    ) -> impl Future<Output = Result<Decided>> {
        let is_shared = !at_most.is_zero() && {
            let request = Deniable::one(permits, set_up, at_most);
            let state = self.line.state.lock();
            state.last_answer.would_deny(&request, Instant::now())
        };
        let request = Request {
            permits,
            set_up,
            at_most,
            is_shared,
        };
        self.plain.ask((), request)
    }

    /// Whether the store's last answer still denies some requests.
    pub(crate) fn remembers(&self, at_most: Duration) -> bool {
        let state = self.line.state.lock();
        state.last_answer.is_in_use(at_most, Instant::now())
    }

    /// The limiter is another one, or none: what is known of it holds no longer.
    pub(crate) fn forget_last_answer(&self) {
        self.line.state.lock().last_answer.forget();
    }
}

impl Line {
    /// What [`note`](Self::note) has to know of a call that is sent now.
    pub(super) fn sent(&self) -> (Instant, Epoch) {
        let epoch = self.state.lock().last_answer.epoch();
        (Instant::now(), epoch)
    }

    /// Notes the answer to a call of plain requests.
    pub(super) fn note(&self, call: &AcquireCall, answer: &Answer, sent: (Instant, Epoch)) {
        let (sent_at, epoch) = sent;
        if let Some(told) = Told::by_answer(answer, &call.requests, sent_at) {
            let mut state = self.state.lock();
            state.last_answer.note(told, call.set_up, epoch);
        }
    }

    /// Notes the decision of a store that has it without waiting.
    pub(super) fn note_decision(
        &self,
        decision: &Decision,
        set_up: Option<SetUp>,
        sent: (Instant, Epoch),
    ) {
        let (sent_at, epoch) = sent;
        if let Some(told) = Told::by_denial(decision, sent_at) {
            self.state.lock().last_answer.note(told, set_up, epoch);
        }
    }
}
