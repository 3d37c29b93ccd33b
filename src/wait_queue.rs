//! Many requests, one call: combining, waiting in line, cancellation. One queue a limiter and process.
//!
//! **Combining.** A request that finds nobody else asking makes its own call. What arrives while a call is under way
//! is put down in `arrivals`, and one task, the driver, carries all of it in the next call. The script serves the
//! list in order, so each request gets what it would have got alone.
//!
//! **Waiting.** `acquire` and timed `try_acquire` stand in `line`, first come, first served. Only the driver asks for
//! them: when the wait that the last answer named is over, it asks for all of the line in one call, where the first
//! denial denies those behind it. So a large request at the head is not starved by small ones. A plain request never
//! waits and may overtake the line. Permits that another process gives back are noticed within [`LONGEST_SLEEP`].
//!
//! **Cancellation.** Dropping a future keeps no permit. A request that is put down and dropped is passed over. A call
//! under way goes on without its caller, and what it granted to nobody goes to the head of the line where it fits,
//! else back to the store. A grant that was handed over and not picked up comes back the same way. Only a runtime that
//! shuts down in the middle of a call leaves permits to come back with their window.

mod batch;
mod caller;
mod desk;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod slow_store;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::decision::{Decision, Grant, decision_alone};
use crate::error::Result;
use crate::model::Answer;
use crate::permit::Random;
use crate::store::{AcquireCall, LimiterStore};
use batch::Batch;
use caller::{LoneCall, Receiver};
use desk::{Desk, Next, Request, Wake};

/// How long the line sleeps at most before it asks again, whatever wait it was told.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

pub(crate) struct Queue {
    store: Arc<dyn LimiterStore>,
    desk: Mutex<Desk>,
    /// Wakes the driver out of its sleep.
    arrived: Notify,
    told_of_skew: AtomicBool,
}

impl Queue {
    pub(crate) fn new(store: Arc<dyn LimiterStore>) -> Self {
        Self {
            store,
            desk: Mutex::default(),
            arrived: Notify::new(),
            told_of_skew: AtomicBool::new(false),
        }
    }

    pub(crate) fn store(&self) -> &dyn LimiterStore {
        &*self.store
    }

    fn name(&self) -> &str {
        &self.store.keys().name
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing panics while the lock is held; were it so, the requests put down would still be whole.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides now, without waiting for permits.
    pub(crate) async fn decide(self: &Arc<Self>, permits: u32) -> Result<Decision> {
        if let Some(decision) = self.decide_at_once(permits) {
            return decision;
        }
        self.decide_together(permits).await
    }

    async fn decide_together(self: &Arc<Self>, permits: u32) -> Result<Decision> {
        loop {
            let receiver = {
                let mut desk = self.desk();
                if desk.start_lone_call() {
                    None
                } else {
                    Some(self.put_down(desk, permits, 0, Desk::arrive))
                }
            };
            let Some(receiver) = receiver else {
                return LoneCall::new(Arc::clone(self), permits).await;
            };
            if let Some(answer) = receiver.await {
                return answer;
            }
            // The runtime that drove the queue shut down: ask again from this one.
        }
    }

    /// Whether the permits are granted now.
    pub(crate) async fn is_granted(self: &Arc<Self>, permits: u32) -> Result<bool> {
        if let Some(is_granted) = self.store.try_acquire_now(permits) {
            return is_granted;
        }
        // In its own box, so that a future that needs none of this is small.
        let decision = Box::pin(self.decide_together(permits)).await?;
        Ok(decision.is_granted())
    }

    /// The decision of a backend that needs no waiting, and so no combining.
    fn decide_at_once(&self, permits: u32) -> Option<Result<Decision>> {
        let answer = self.store.acquire_now(permits)?;
        Some(answer.and_then(|(random, answer)| self.decision_alone(random, permits, &answer)))
    }

    fn decision_alone(&self, id: Random, permits: u32, answer: &Answer) -> Result<Decision> {
        decision_alone(self.name(), id, permits, answer)
    }

    /// Waits in line until the permits are granted; `false` where `until` came first.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        permits: u32,
        until: Option<Instant>,
    ) -> Result<bool> {
        let granted = self.wait_in_line(permits);
        match until {
            None => granted.await?,
            Some(until) => match timeout_at(until, granted).await {
                Ok(granted) => granted?,
                // Dropped, it keeps nothing.
                Err(_elapsed) => return Ok(false),
            },
        }
        Ok(true)
    }

    async fn wait_in_line(self: &Arc<Self>, permits: u32) -> Result<()> {
        let turn = self.desk().take_turn();
        loop {
            let receiver = match self.ask_before_the_line(permits).await {
                Some(Ok(Decision::Granted { .. })) => return Ok(()),
                Some(Ok(Decision::Denied { retry_after, .. })) => {
                    let ask_at = Instant::now() + retry_after.min(LONGEST_SLEEP);
                    self.put_down(self.desk(), permits, turn, |desk, request| {
                        desk.join_line_denied(request, ask_at)
                    })
                }
                Some(Err(error)) => return Err(error),
                None => self.put_down(self.desk(), permits, turn, Desk::join_line),
            };
            if let Some(answer) = receiver.await {
                return answer.map(|_granted| ());
            }
        }
    }

