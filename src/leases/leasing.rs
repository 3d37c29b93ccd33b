//! The calls for [leases](super::held), and what the queue asks of these.
//!
//! A request that a lease can serve is granted at once, before the breaker is asked. The calls are
//! made in the background, so no caller waits for one, and none depends on a caller's runtime.
//! Waiters are served in order: a new request takes permits of a lease only if nobody waits, and
//! the driver serves the front of the queue from the leases before it makes a call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::held::{LeasePlan, Leases, Todo, UnderWay};
use super::lease::Moment;
use super::settling::settle;
use crate::grant::Grant;
use crate::queue::{CallsAside, HeldAside, Queue, TakenAside};
use crate::store::{AcquireCall, LimiterStore};
use crate::window::{Acquired, Ahead, Requests, SetUp};

/// The part of the available permits that a lease takes, in thousandths: as much is left to others.
const PART: i64 = 500;

/// The leases of a queue.
pub(super) struct Leasing {
    store: Arc<dyn LimiterStore>,
    pub(super) leases: Leases,
}

impl Leasing {
    pub(super) fn new(store: Arc<dyn LimiterStore>) -> Self {
        Self {
            store,
            leases: Leases::new(Instant::now()),
        }
    }

    /// Runs a step of the leases, and makes the calls that it asks for.
    pub(super) fn step(self: &Arc<Self>, queue: &Arc<Queue>, step: impl FnOnce(&Leases) -> Todo) {
        let todo = step(&self.leases);
        for ended in todo.settle {
            settle(queue, ended, Some(self.leases.call()));
        }
        // A change of the limiter is noted before it ends the leases. So one that is not seen here
        // ends them after this step, and then the lease that was planned ends as it comes.
        match todo.ask {
            Some(_) if queue.denials.is_limiter_changing() => {
                self.leases.failed(Instant::now());
            }
            Some(plan) => {
                let asking = Asking {
                    queue: Arc::clone(queue),
                    leasing: Arc::clone(self),
                    plan,
                    is_over: false,
                    _call: self.leases.call(),
                };
                self.store.give_back_in_background(Box::pin(async move {
                    asking.ask().await;
                    Duration::ZERO
                }));
            }
            None => {}
        }
    }
}

impl HeldAside for Leasing {
    fn take(&self, permits: u32, set_up: Option<SetUp>) -> Option<TakenAside> {
        let now = || Moment::now(&*self.store);
        self.leases.acquire(permits, set_up, now)
    }

    fn serves(&self, permits: u32, set_up: Option<SetUp>) -> bool {
        let now = Moment::now(&*self.store);
        self.leases.peek(permits, set_up, now).is_some()
    }

    fn put_back(&self, grant: &Grant) -> bool {
        self.leases.put_back(grant)
    }

    fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    fn calls(&self) -> CallsAside {
        self.leases.calls()
    }

    fn answered(self: Arc<Self>, queue: &Arc<Queue>, call: &AcquireCall, answer: &Acquired) {
        if call.ahead.is_some() || call.requests.debt {
            return;
        }
        self.step(queue, |leases| {
            let mut served = call.requests.served(answer);
            let is_denied = served
                .any(|(run, granted)| granted < run.count && i64::from(run.permits) <= answer.rate);
            let denied = is_denied.then(|| answer.wait());
            let settings = (answer.interval(), call.set_up);
            let taken = call.requests.taken(answer);
            leases.note(settings, taken, denied, Moment::now(&*self.store))
        });
    }

    fn attend(self: Arc<Self>, queue: &Arc<Queue>) {
        let now = || Moment::now(&*self.store);
        self.step(queue, |leases| leases.attend(now()));
    }
}

/// The call for the next lease.
struct Asking {
    queue: Arc<Queue>,
    leasing: Arc<Leasing>,
    plan: LeasePlan,
    is_over: bool,
    _call: UnderWay,
}

impl Asking {
    async fn ask(mut self) {
        let LeasePlan { permits, lasts, .. } = self.plan;
        let (queue, plan) = (Arc::clone(&self.queue), self.plan);
        let leasing = Arc::clone(&self.leasing);
        // Without the settings: a call that arrives when the limiter has been changed or deleted
        // must not undo that.
        let call = AcquireCall::new(Requests::part(permits, PART));
        let call = Arc::new(call.with_ahead(Some(Ahead::Lease(lasts))));
        let sent = Moment::now(&*queue.store);
        let answered = queue.call(&call, queue.store.call_deadline()).await;
        let Ok(answer) = answered else {
            if call.may_have_run() {
                queue.reclaim(call);
            }
            return;
        };
        self.is_over = true;
        let granted = call.requests.taken(&answer) as u32;
        if granted > 0 {
            queue.report_granted(&call, &answer, plan.set_up);
        }
        let mut ends = None;
        leasing.step(&queue, |leases| {
            let now = Moment::now(&*queue.store);
            let (todo, until) = leases.granted(&plan, (call.id, sent), (&answer, granted), now);
            ends = until;
            todo
        });
        let Some(ends) = ends else {
            return;
        };
        if leasing.leases.left(Moment::now(&*queue.store)) > 0 && queue.waiters() > 0 {
            queue.permits_freed();
        }
        let weak = (Arc::downgrade(&queue), Arc::downgrade(&leasing));
        queue.store.run_in_background(Box::pin(async move {
            sleep_until(ends).await;
            if let Some(queue) = weak.0.upgrade()
                && let Some(leasing) = weak.1.upgrade()
            {
                leasing.attend(&queue);
            }
        }));
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_over {
            self.leasing.leases.failed(Instant::now());
        }
    }
}
