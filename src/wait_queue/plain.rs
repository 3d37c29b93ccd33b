//! Plain requests of one limiter, as calls that several share.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Line;
use super::state::Deniable;
use crate::batch::{Answers, Calls};
use crate::decision::{Decision, Grant, decision};
use crate::error::{Error, Result};
use crate::model::{Answer, Requests, SetUp};
use crate::store::AcquireCall;

pub(super) struct Plain {
    line: Arc<Line>,
}

#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) permits: u32,
    pub(super) set_up: Option<SetUp>,
    /// How old an answer may be that denies it. Zero: the store decides.
    pub(super) at_most: Duration,
    /// Whether it is probably denied as the one before it was. Then it does not go alone, so that one call answers all of
    /// its kind.
    pub(super) is_shared: bool,
}

impl Request {
    /// One that the store decides.
    pub(super) fn of_waiter(permits: u32, set_up: Option<SetUp>) -> Self {
        Self {
            permits,
            set_up,
            at_most: Duration::ZERO,
            is_shared: false,
        }
    }

    pub(super) fn deniable(&self) -> Option<Deniable> {
        let Self {
            permits,
            set_up,
            at_most,
            ..
        } = *self;
        (!at_most.is_zero()).then(|| Deniable::one(permits, set_up, at_most))
    }
}

#[derive(Clone)]
pub(super) struct PlainCall {
    acquire: Arc<AcquireCall>,
    /// What denies all of its requests, if anything does.
    deniable: Option<Deniable>,
    count: usize,
}

/// A decision, and when a waiter that was denied asks again.
pub(crate) struct Decided {
    pub(crate) decision: Decision,
    pub(super) wait: Duration,
}

impl Plain {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self { line }
    }
}

impl Calls for Plain {
    type Key = ();
    type Request = Request;
    type Answer = Decided;
    type Call = PlainCall;

    const CAPACITY: usize = 4096;
    // An acquire call is granted once, and what it took is given back where its caller is gone.
    const IS_REPEATABLE: bool = true;

    fn may_go_alone(request: &Request) -> bool {
        !request.is_shared
    }

    fn cost(request: &Request) -> u32 {
        request.permits
    }

    fn deadline(&self) -> Instant {
        self.line.store.call_deadline()
    }

    fn call<'a>(&self, requests: impl Iterator<Item = &'a Request> + Clone) -> PlainCall {
        let permits = requests.clone().map(|request| request.permits);
        // The settings in force are those of the last request.
        let set_up = requests.clone().filter_map(|request| request.set_up).last();
        let deniable = requests.clone().map(Request::deniable);
        PlainCall {
            deniable: deniable.reduce(|one, other| one?.and(other?)).flatten(),
            count: requests.count(),
            acquire: Arc::new(AcquireCall::new(Requests::plain(permits)).with_set_up(set_up)),
        }
    }

    fn run(
        &self,
        call: PlainCall,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answers<Self>>> + Send + 'static {
        let line = Arc::clone(&self.line);
        async move {
            let PlainCall {
                acquire: call,
                deniable,
                count,
            } = call;
            if let Some(denials) = deniable.and_then(|it| line.denials(&it, count)) {
                call.claim(); // it is never sent
                return Ok(denials);
            }
            let sent = line.sent();
            let answer = line.call(&call, deadline).await?;
            line.note(&call, &answer, sent);
            if !call.claim() {
                // Its callers are gone, and its permits have been given back.
                return Err(Error::Indeterminate { source: None });
            }
            Ok(decisions(line.name(), &call, &answer))
        }
    }

    fn may_have_run(call: &PlainCall) -> bool {
        call.acquire.may_have_run()
    }

    fn abandon(&self, call: &PlainCall) {
        self.line.reclaim(Arc::clone(&call.acquire));
    }

    fn abandon_overdue(&self, call: &PlainCall, deadline: Instant) {
        let (line, call) = (Arc::clone(&self.line), Arc::clone(&call.acquire));
        // It is reclaimed only where nobody has claimed the answer by then.
        self.line.store.run_in_background(Box::pin(async move {
            sleep_until(deadline + Duration::from_millis(1)).await;
            line.reclaim(call);
        }));
    }

    fn unclaimed(&self, answers: Vec<Decided>) {
        // The grants of one call are one member of the permits.
        let decisions = answers.into_iter().map(|decided| decided.decision);
        let grants = decisions.filter_map(Decision::into_grant);
        let grant = grants.reduce(|sum, grant| Grant {
            permits: sum.permits + grant.permits,
            ..sum
        });
        if let Some(grant) = grant {
            self.line.give_back(grant);
        }
    }
}

impl Line {
    /// The decisions on so many requests, where the last answer denies all of them.
    fn denials(&self, request: &Deniable, count: usize) -> Option<Answers<Plain>> {
        let state = self.state.lock();
        let now = Instant::now();
        let denial = || {
            let decision = state.last_answer.denial(request, now)?;
            let wait = Duration::ZERO; // none of them waits
            Some(Ok(Decided { decision, wait }))
        };
        std::iter::repeat_with(denial).take(count).collect()
    }
}

/// Each request's own decision, in order.
fn decisions(name: &str, call: &AcquireCall, answer: &Answer) -> Answers<Plain> {
    let wait = answer.wait();
    let mut left = answer.balance;
    let mut decisions = Answers::<Plain>::new();
    for (run, granted) in call.requests.served(answer) {
        for place in 0..run.count {
            let is_granted = place < granted;
            if is_granted {
                left -= i64::from(run.permits);
            }
            let decision = decision(name, call.id, run.permits, is_granted, left, answer);
            decisions.push(decision.map(|decision| Decided { decision, wait }));
        }
    }
    decisions
}
