//! The requests of this process on one limiter: plain requests share calls, waiters are served in
//! order.
//!
//! **Plain requests** (`try_acquire`, `check`) are decided at once. They share calls through
//! [`crate::batch`], and may overtake waiters.
//!
//! **Waiters** (`acquire`, `try_acquire_timeout`) form one FIFO queue per limiter and process. A
//! waiter that finds the queue empty first makes a call of its own, beside those of plain requests;
//! if that is denied, it joins the queue. One call at a time asks on behalf of the queue. In this
//! call the first denial denies all requests behind it, so that small requests do not starve a
//! large one. The [`State`] decides when the next call is due. Three rules keep a waiter from
//! waiting longer than it must:
//! 1. The time of the next call belongs to the head of the queue. When the head leaves or changes,
//!    it is computed anew.
//! 2. Permits that may have come free while a call was in flight lead to another call.
//! 3. No waiter depends on another waiter's runtime. Each runtime with waiters has a driver, a task
//!    that makes the calls. The call in flight is part of the state: if its driver makes no
//!    progress, the driver of another runtime sends the same call again, and it is granted once.
//!
//! The store may tell that other clients have freed permits ([`LimiterStore::watch`]): then the
//! next call is made sooner.
//!
//! **Outages.** Waiters keep their places, and the driver's first call after an outage asks for the
//! head: see [`outage`].
//!
//! **Cancellation.** Dropping a future keeps no permit: see [`leaving`].

mod bounds;
mod driver;
mod first_try;
mod hot_keys;
#[cfg(test)]
mod interleaving_tests;
mod leases;
mod leasing;
mod leaving;
#[cfg(test)]
mod ledger;
mod outage;
mod plain;
mod remembered;
mod reserving;
mod settling;
mod sharing;
#[cfg(test)]
mod slow_store_tests;
mod state;
mod waiter;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::batch::Batcher;
use crate::decision::{Decision, decision_alone};
use crate::denials::Denials;
use crate::error::{Error, Result};
#[cfg(test)]
use crate::event::QueueTime;
use crate::grant::Grant;
use crate::lock::Lock;
use crate::permit::CallId;
use crate::same_runtime::SameRuntime;
use crate::store::{AcquireCall, LimiterStore, OnDone};
use crate::window::{Acquired, Ahead, Requests, SetUp};
use bounds::Arrival;
use driver::Driver;
use first_try::Tried;
pub(crate) use hot_keys::{HotKeys, Kept};
use leases::Leases;
pub(crate) use leasing::LeaseHold;
pub(crate) use leaving::within;
pub(crate) use outage::{Substitute, Substituted, WhileAway};
pub(crate) use plain::Checked;
use plain::Plain;
pub(crate) use reserving::Reserved;
use reserving::WeakPending;
pub(crate) use state::ReadSetUp;
use state::{Availability, Outbox, State, Waiter, Waits};
use waiter::PlaceInQueue;

/// Told of permits as soon as the store's answer is there that grants them: until when they may be
/// used, and with which settings it was asked for. The callers may learn of them later, or never.
pub(crate) type OnGranted = Box<dyn Fn(u32, Instant, Option<SetUp>) + Send + Sync>;

pub(crate) struct WaitQueue {
    plain: Arc<Batcher<Plain>>,
    queue: Arc<Queue>,
}

/// The waiters of one limiter in this process.
struct Queue {
    store: Arc<dyn LimiterStore>,
    state: Lock<State>,
    denials: Arc<Denials>,
    /// All permits granted to this process, except those of [`LimiterStore::try_acquire_now`],
    /// where counting would cost more than everything else it does.
    own: AtomicU64,
    on_granted: OnGranted,
    /// Made by the first handle that wants leases.
    leases: OnceLock<Box<Leases>>,
    /// How many calls of this client are changing the limiter: nothing is leased meanwhile.
    lease_stops: AtomicUsize,
    /// Set by the first waiter who has one: all of them give grants back in the same way.
    substitute: OnceLock<Arc<dyn Substitute>>,
    /// Reservations that somebody waits for.
    pending: Lock<Vec<WeakPending>>,
}

impl WaitQueue {
    pub(crate) fn new(store: Arc<dyn LimiterStore>, on_granted: OnGranted) -> Self {
        let state = State::over(store.response_timeout());
        let queue = Arc::new(Queue {
            store,
            denials: Arc::default(),
            state: Lock::new(state),
            own: AtomicU64::new(0),
            on_granted,
            leases: OnceLock::new(),
            lease_stops: AtomicUsize::new(0),
            substitute: OnceLock::new(),
            pending: Lock::default(),
        });
        Self {
            plain: Arc::new(Batcher::new(Plain::new(Arc::clone(&queue)))),
            queue,
        }
    }

