//! The calls for [leases](super::leases), and the requests that these serve.
//!
//! A request that a lease can serve is granted at once, before the breaker is asked. The calls are
//! made in the background, so no caller waits for one, and none depends on a caller's runtime.
//! Waiters are served in order: who arrives takes of a lease only if nobody waits, and the driver
//! gives the front of the queue what a lease has, before it makes a call.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::leases::{Hold, LeaseCalls, LeasePlan, Leases, Moment, Todo, UnderWay};
use super::requests::WaitQueue;
use super::shared::Queue;
use super::state::State;
use crate::error::Result;
use crate::grant::Grant;
use crate::permit::CallId;
use crate::store::AcquireCall;
use crate::window::{Acquired, Ahead, Requests, SetUp};

/// A lease takes this part of what is available, in thousandths: the others find as much.
const PART: i64 = 500;

/// While it lives, the limiter may be leased.
pub(crate) struct LeaseHold {
    queue: Arc<Queue>,
    hold: Hold,
}

impl fmt::Debug for LeaseHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseHold").finish_non_exhaustive()
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        self.queue.step_leases(|leases| leases.release(self.hold));
    }
}

/// While it lives, nothing is leased, because a call of this client changes the limiter: a lease
/// that is taken before the change would be forgotten by it. Those that there are have ended, and
/// so does one whose call is under way, when it comes.
pub(crate) struct LeaseStop {
    queue: Arc<Queue>,
    is_over: bool,
}

impl LeaseStop {
    /// The call has been answered.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for LeaseStop {
    fn drop(&mut self) {
        if self.is_over {
            self.queue.lease_stops.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        // Without an answer the call may still change the limiter, until its deadline at the
        // latest.
        let over = Self {
            queue: Arc::clone(&self.queue),
            is_over: true,
        };
        let store = &self.queue.store;
        let deadline = store.call_deadline();
        store.run_in_background(Box::pin(async move {
            sleep_until(deadline).await;
            drop(over);
        }));
    }
}

impl WaitQueue {
    /// While the result lives, permits may be leased for up to this long, where there were so many
    /// uses in the time of two leases. `None` if the store decides at once.
    pub(crate) fn hold_lease(&self, up_to: Duration, fewest_uses: u64) -> Option<LeaseHold> {
        let queue = &self.queue;
        if queue.store.decides_at_once() {
            return None;
        }
        let leases = || Box::new(Leases::new(Instant::now()));
        let hold = Hold { up_to, fewest_uses };
        queue.leases.get_or_init(leases).hold(hold);
        fence(Ordering::SeqCst); // a change that has found no leases to end is seen by each later plan
        Some(LeaseHold {
            queue: Arc::clone(queue),
            hold,
        })
    }

    /// Whether one request is granted, if that can be decided without waiting. The grant has no id
    /// to refund it by.
    #[inline]
    pub(crate) fn try_acquire_now(&self, permits: u32) -> Result<Option<bool>> {
        if let Some(leases) = self.queue.leases.get()
            && let Some(is_attention_due) = leases.take(permits, None, || self.queue.moment())
        {
            if is_attention_due {
                self.queue.attend();
            }
            return Ok(Some(true));
        }
        self.store().try_acquire_now(permits)
    }

    /// Decides one request, if that is possible without waiting: returns the id of its grant and
    /// the answer.
    #[inline]
    pub(crate) fn acquire_now(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        if let Some(leases) = self.queue.leases.get()
            && let Some(taken) = leases.acquire(permits, set_up, || self.queue.moment())
        {
            if taken.is_attention_due {
                self.queue.attend();
            }
            return Ok(Some((taken.id, taken.answer)));
        }
        self.store().acquire_now(permits, set_up)
    }

    /// What a lease would answer to a request now, if there is one that grants it.
    pub(crate) fn peek_leased(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<(CallId, Acquired)> {
        let leases = self.queue.leases.get()?;
        leases.peek(permits, set_up, self.queue.moment())
    }

    /// The permits that are left in leases.
    pub(crate) fn leased(&self) -> i64 {
        let leases = self.queue.leases.get();
        leases.map_or(0, |leases| leases.left(self.queue.moment()))
    }

    /// Whether there is a lease, or a call for one is under way.
    pub(crate) fn is_leased(&self) -> bool {
        self.queue.is_leased()
    }

    /// Ends the leases. The next one is taken when a request has found what the limiter is then.
    pub(crate) fn end_leases(&self) {
        self.queue.step_leases(Leases::end);
    }

    /// Ends the leases, and takes none from then on.
    pub(crate) fn close_leases(&self) {
        self.queue.step_leases(Leases::close);
    }

    /// Ends the leases, before this client changes the limiter.
    pub(crate) fn stop_leases(&self) -> Option<LeaseStop> {
        let queue = &self.queue;
        if queue.store.decides_at_once() {
            return None;
        }
        queue.lease_stops.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        queue.step_leases(Leases::end);
        Some(LeaseStop {
            queue: Arc::clone(queue),
            is_over: false,
        })
    }

    /// Gives a grant of the store back, or of a lease.
    pub(crate) async fn refund(&self, grant: &Grant) -> Result<u32> {
        self.queue.refund(grant).await
    }
}

impl Queue {
    pub(super) fn moment(&self) -> Moment {
        Moment {
            at: Instant::now(),
            wall: self.store.wall_millis(),
        }
    }

