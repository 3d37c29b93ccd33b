//! Requests that the store's last answer denies, and the calls that drop it. See
//! [`LastAnswer`](super::state::LastAnswer).

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::leasing::LeaseStop;
use super::plain::{Checked, Request};
use super::state::{Deniable, Effect, Observed, Sent, State};
use super::{Queue, WaitQueue};
use crate::decision::Decision;
use crate::error::Result;
use crate::event::QueueTime;
use crate::store::{AcquireCall, OnDone};
use crate::window::{Ahead, Answer, Requests, SetUp};

/// A call under way. Unless its answer says otherwise, it may change the limiter until its
/// deadline.
///
/// Each call by which this client changes the limiter is one of these: until it is over, nothing is
/// remembered.
pub(crate) struct Sending {
    queue: Arc<Queue>,
    sent: Sent,
    effect: Effect,
    /// Whether it changes the limiter.
    changes: bool,
    deadline: Instant,
    leases: Option<LeaseStop>,
    is_over: bool,
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

    pub(super) fn note(self, state: &mut State) {
        state.note(self.observed, self.set_up, &self.sent);
    }
}

impl Sending {
    /// The call has been made.
    pub(crate) fn done(mut self) {
        let (effect, sent) = (self.effect, self.sent);
        let mut state = self.over();
        state.last_answer.made(effect, &sent, Instant::now());
    }

    /// The call has been answered, and changed nothing.
    pub(crate) fn in_vain(mut self) {
        drop(self.over());
    }

    /// The call got this answer. The caller notes what it says.
    pub(super) fn answered(mut self, call: &AcquireCall, answer: &Answer) -> Heard {
        let mut heard = Heard::new(&call.requests, call.set_up, answer, self.sent);
        if matches!(call.ahead, Some(Ahead::Reservation { .. })) || self.queue.is_leased() {
            heard.observed = None; // the answer does not say what is available, or not what leases have beside
        }
        if self.changes {
            let mut state = self.over();
            if let Some(set_up) = heard.set_up {
                state.last_answer.has_set_up(set_up, &mut heard.sent);
            }
        }
        self.is_over = true;
        heard
    }

    /// The call is over, with or without an answer.
    fn over(&mut self) -> MutexGuard<'_, State> {
        self.is_over = true;
        let mut state = self.queue.state.lock();
        if self.changes {
            state.last_answer.over();
        }
        if let Some(leases) = self.leases.take() {
            leases.over();
        }
        state
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if self.is_over || matches!(self.effect, Effect::Takes(None)) {
            return;
        }
        let (effect, changes, sent) = (self.effect, self.changes, self.sent);
        let deadline = self.deadline;
        drop(self.leases.take()); // which waits for the deadline
        let mut state = self.over();
        let last_answer = &mut state.last_answer;
        last_answer.unsettled(effect, changes, &sent, deadline);
    }
}

impl WaitQueue {
    /// A call that changes the limiter.
    pub(crate) fn changing(&self, effect: Effect) -> Sending {
        let deadline = self.store().call_deadline();
        let keeps_leases = matches!(effect, Effect::Takes(_) | Effect::GivesBack);
        let leases = (!keeps_leases).then(|| self.stop_leases()).flatten();
        let mut sending = self.queue.sending(effect, deadline);
        sending.leases = leases;
        sending
    }

    /// A call of others than this queue that gives the limiter these settings.
    pub(crate) fn setting_up(&self, set_up: SetUp, deadline: Instant) -> Sending {
        self.queue.sending(Effect::Takes(Some(set_up)), deadline)
    }

    /// The denial of a request, if an answer of the store that is no older than `at_most` denies
    /// it.
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
        let last_answer = &self.queue.last_answer;
        last_answer.denial(&request, changes, Instant::now())
    }

    /// Like [`check`](Self::check), after [`remembered`](Self::remembered). If the request is
    /// probably denied again, requests that arrive in the meantime share its answer.
    pub(crate) fn check_remembering(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
        queue_time: &QueueTime,
    ) -> impl Future<Output = Result<Checked>> + use<'_> {
        let is_shared = !at_most.is_zero() && {
            let request = Deniable::one(permits, set_up, at_most);
            let changes = self.store().changes();
            let last_answer = &self.queue.last_answer;
            last_answer.would_deny(&request, changes, Instant::now())
        };
        let request = Request {
            permits,
            set_up,
            at_most,
            is_shared,
            is_first_try: false,
            queue_time: queue_time.clone(),
        };
        async move {
            let calls = self.queue.lease_calls();
            let checked = self.plain.ask(&(), &request).await?;
            // A lease may have been taken or given back in the meantime, or is being given back
            // because of this denial.
            if !checked.decision.is_granted()
                && let Some(calls) = match calls {
                    Some(calls) => calls.were_made().then_some(calls),
                    None => self.queue.lease_calls(),
                }
            {
                let again = async {
                    calls.done().await;
                    self.plain.ask(&(), &request).await
                };
                return Box::pin(again).await;
            }
            Ok(checked)
        }
    }

    /// Whether the store's last answer still denies some requests.
    pub(crate) fn remembers(&self, at_most: Duration) -> bool {
        self.queue.last_answer.is_in_use(at_most, Instant::now())
    }
}

impl Queue {
    /// A call that takes permits, after giving the limiter these settings.
    pub(super) fn sending_acquire(
        self: &Arc<Self>,
        set_up: Option<SetUp>,
        deadline: Instant,
    ) -> Sending {
        self.sending(Effect::Takes(set_up), deadline)
    }

    fn sending(self: &Arc<Self>, effect: Effect, deadline: Instant) -> Sending {
        let changes = match effect {
            Effect::Takes(None) => false,
            _ => self.state.lock().last_answer.begin(effect),
        };
        Sending {
            sent: self.sent(),
            queue: Arc::clone(self),
            effect,
            changes,
            deadline,
            leases: None,
            is_over: false,
        }
    }

    /// Permits are given back without a caller: runs when they are. Until then no answer is
    /// remembered, as it may count them.
    pub(super) fn giving_back(self: &Arc<Self>) -> OnDone {
        let sending = self.sending(Effect::GivesBack, self.store.call_deadline());
        Box::new(move || {
            let queue = Arc::clone(&sending.queue);
            sending.done();
            queue.permits_freed();
        })
    }

    /// What [`Heard`] must know about a call that is sent now.
    pub(super) fn sent(&self) -> Sent {
        let changes = self.store.changes();
        self.last_answer.sent(Instant::now(), changes)
    }

    /// Notes what an answer says.
    pub(super) fn note(&self, heard: Heard) {
        heard.note(&mut self.state.lock());
    }
}