    #[inline]
    pub(crate) fn store(&self) -> &dyn LimiterStore {
        &*self.queue.store
    }

    /// Decides at once, without waiting for permits. With `set_up` the same call creates the
    /// limiter, or changes it to these settings.
    #[cfg(test)]
    pub(crate) async fn check(&self, permits: u32, set_up: Option<SetUp>) -> Result<Decision> {
        match self.acquire_now(permits, set_up)? {
            Some((id, answer)) => self.decided(id, permits, &answer),
            None => {
                let queue_time = QueueTime::default();
                let asking = self.check_remembering(permits, set_up, Duration::ZERO, &queue_time);
                Ok(asking.await?.decision)
            }
        }
    }

    /// What an answer to one request says.
    #[inline]
    pub(crate) fn decided(&self, id: CallId, permits: u32, answer: &Acquired) -> Result<Decision> {
        let decided = decision_alone(self.queue.name(), id, permits, answer);
        // A lease's permits were counted when it was taken.
        if !answer.found && matches!(&decided, Ok(decision) if decision.is_granted()) {
            self.queue.note_own(i64::from(permits));
        }
        decided
    }

    #[cfg(test)]
    pub(crate) fn take_place(&self) -> Arrival {
        self.arrive(usize::MAX).expect("there is room")
    }

    /// Waits at its place in the queue until the permits are granted, and returns the grant, or
    /// `None` at `until`. `set_up` as for [`check`](Self::check). With `fail_fast`, returns `None`
    /// at once if the permits certainly come later than `until`.
    pub(crate) async fn wait(
        &self,
        arrival: Arrival,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
        fail_fast: bool,
        while_away: WhileAway,
    ) -> Result<Option<Grant>> {
        let request = Waits {
            permits,
            set_up: set_up.as_ref().and_then(|read| read()),
            until,
        };
        if fail_fast && self.is_hopeless(&request) {
            return Ok(None);
        }
        let started = Instant::now();
        let (mut denied, mut late) = (None, None);
        if arrival.arrived.is_first {
            match self.first_try(&arrival, &request, &while_away).await? {
                Tried::Granted(grant) => return Ok(Some(grant)),
                Tried::TimeIsUp => return Ok(None),
                Tried::Unanswered => {}
                Tried::Late(asking) => late = Some(asking),
                Tried::Denied(known) => {
                    if fail_fast && self.is_hopeless(&request) {
                        return Ok(None);
                    }
                    denied = Some(known);
                }
            }
        }
        let sequence = arrival.arrived.sequence;
        loop {
            let joined = late.as_ref().map_or_else(Instant::now, |_| started);
            if late.is_none() {
                arrival.queue_time.goes_on();
            }
            let waiter = |answer| {
                Waiter::new(permits, set_up.clone(), sequence, answer)
                    .timed(&arrival.queue_time)
                    .joined(joined)
                    .until(until)
                    .while_away(while_away.clone())
            };
            let mut place = self.queue.join(waiter, sequence, denied.take())?;
            let stays = while_away.stays();
            let served = async {
                if let Some(asking) = late.as_mut() {
                    let (queue, place) = (&self.queue, &mut place);
                    let served = queue.late_answer(sequence, stays, asking, place).await;
                    if let Some(served) = served {
                        return served;
                    }
                }
                (&mut place).await
            };
            let waiting = SameRuntime::new(Box::pin(within(until, served)))?.await;
            late = None; // on another runtime it is over
            match waiting {
                Some(Some(answer)) => return answer.map(Some),
                Some(None) => return Ok(None),
                // Another runtime polls the future. Unless it has its answer, it joins again there,
                // at its old place.
                None => {
                    if let Some(answer) = place.answer_now() {
                        return answer.map(Some);
                    }
                }
            }
        }
    }

    /// Whether there is an outage, as the store's breaker sees it.
    pub(crate) fn is_away(&self) -> bool {
        self.queue.has_outage()
    }

    /// Ends the waiting of all, now and later, with [`Error::Closed`]. What their call takes is
    /// given back.
    pub(crate) fn close(&self) {
        self.close_leases();
        self.queue.give_back_pending();
        if let Some(call) = self.queue.step(State::close) {
            self.queue.reclaim(call);
        }
    }

    /// Takes permits that have been used, whatever is available: fewer than none may be left.
    /// Nothing gives them back, also if the caller is gone.
    pub(crate) async fn owe(&self, permits: u32, set_up: Option<SetUp>) -> Result<()> {
        let call = AcquireCall::new(Requests::debt(permits)).with_set_up(set_up);
        let deadline = self.store().call_deadline();
        if self.store().decides_at_once() {
            return self.queue.call(&call, deadline).await.map(|_| ());
        }
        loop {
            let owing = Box::pin(self.queue.call(&call, deadline));
            if let Some(answer) = SameRuntime::new(owing)?.await {
                return answer.map(|_| ());
            }
            // Another runtime polls it, and makes the same call, which is granted once.
        }
    }

