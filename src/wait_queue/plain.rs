//! Plain requests of one limiter, as calls that several share.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Line;
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
}

/// A decision, and when a waiter that was denied asks again.
pub(super) struct Decided {
    pub(super) decision: Decision,
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
    type Call = Arc<AcquireCall>;

    const CAPACITY: usize = 4096;
    // An acquire call is granted once, and what it took is given back where its caller is gone.
    const IS_REPEATABLE: bool = true;

    fn cost(request: &Request) -> u32 {
        request.permits
    }

    fn deadline(&self) -> Instant {
        self.line.store.call_deadline()
    }

    fn call<'a>(&self, requests: impl Iterator<Item = &'a Request> + Clone) -> Arc<AcquireCall> {
        let permits = requests.clone().map(|request| request.permits);
        // The settings in force are those of the last request.
        let set_up = requests.filter_map(|request| request.set_up).last();
        Arc::new(AcquireCall::new(Requests::plain(permits)).with_set_up(set_up))
    }

    fn run(
        &self,
        call: Arc<AcquireCall>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answers<Self>>> + Send + 'static {
        let line = Arc::clone(&self.line);
        async move {
            let answer = line.call(&call, deadline).await?;
            if !call.claim() {
                // Its callers are gone, and its permits have been given back.
                return Err(Error::Indeterminate { source: None });
            }
            Ok(decisions(line.name(), &call, &answer))
        }
    }

    fn abandon(&self, call: &Arc<AcquireCall>) {
        self.line.reclaim(Arc::clone(call));
    }

    fn abandon_overdue(&self, call: &Arc<AcquireCall>, deadline: Instant) {
        let (line, call) = (Arc::clone(&self.line), Arc::clone(call));
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
