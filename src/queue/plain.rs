//! The plain requests of one limiter, which share calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::shared::Queue;
use crate::batch::{CallAnswers, Calls};
use crate::decision::{Decision, decision};
use crate::denials::Deniable;
use crate::error::{Error, Result};
use crate::event::QueueTime;
use crate::store::AcquireCall;
use crate::window::{Acquired, Requests, SetUp};

#[derive(Clone)]
pub(crate) struct PlainRequest {
    pub(super) permits: u32,
    pub(super) set_up: Option<SetUp>,
    /// The request as the last denial may deny it; `None` if the store decides it.
    pub(super) deniable: Option<Deniable>,
    /// Whether the request is probably denied like the one before it. Then it makes no direct call,
    /// so that one call answers all requests of its kind.
    pub(super) is_shared: bool,
    pub(super) queue_time: QueueTime,
}

#[derive(Clone)]
pub(crate) struct PlainCall {
    acquire: Arc<AcquireCall>,
    /// What denies all of its requests, if anything does.
    deniable: Option<Deniable>,
    count: usize,
}

/// A decision, and the time after which a denied waiter asks again.
pub(crate) struct Checked {
    pub(crate) decision: Decision,
    pub(super) wait: Duration,
}

impl Calls for Arc<Queue> {
    type Key = ();
    type Request = PlainRequest;
    type Answer = Checked;
    type Call = PlainCall;

    const CAPACITY: usize = 4096;
    // An acquire call is granted once, and what it took is given back if its caller is gone.
    const IS_REPEATABLE: bool = true;

    fn may_go_alone(request: &PlainRequest) -> bool {
        !request.is_shared
    }

    fn cost(request: &PlainRequest) -> u32 {
        request.permits
    }

    fn deadline(&self) -> Instant {
        self.store.call_deadline()
    }

    fn call<'a>(&self, requests: impl Iterator<Item = &'a PlainRequest> + Clone) -> PlainCall {
        for request in requests.clone() {
            request.queue_time.ends_now();
        }
        let permits = requests.clone().map(|request| request.permits);
        let set_up = SetUp::of_all(requests.clone().filter_map(|request| request.set_up));
        let deniable = requests.clone().map(|request| request.deniable);
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
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static {
        let queue = Arc::clone(self);
        async move {
            let PlainCall {
                acquire: call,
                deniable,
                count,
            } = call;
            if let Some(denials) = deniable.and_then(|it| queue.denials(&it, count)) {
                call.claim(); // it is never sent
                return Ok(denials);
            }
            let answer = match queue.call(&call, deadline).await {
                Ok(answer) => answer,
                Err(error) => {
                    if call.may_have_run() {
                        queue.reclaim(call);
                    }
                    return Err(error);
                }
            };
            if !call.claim() {
                // Its callers are gone, and its permits have been given back.
                return Err(Error::Indeterminate { source: None });
            }
            Ok(decisions(queue.name(), &call, &answer))
        }
    }

    fn may_have_run(call: &PlainCall) -> bool {
        call.acquire.may_have_run()
    }

    fn abandon(&self, call: &PlainCall) {
        self.reclaim(Arc::clone(&call.acquire));
    }

    fn abandon_overdue(&self, call: &PlainCall, deadline: Instant) {
        let (queue, call) = (Arc::clone(self), Arc::clone(&call.acquire));
        // The permits are reclaimed only if nobody has claimed the answer by then.
        self.store.give_back_in_background(Box::pin(async move {
            sleep_until(deadline + Duration::from_millis(1)).await;
            queue.reclaim(call); // reports by itself what stays missing
            Duration::ZERO
        }));
    }

    fn unclaimed(&self, answers: Vec<Checked>) {
        // The grants of one call share one member of the sorted set.
        let grants = answers.into_iter();
        let grants = grants.filter_map(|checked| checked.decision.into_grant());
        let grant = grants.reduce(|mut sum, grant| {
            sum.permits += grant.permits;
            sum
        });
        if let Some(grant) = grant {
            self.give_back(grant);
        }
    }
}

impl Queue {
    /// The decisions on `count` requests, if the last answer denies all of them.
    fn denials(&self, request: &Deniable, count: usize) -> Option<CallAnswers<Arc<Queue>>> {
        let decision = self.denials.denial(request, self.store.changes())?;
        let denial = || {
            Ok(Checked {
                decision: decision.clone(),
                wait: Duration::ZERO, // none of them waits
            })
        };
        Some(std::iter::repeat_with(denial).take(count).collect())
    }
}

/// The decision on each request, in order.
fn decisions(name: &str, call: &AcquireCall, answer: &Acquired) -> CallAnswers<Arc<Queue>> {
    let wait = answer.wait();
    let mut left = answer.available;
    let mut decisions = CallAnswers::<Arc<Queue>>::new();
    for (number, (run, granted)) in call.requests.served(answer).enumerate() {
        for place in 0..run.count {
            let is_granted = place < granted;
            if is_granted {
                left -= i64::from(run.permits);
            }
            let request = (number, run.permits);
            let decision = decision(name, call.id, request, is_granted, left, answer);
            decisions.push(decision.map(|decision| Checked { decision, wait }));
        }
    }
    decisions
}
