//! One limiter's requests in this process: plain ones share calls, waiters are served in order.
//!
//! **Plain requests** (`try_acquire`, `check`) are decided now. They share calls by [`crate::batch`], and may overtake
//! waiters.
//!
//! **Waiters** (`acquire`, timed `try_acquire`) wait in one line per limiter and process, first come, first served. A waiter
//! that finds no line makes a first try as a plain request; denied, it joins the line. The line is asked for in one call
//! at a time, in which the first denial denies all behind it, so that small requests do not starve a large one. The
//! [`State`] decides when that is due; three rules make it wait no longer than it must:
//! 1. The time to ask belongs to the head of the line. When the head leaves or changes, it is computed anew.
//! 2. Permits that may have come free while a call was in flight lead to another call.
//! 3. No waiter depends on another one's runtime. Each runtime with waiters has a driver, a task that makes the calls. The
//!    call in flight is part of the state: where its driver makes no progress, the driver of another runtime sends the
//!    same call again, and it is granted once.
//!
//! **Cancellation.** Dropping a future keeps no permit. A waiter leaves the line; what a call in flight grants to it goes to
//! the next waiters it fits, at the moment of the answer, else back to the store, as does a grant that was delivered and
//! not received. All that needs no caller's runtime.

mod bounds;
mod driver;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod ledger;
mod plain;
mod remembered;
mod sharing;
#[cfg(test)]
mod slow_store;
mod state;
mod waiter;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::batch::{Batcher, SameRuntime};
use crate::decision::{Decision, Grant, decision_alone};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::model::{Answer, SetUp};
use crate::store::{AcquireCall, LimiterStore};
use driver::Driver;
pub(crate) use plain::Decided;
use plain::{Plain, Request};
pub(crate) use state::IntervalOf;
use state::{Known, Left, Published, State, Waiter, Watched};
use waiter::{FirstTry, Ticket};

/// How long the line waits before it asks again, where permits come back much later: other processes may release permits or
/// change the rate. With the time for which permits are left to others it makes a second.
const LONGEST_SLEEP: Duration = Duration::from_millis(850);

/// A wait up to this is not interrupted: a call more in each window of a second would bring nothing.
const LONGEST_WAIT: Duration = Duration::from_millis(1_003);

/// Reads the settings that a waiter's limiter gets. They may change while it waits, so that each call reads them.
pub(crate) type ReadSetUp = Arc<dyn Fn() -> Option<SetUp> + Send + Sync>;

pub(crate) struct WaitQueue {
    plain: Arc<Batcher<Plain>>,
    line: Arc<Line>,
}

/// The waiters of one limiter in this process.
struct Line {
    store: Arc<dyn LimiterStore>,
    state: Lock<State>,
    /// The last answer in the state.
    last_answer: Arc<Published>,
    has_warned_of_skew: AtomicBool,
    /// All permits that this process was granted, except those of [`LimiterStore::try_acquire_now`]: it would cost that
    /// more than all else it does.
    own: AtomicU64,
}

impl WaitQueue {
    pub(crate) fn new(store: Arc<dyn LimiterStore>) -> Self {
        let state = State::default();
        let line = Arc::new(Line {
            store,
            last_answer: state.last_answer.published(),
            state: Lock::new(state),
            has_warned_of_skew: AtomicBool::new(false),
            own: AtomicU64::new(0),
        });
        Self {
            plain: Arc::new(Batcher::new(Plain::new(Arc::clone(&line)))),
            line,
        }
    }

    #[inline]
    pub(crate) fn store(&self) -> &dyn LimiterStore {
        &*self.line.store
    }

    /// Decides now, without waiting for permits. With `set_up` the limiter is created, or gets these settings, in the same
    /// call.
    pub(crate) async fn check(&self, permits: u32, set_up: Option<SetUp>) -> Result<Decision> {
        match self.check_now(permits, set_up) {
            Some(decision) => decision,
            None => {
                let asking = self.check_remembering(permits, set_up, Duration::ZERO);
                Ok(asking.await?.decision)
            }
        }
    }