    /// Gives back a grant of the store that has no owner.
    pub(crate) fn give_back(&self, grant: Grant) {
        self.queue.give_back(grant);
    }

    /// Permits may have come free: makes the queue's call due at once.
    pub(crate) fn permits_freed(&self) {
        self.queue.permits_freed();
    }
}

impl Queue {
    /// Runs a step of the state, and delivers its outbox once the lock is released.
    fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = step(&mut state);
        let outbox = state.take_outbox();
        drop(state);
        #[cfg(test)]
        crate::interleaving::let_others_run();
        for grant in outbox.map(Outbox::deliver).into_iter().flatten() {
            self.give_back(grant);
        }
        result
    }

    fn name(&self) -> &str {
        &self.store.keys().name
    }

    /// `waiter` makes a waiter of the sender of its answer.
    fn join(
        self: &Arc<Self>,
        waiter: impl FnOnce(oneshot::Sender<Result<Grant>>) -> Waiter,
        sequence: u64,
        denied: Option<Availability>,
    ) -> Result<PlaceInQueue> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (answer, receiver) = oneshot::channel();
        let waiter = waiter(answer);
        if let Some(substitute) = waiter.substitute() {
            self.substitute.get_or_init(|| Arc::clone(substitute));
        }
        let joined = self.step(|state| {
            let joined = (!state.is_closed).then(|| state.join(waiter, runtime.id(), denied));
            state.end_first_try(sequence); // not before the waiter has joined
            joined
        });
        let new_driver = joined.ok_or(Error::Closed)?;
        if let Some(notify) = new_driver {
            runtime.spawn(Driver::new(Arc::clone(self), runtime.id(), notify).drive());
        }
        Ok(PlaceInQueue::new(Arc::clone(self), sequence, receiver))
    }

    fn permits_freed(self: &Arc<Self>) {
        self.denials.drop_last();
        self.step(State::permits_freed);
    }

    fn note_own(&self, taken: i64) {
        self.own.fetch_add(taken.unsigned_abs(), Ordering::Relaxed);
    }

    fn own(&self) -> u64 {
        self.own.load(Ordering::Relaxed)
    }

    async fn call(self: &Arc<Self>, call: &AcquireCall, deadline: Instant) -> Result<Acquired> {
        let change = self.denials.set_up(call.set_up, deadline);
        let mut sent = self.sent();
        let answer = self.store.acquire(call, deadline).await?;
        if let Some(change) = change {
            // A call whose requests all exceed the rate changes nothing.
            let set_up = call.set_up.filter(|_| call.requests.any_fits(answer.rate));
            change.gave(set_up, &mut sent);
        }
        // The answer to a reservation does not say what is available.
        if !matches!(call.ahead, Some(Ahead::Reservation { .. })) {
            self.note(&call.requests, call.set_up, &answer, sent);
        }
        let taken = call.requests.taken(&answer);
        if taken > 0 {
            // A reservation is not new to a call that asks for what others took.
            if !matches!(call.ahead, Some(Ahead::Reservation { .. })) {
                self.note_own(taken);
            }
            // A lease's call does not know the settings of the requests that it is for.
            if !matches!(call.ahead, Some(Ahead::Lease(_))) {
                self.tell_granted(call, &answer, call.set_up);
            }
        }
        self.note_for_leases(call, &answer);
        Ok(answer)
    }

    /// Permits are given back without a caller: runs when they are. Until then no denial is
    /// remembered, as it may count them.
    fn giving_back(self: &Arc<Self>) -> OnDone {
        let change = self.denials.change(self.store.call_deadline());
        let queue = Arc::clone(self);
        Box::new(move || {
            change.done();
            queue.permits_freed();
        })
    }

    /// Tells what a call was granted. Permits that are ahead of now may be used until then.
    fn tell_granted(&self, call: &AcquireCall, answer: &Acquired, set_up: Option<SetUp>) {
        let now = Instant::now();
        let ahead = Duration::from_millis(answer.until_score.max(0).unsigned_abs());
        let until = call.ahead.and_then(|_| now.checked_add(ahead));
        // The grants of one call fit a u32.
        let permits = call.requests.taken(answer) as u32;
        (self.on_granted)(permits, until.unwrap_or(now), set_up);
    }

    /// Has the store give back what a call took whose callers are gone.
    fn reclaim(self: &Arc<Self>, call: Arc<AcquireCall>) {
        Arc::clone(&self.store).reclaim(call, self.giving_back());
    }
}

impl std::fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitQueue")
            .field("store", &self.queue.store)
            .finish_non_exhaustive()
    }
}
