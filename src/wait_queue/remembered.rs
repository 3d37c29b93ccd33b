//! Requests that the store's last answer denies, and the calls that drop it. See [`LastAnswer`](super::state::LastAnswer).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::plain::{Checked, Request};
use super::state::{Deniable, LastAnswer, Observed, Sent};
use super::{Shared, WaitQueue};
use crate::decision::Decision;
use crate::error::Result;
use crate::store::AcquireCall;
use crate::window::{Answer, Requests, SetUp};

/// A call under way. Unless its answer says otherwise, it may change the limiter until its deadline.
///
/// Each call by which this client changes the limiter is one of these: what it drops is never remembered longer than the
/// call takes.
pub(crate) struct Sending {
    shared: Arc<Shared>,
    sent: Sent,
    effect: Effect,
    deadline: Instant,
    is_answered: bool,
}

/// What the answer to a call says, to be noted in a step of the state.
pub(crate) struct Heard {
    observed: Option<Observed>,
    set_up: Option<SetUp>,
    sent: Sent,
}

impl Heard {
    pub(super) fn new(
        requests: &Requests,
        set_up: Option<SetUp>,
        answer: &Answer,
        sent: Sent,
    ) -> Self {
        // A call whose requests all exceed the rate changes nothing.
        let set_up = set_up.filter(|_| requests.any_fits(answer.rate));
        Self {
            observed: Observed::by_answer(answer, requests, set_up, &sent),
            set_up,
            sent,
        }
    }

    pub(super) fn note(self, last_answer: &mut LastAnswer) {
        last_answer.note(self.observed, self.set_up, &self.sent);
    }
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    /// It takes permits, after giving the limiter these settings.
    Takes(Option<SetUp>),
    /// It changes the limiter otherwise.
    Changes,
}

impl Effect {
    fn changes(self, last_answer: &LastAnswer) -> bool {
        match self {
            Self::Takes(set_up) => last_answer.is_changed_by(set_up),
            Self::Changes => true,
        }
    }
}

impl Sending {
    /// The call has been made.
    pub(crate) fn done(mut self) {
        self.is_answered = true;
        let mut state = self.shared.state.lock();
        if self.effect.changes(&state.last_answer) {
            state.last_answer.changed();
        }
    }

    /// The limiter has a rate with this keep alive.
    pub(crate) fn rate_set(mut self, keep_alive: Option<Duration>) {
        self.is_answered = true;
        let mut state = self.shared.state.lock();
        state.last_answer.rate_set(keep_alive, Instant::now());
    }

    /// The limiter has this time to live, if any.
    pub(crate) fn expires(mut self, time_to_live: Option<Duration>) {
        self.is_answered = true;
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        state.last_answer.expires(time_to_live, &self.sent, now);
    }

    /// The call got this answer. The caller notes what it says.
    pub(super) fn answered(mut self, call: &AcquireCall, answer: &Answer) -> Heard {
        self.is_answered = true;
        Heard::new(&call.requests, call.set_up, answer, self.sent)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let mut state = self.shared.state.lock();
        if self.effect.changes(&state.last_answer) {
            state.last_answer.unsettled(self.deadline);
        }
    }
}

impl WaitQueue {
    /// A call that changes the rate, the permits in use or the time to live.
    pub(crate) fn changing(&self) -> Sending {
        let deadline = self.store().call_deadline();
        self.shared.sending(Effect::Changes, deadline)
    }

    /// A call of others than this queue that gives the limiter these settings.
    pub(crate) fn setting_up(&self, set_up: SetUp, deadline: Instant) -> Sending {
        self.shared.sending(Effect::Takes(Some(set_up)), deadline)
    }

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
        let changes = self.store().changes();
        if set_up.is_none() {
            let observed = self.shared.last_answer.observed();
            let observed = observed.filter(|it| it.is_after(changes))?;
            return observed.denial(&request, Instant::now());
        }
        let state = self.shared.state.lock();
        state.last_answer.denial(&request, changes, Instant::now())
    }

    /// Like [`check`](Self::check), after [`remembered`](Self::remembered). If the request is probably denied again,
    /// requests that arrive in the meantime share its answer. If it `is_decided_anyway`, what it took without an answer
    /// goes back.
    pub(crate) fn check_remembering(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
        is_decided_anyway: bool,
    ) -> impl Future<Output = Result<Checked>> {
        let is_shared = !at_most.is_zero() && {
            let request = Deniable::one(permits, set_up, at_most);
            let changes = self.store().changes();
            let state = self.shared.state.lock();
            state
                .last_answer
                .would_deny(&request, changes, Instant::now())
        };
        let request = Request {
            permits,
            set_up,
            at_most,
            is_shared,
            is_decided_anyway,
            is_first_try: false,
        };
        async move { self.plain.ask(&(), &request).await }
    }

    /// Whether the store's last answer still denies some requests.
    pub(crate) fn remembers(&self, at_most: Duration) -> bool {
        let state = self.shared.state.lock();
        state.last_answer.is_in_use(at_most, Instant::now())
    }
}

impl Shared {
    /// A call that takes permits, after giving the limiter these settings.
    pub(super) fn sending_acquire(
        self: &Arc<Self>,
        set_up: Option<SetUp>,
        deadline: Instant,
    ) -> Sending {
        self.sending(Effect::Takes(set_up), deadline)
    }

    fn sending(self: &Arc<Self>, effect: Effect, deadline: Instant) -> Sending {
        if let Effect::Takes(set_up @ Some(_)) = effect {
            self.state.lock().last_answer.may_be_set_up(set_up);
        }
        Sending {
            sent: self.sent(),
            shared: Arc::clone(self),
            effect,
            deadline,
            is_answered: false,
        }
    }

    /// What [`Heard`] must know about a call that is sent now.
    pub(super) fn sent(&self) -> Sent {
        let changes = self.store.changes();
        self.last_answer.sent(Instant::now(), changes)
    }

    /// Notes what an answer says.
    pub(super) fn note(&self, heard: Heard) {
        heard.note(&mut self.state.lock().last_answer);
    }
}