    /// As [`check`](Self::check), from a store that has the decision without waiting.
    pub(crate) fn check_now(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<Result<Decision>> {
        let decided = self.decide_now(permits, set_up)?;
        Some(decided.map(|decided| decided.decision))
    }

    /// The decision of a store that has it without waiting.
    #[inline]
    fn decide_now(&self, permits: u32, set_up: Option<SetUp>) -> Option<Result<Decided>> {
        let decided = self.store().acquire_now(permits, set_up)?;
        Some(decided.and_then(|(id, answer)| {
            let decision = decision_alone(self.line.name(), id, permits, &answer)?;
            if decision.is_granted() {
                self.line.note_own(i64::from(permits));
            }
            let wait = answer.wait();
            Ok(Decided { decision, wait })
        }))
    }

    /// The place in line of a request that comes now, however late or often it waits.
    pub(crate) fn take_place(&self) -> u64 {
        self.line.step(State::take_sequence)
    }

    /// Waits at its place in line until the permits are granted; `false` where `until` came first. `set_up` as for
    /// [`check`](Self::check). With `fail_fast`, it is `false` at once where the permits certainly come later.
    pub(crate) async fn wait(
        &self,
        sequence: u64,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
        fail_fast: Option<&IntervalOf<'_>>,
    ) -> Result<bool> {
        if self.is_hopeless(permits, until, fail_fast) {
            return Ok(false);
        }
        let mut denied = None;
        let first_try = FirstTry::start(&self.line, sequence);
        if first_try.is_some() {
            let sent @ (sent_at, _) = self.line.sent();
            let set_up = set_up.as_ref().and_then(|read| read());
            let decided = match self.decide_now(permits, set_up) {
                Some(decided) => {
                    let decided = decided?;
                    self.line.note_decision(&decided.decision, set_up, sent);
                    Some(decided)
                }
                None => {
                    let request = Request::of_waiter(permits, set_up);
                    let asking = self.plain.ask((), request);
                    match SameRuntime::new(Box::pin(within(until, asking)))?.await {
                        Some(Some(decided)) => Some(decided?),
                        Some(None) => return Ok(false),
                        // Another runtime polls it: it waits there.
                        None => None,
                    }
                }
            };
            if let Some(Decided { decision, wait }) = decided {
                match decision {
                    Decision::Granted { .. } => return Ok(true),
                    Decision::Denied { remaining, .. } => {
                        if self.is_hopeless(permits, until, fail_fast) {
                            return Ok(false);
                        }
                        denied = Some(Known::new(remaining, sent_at, wait));
                    }
                }
            }
        }
        let tried = TriedFirst { denied, first_try };
        self.wait_in_line(sequence, permits, until, set_up, tried)
            .await
    }

    /// As [`wait`](Self::wait), for one that has waited elsewhere meanwhile: it does not try for itself first, so that others
    /// who come back at the same moment are served in order.
    pub(crate) async fn wait_again(
        &self,
        sequence: u64,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
    ) -> Result<bool> {
        let tried = TriedFirst {
            denied: None,
            first_try: None,
        };
        self.wait_in_line(sequence, permits, until, set_up, tried)
            .await
    }

    async fn wait_in_line(
        &self,
        sequence: u64,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
        tried: TriedFirst,
    ) -> Result<bool> {
        let TriedFirst {
            mut denied,
            mut first_try,
        } = tried;
        loop {
            let mut ticket =
                self.line
                    .join(permits, set_up.clone(), until, sequence, denied.take())?;
            drop(first_try.take()); // not before it waits in line
            let waiting = SameRuntime::new(Box::pin(within(until, &mut ticket)))?.await;
            match waiting {
                Some(Some(answer)) => return answer.map(|_grant| true),
                Some(None) => return Ok(false),
                // Another runtime polls it. Unless it has its answer, it joins again there, at its old place.
                None => {
                    if let Some(answer) = ticket.answer_now() {
                        return answer.map(|_grant| true);
                    }
                }
            }
        }
    }

    /// Permits may have come free: asks for the line at once.
    pub(crate) fn permits_freed(&self) {
        self.line.permits_freed();
    }
}

/// What a waiter's own try leaves: what it was told, and the right to join before the line asks.
struct TriedFirst {
    denied: Option<Known>,
    first_try: Option<FirstTry>,
}

/// Awaits a future; `None` where `until` comes first.
pub(crate) async fn within<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        None => Some(future.await),
        Some(until) => timeout_at(until, future).await.ok(),
    }
}