    fn step_leases(self: &Arc<Self>, step: impl FnOnce(&Leases) -> Todo) {
        if let Some(leases) = self.leases.get() {
            let Todo { settle, ask } = step(leases);
            for ended in settle {
                self.settle(ended, Some(leases.call()));
            }
            // A lease that was planned before the leases were ended ends as it comes.
            match ask {
                Some(_) if self.lease_stops.load(Ordering::SeqCst) > 0 => {
                    leases.failed(Instant::now());
                }
                Some(plan) => self.ask_in_background(plan, leases.call()),
                None => {}
            }
        }
    }

    /// The calls for leases from now on.
    pub(super) fn lease_calls(&self) -> Option<LeaseCalls> {
        Some(self.leases.get()?.calls())
    }

    fn attend(self: &Arc<Self>) {
        self.step_leases(|leases| leases.attend(self.moment()));
    }

    /// Whether there is a lease, or a call for one is under way.
    pub(super) fn is_leased(&self) -> bool {
        let leases = self.leases.get();
        leases.is_some_and(|leases| !leases.is_empty() || leases.is_calling())
    }

    /// Whether a lease may serve who arrives.
    pub(super) fn has_lease(&self) -> bool {
        self.leases.get().is_some_and(|leases| !leases.is_empty())
    }

    /// The next step of a driver, after the front of the queue has got what leases have.
    pub(super) fn next_step<T>(self: &Arc<Self>, next: impl FnOnce(&mut State) -> T) -> T {
        let Some(leases) = self.leases.get() else {
            return self.step(next);
        };
        let mut is_attention_due = false;
        let next = self.step(|state| {
            state.serve_front(Instant::now(), |permits, set_up| {
                let taken = leases.acquire(permits, set_up, || self.moment())?;
                is_attention_due |= taken.is_attention_due;
                Some(taken.answer.grant(taken.id, permits))
            });
            next(state)
        });
        if is_attention_due {
            self.attend();
        }
        next
    }

    /// Learns from the store's answer to requests.
    pub(super) fn note_for_leases(self: &Arc<Self>, call: &AcquireCall, answer: &Acquired) {
        if call.ahead.is_some() || call.requests.debt {
            return;
        }
        self.step_leases(|leases| {
            let mut served = call.requests.served(answer);
            let is_denied = served
                .any(|(run, granted)| granted < run.count && i64::from(run.permits) <= answer.rate);
            let denied = is_denied.then(|| answer.wait());
            let settings = (answer.interval(), call.set_up);
            let taken = call.requests.taken(answer);
            leases.note(settings, taken, denied, self.moment())
        });
    }

    fn ask_in_background(self: &Arc<Self>, plan: LeasePlan, call: UnderWay) {
        let asking = Asking {
            queue: Arc::clone(self),
            plan,
            is_over: false,
            _call: call,
        };
        self.store.give_back_in_background(Box::pin(async move {
            asking.ask().await;
            Duration::ZERO
        }));
    }

    async fn refund(&self, grant: &Grant) -> Result<u32> {
        match self.put_back(grant) {
            true => Ok(grant.permits),
            false => self.store.refund(grant).await,
        }
    }

    /// Gives a grant back to its lease, if that has not ended.
    pub(super) fn put_back(&self, grant: &Grant) -> bool {
        let leases = self.leases.get();
        leases.is_some_and(|leases| leases.put_back(grant))
    }
}

/// The call for the next lease.
struct Asking {
    queue: Arc<Queue>,
    plan: LeasePlan,
    is_over: bool,
    _call: UnderWay,
}

impl Asking {
    async fn ask(mut self) {
        let LeasePlan { permits, lasts, .. } = self.plan;
        let (queue, plan) = (Arc::clone(&self.queue), self.plan);
        let Some(leases) = queue.leases.get() else {
            return;
        };
        // Without the settings: a call that arrives when the limiter has been changed or deleted
        // must not undo that.
        let call = AcquireCall::new(Requests::part(permits, PART));
        let call = Arc::new(call.with_ahead(Some(Ahead::Lease(lasts))));
        let sent = queue.moment();
        let answered = queue.call(&call, queue.store.call_deadline()).await;
        let Ok(answer) = answered else {
            if call.may_have_run() {
                queue.reclaim(call);
            }
            return;
        };
        self.is_over = true;
        call.claim();
        let granted = call.requests.taken(&answer) as u32;
        if granted > 0 {
            queue.tell_granted(&call, &answer, plan.set_up);
        }
        let mut ends = None;
        queue.step_leases(|leases| {
            let now = queue.moment();
            let (todo, until) = leases.granted(&plan, (call.id, sent), (&answer, granted), now);
            ends = until;
            todo
        });
        let Some(ends) = ends else {
            return;
        };
        if leases.left(queue.moment()) > 0 && queue.state.lock().admitted() > 0 {
            queue.permits_freed();
        }
        let weak = Arc::downgrade(&queue);
        queue.store.run_in_background(Box::pin(async move {
            sleep_until(ends).await;
            if let Some(queue) = weak.upgrade() {
                queue.attend();
            }
        }));
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(leases) = self.queue.leases.get()
        {
            leases.failed(Instant::now());
        }
    }
}