    /// The answer for one who would be the first in line, where nobody else is asking.
    async fn ask_before_the_line(self: &Arc<Self>, permits: u32) -> Option<Result<Decision>> {
        if self.desk().has_line() {
            return None;
        }
        if let Some(decision) = self.decide_at_once(permits) {
            return Some(decision);
        }
        {
            let mut desk = self.desk();
            if desk.has_line() || !desk.start_lone_call() {
                return None;
            }
        }
        Some(LoneCall::new(Arc::clone(self), permits).await)
    }

    /// Asks for the line at once: this process gave permits back, or changed the rate.
    pub(crate) fn ask_again(&self) {
        // A line has a driver, so there is none to start.
        if self.desk().ask_line_now() == Wake::Rouse {
            self.arrived.notify_one();
        }
    }

    /// Puts a request where `place` says and sees to it that somebody works on it.
    fn put_down(
        self: &Arc<Self>,
        mut desk: MutexGuard<'_, Desk>,
        permits: u32,
        turn: u64,
        place: impl FnOnce(&mut Desk, Request) -> Wake,
    ) -> Receiver {
        let (answer, receiver) = oneshot::channel();
        let request = Request {
            permits,
            turn,
            answer,
        };
        let wake = place(&mut desk, request);
        drop(desk);
        match wake {
            Wake::Start => {
                tokio::spawn(Shift::start(Arc::clone(self)).drive());
            }
            Wake::Rouse => self.arrived.notify_one(),
            Wake::Nothing => {}
        }
        Receiver::new(Arc::clone(self), receiver)
    }

    /// One call to the store.
    async fn call(&self, call: &AcquireCall) -> Result<Answer> {
        let answer = self.store.acquire(call, self.store.call_deadline()).await?;
        if answer.ahead > 0 && !self.told_of_skew.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limiter = %self.name(),
                ahead_ms = answer.ahead,
                "a peer's clock is ahead: its permits come back late, for all"
            );
        }
        Ok(answer)
    }

    async fn call_for(self: &Arc<Self>, batch: Batch) {
        let call = AcquireCall::new(batch.requests());
        let random = call.id;
        let result = self.call(&call).await;
        let unclaimed = match result {
            Ok(answer) => self.hand_out(batch, random, &answer),
            Err(error) => {
                for request in batch.requests {
                    // Whoever is gone needs no answer.
                    let _ = request.answer.send(Err(error.clone()));
                }
                return;
            }
        };
        if let Some(grant) = unclaimed {
            self.give_back(grant).await;
        }
    }

    /// Tells each request its answer. Returns what was granted to requests that are gone.
    fn hand_out(&self, batch: Batch, random: Random, answer: &Answer) -> Option<Grant> {
        let mut unclaimed = 0;
        let mut still_in_line = Vec::new();
        let decisions = batch.decisions(self.name(), random, answer);
        for (place, (request, decision)) in batch.requests.into_iter().zip(decisions).enumerate() {
            match decision {
                Ok(Decision::Denied { .. }) if place < batch.in_line => still_in_line.push(request),
                decision => {
                    if let Err(Ok(Decision::Granted { grant, .. })) = request.answer.send(decision)
                    {
                        unclaimed += grant.permits;
                    }
                }
            }
        }
        let wait = answer.wait().min(LONGEST_SLEEP);
        self.desk()
            .stay_in_line(still_in_line, Instant::now() + wait);
        (unclaimed > 0).then_some(Grant {
            score: answer.score,
            random,
            permits: unclaimed,
        })
    }

    /// Gives a grant that nobody holds to the head of the line, as far as it fits, and the rest back to the store.
    async fn give_back(self: &Arc<Self>, mut grant: Grant) {
        self.desk().pass_on(&mut grant);
        if grant.permits == 0 {
            return;
        }
        let queue = Arc::downgrade(self);
        let on_done = Box::new(move || {
            if let Some(queue) = queue.upgrade() {
                queue.ask_again();
            }
        });
        Arc::clone(&self.store).refund_unclaimed(grant, on_done);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The driver's time at work. Where its runtime shuts down, even before it began, everybody put down is told, so that
/// they ask again from a runtime that lives.
struct Shift {
    queue: Arc<Queue>,
    over: bool,
}

impl Shift {
    fn start(queue: Arc<Queue>) -> Self {
        Self { queue, over: false }
    }

    /// The driver: calls as long as there is something to ask.
    async fn drive(mut self) {
        loop {
            let next = self.queue.desk().next(Instant::now());
            match next {
                Next::Call(batch) => self.queue.call_for(batch).await,
                Next::Sleep(until) => {
                    tokio::select! {
                        () = sleep_until(until) => {}
                        () = self.queue.arrived.notified() => {}
                    }
                }
                Next::Stop => {
                    self.over = true;
                    return;
                }
            }
        }
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        if !self.over {
            let abandoned = self.queue.desk().abandon();
            drop(abandoned);
        }
    }
}