impl Line {
    /// Makes a step of the state, and delivers what it has for others once the lock is released.
    fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = step(&mut state);
        let outbox = state.take_outbox();
        drop(state);
        #[cfg(test)]
        crate::interleaving::let_others_run();
        for grant in outbox.deliver() {
            self.give_back(grant);
        }
        result
    }

    fn name(&self) -> &str {
        &self.store.keys().name
    }

    fn join(
        self: &Arc<Self>,
        permits: u32,
        set_up: Option<ReadSetUp>,
        until: Option<Instant>,
        sequence: u64,
        denied: Option<Known>,
    ) -> Result<Ticket> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (answer, receiver) = oneshot::channel();
        let waiter = Waiter::new(permits, set_up, sequence, answer)
            .joined(Instant::now())
            .until(until);
        let new_driver = self.step(|state| state.join(waiter, runtime.id(), denied));
        if let Some(notify) = new_driver {
            runtime.spawn(Driver::new(Arc::clone(self), runtime.id(), notify).drive());
        }
        Ok(Ticket::new(Arc::clone(self), sequence, receiver))
    }

    fn permits_freed(self: &Arc<Self>) {
        self.step(State::permits_freed);
    }

    /// A waiter has left whose receiver `close` closes, under the lock: in each step of the state a waiter is there, or it
    /// has left. `close` returns what it had been answered, if anything.
    fn leave(self: &Arc<Self>, sequence: u64, close: impl FnOnce() -> Option<Result<Grant>>) {
        let (answer, left) = self.step(|state| match close() {
            Some(answer) => (Some(answer), Left::Nothing),
            None => (None, state.leave(sequence)),
        });
        if let Some(Ok(grant)) = answer {
            // Others may have waited for long: the store decides anew who gets it, and when.
            self.give_back(grant);
        }
        match left {
            Left::Nothing => {}
            Left::Abandoned(call) => self.reclaim(call),
            Left::Unwatched => self.watch(),
        }
    }

    /// Takes a call that a waiter has left from its driver, where that has not ended it in the time that a call takes.
    fn watch(self: &Arc<Self>) {
        let line = Arc::clone(self);
        let watching = async move {
            loop {
                let since = Instant::now();
                sleep_until(line.store.call_deadline() + Duration::from_millis(1)).await;
                match line.step(|state| state.withdraw_overdue(since)) {
                    Watched::InTime => {}
                    Watched::Ended => return,
                    Watched::Withdrawn(call) => return line.reclaim(call),
                }
            }
        };
        self.store.run_in_background(Box::pin(watching));
    }

    fn note_own(&self, taken: i64) {
        self.own.fetch_add(taken.unsigned_abs(), Ordering::Relaxed);
    }

    fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    /// Makes a call.
    async fn call(&self, call: &AcquireCall, deadline: Instant) -> Result<Answer> {
        let answer = self.store.acquire(call, deadline).await?;
        self.note_own(call.requests.taken(&answer));
        if answer.ahead > 0 && !self.has_warned_of_skew.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limiter = %self.name(),
                ahead_ms = answer.ahead,
                "a peer's clock is ahead: its permits come back late, for all"
            );
        }
        Ok(answer)
    }

    /// Gives a grant that nobody holds back to the store.
    fn give_back(self: &Arc<Self>, grant: Grant) {
        Arc::clone(&self.store).refund_unclaimed(grant, self.on_freed());
    }

    /// Has the store take back what a call took whose callers are gone.
    fn reclaim(self: &Arc<Self>, call: Arc<AcquireCall>) {
        Arc::clone(&self.store).reclaim(call, self.on_freed());
    }

    fn on_freed(self: &Arc<Self>) -> Box<dyn FnOnce() + Send> {
        let line = Arc::downgrade(self);
        Box::new(move || {
            if let Some(line) = line.upgrade() {
                line.permits_freed();
            }
        })
    }
}

impl std::fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitQueue")
            .field("store", &self.line.store)
            .finish_non_exhaustive()
    }
}
