//! Plain requests that the store's last answer denies. See [`LastAnswer`](super::state::LastAnswer).

use std::time::Duration;

use tokio::time::Instant;

use super::plain::{Checked, Request};
use super::state::{Deniable, Epoch, Observed};
use super::{Shared, WaitQueue};
use crate::decision::Decision;
use crate::error::Result;
use crate::model::{Answer, SetUp};
use crate::store::AcquireCall;

impl WaitQueue {
    /// The denial of a request, if an answer of the store that is no older than `at_most` denies it.
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
                .shared
                .last_answer
                .observed()?
                .denial(&request, Instant::now());
        }
        let state = self.shared.state.lock();
        state.last_answer.denial(&request, Instant::now())
    }

    /// Like [`check`](Self::check), after [`remembered`](Self::remembered). If the request is probably denied again,
    /// requests that arrive in the meantime share its answer.
    pub(crate) fn check_remembering(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
    ) -> impl Future<Output = Result<Checked>> {
        let is_shared = !at_most.is_zero() && {
            let request = Deniable::one(permits, set_up, at_most);
            let state = self.shared.state.lock();
            state.last_answer.would_deny(&request, Instant::now())
        };
        let request = Request {
            permits,
            set_up,
            at_most,
            is_shared,
        };
        async move { self.plain.ask(&(), &request).await }
    }

    /// Whether the store's last answer still denies some requests.
    pub(crate) fn remembers(&self, at_most: Duration) -> bool {
        let state = self.shared.state.lock();
        state.last_answer.is_in_use(at_most, Instant::now())
    }

    /// The limiter was replaced or deleted: drops the last answer.
    pub(crate) fn forget_last_answer(&self) {
        self.shared.state.lock().last_answer.forget();
    }
}

impl Shared {
    /// What [`note`](Self::note) must know about a call that is sent now.
    pub(super) fn sent(&self) -> (Instant, Epoch) {
        let epoch = self.state.lock().last_answer.epoch();
        (Instant::now(), epoch)
    }

    /// Notes the answer to a call of plain requests.
    pub(super) fn note(&self, call: &AcquireCall, answer: &Answer, sent: (Instant, Epoch)) {
        let (sent_at, epoch) = sent;
        if let Some(observed) = Observed::by_answer(answer, &call.requests, sent_at) {
            let mut state = self.state.lock();
            state.last_answer.note(observed, call.set_up, epoch);
        }
    }

    /// Notes the decision of a store that decides without waiting.
    pub(super) fn note_decision(
        &self,
        decision: &Decision,
        set_up: Option<SetUp>,
        sent: (Instant, Epoch),
    ) {
        let (sent_at, epoch) = sent;
        if let Some(observed) = Observed::by_denial(decision, sent_at) {
            self.state.lock().last_answer.note(observed, set_up, epoch);
        }
    }
}
