//! Requests that share calls: one call per key is in flight, and requests that arrive in the
//! meantime share the next.
//!
//! A request that finds no other on its key makes its own call, a *direct call*, at no extra cost.
//! Requests that arrive while a call is in flight are enqueued. A task, the flusher, sends all that
//! are pending as the next call, in the order of arrival. So a key with many requests costs few
//! calls. For some kinds of request there are two flushers, see [`Calls::calls_at_once`]. Callers
//! that were answered together ask again together: after a shared call the flusher lets them run
//! before it looks for pending requests, so the first of them makes no direct call.
//!
//! **Silence.** A call that was sent and is not answered for a while holds up no other: its answer
//! may be lost, and only its own. The next call is made beside it, and no later request depends on
//! what becomes of it.
//!
//! **Runtimes.** Requests share calls only with requests of the same tokio runtime: a key has a
//! [`Flight`] per runtime, and the flusher runs on it. So no request waits for a runtime that is
//! not polled. A request that is polled on another runtime than before, or whose runtime has shut
//! down, is made again on the runtime that polls it.
//!
//! **Time.** Each request has its own deadline, which counts from its arrival. A request that is
//! still pending then was never sent. One that is in flight may have been executed if
//! [`Calls::may_have_run`] says so of its call.
//!
//! **Cancellation.** A request that is dropped while pending is skipped. One that is dropped in
//! flight leaves its answer to [`Calls::unclaimed`]. If nobody waits for a call any more,
//! [`Calls::abandon`] is called at once, because the runtime that would read the answer may not run
//! again. If others wait, [`Calls::abandon_overdue`] is called.
//!
//! **Wakers** are foreign code, which may make requests or panic: none is run, or dropped, under
//! the lock.

mod direct;
mod flusher;
#[cfg(test)]
mod step_tests;
mod ticket;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::same_runtime::Home;
use direct::DirectCall;
use flusher::Flusher;
use ticket::Ticket;

/// A call that was sent and makes no progress holds up no other for longer. A connection that is
/// silent for so long is replaced, so the next call has its answer sooner.
pub(crate) const LONGEST_HOLD_UP: Duration = Duration::from_millis(500);

/// How long a call without progress may hold up others that have `time` in all: at most half of it.
pub(crate) fn hold_up_within(time: Duration) -> Duration {
    LONGEST_HOLD_UP.min(time / 2)
}

/// Each request's answer, in order.
pub(crate) type CallAnswers<C> = SmallVec<[Result<<C as Calls>::Answer>; 1]>;

/// A kind of request, and how a call for several of them is made.
pub(crate) trait Calls: Sized + Send + Sync + 'static {
    /// Requests of one key share calls.
    type Key: Clone + Eq + Hash + Send + Sync + Unpin + 'static;
    type Request: Clone + Send + Sync + 'static;
    type Answer: Send + 'static;
    /// A call in flight.
    type Call: Clone + Send + Sync + Unpin + 'static;

    /// The most requests in a call.
    const CAPACITY: usize;

    /// Whether a request may be made again if an earlier call for it may have been executed.
    const IS_REPEATABLE: bool;

    /// Whether a request that finds no other one makes a direct call.
    fn may_go_alone(_request: &Self::Request) -> bool {
        true
    }

    /// How many shared calls may be in flight at once while this is the last pending request.
    fn calls_at_once(_request: &Self::Request) -> usize {
        1
    }

    /// The permits a request may take. Those of one call fit its [`room`](Self::room).
    fn cost(request: &Self::Request) -> u32;

    /// The permits that a call which begins with this request may take, at least as many as each of
    /// them alone.
    fn room(_first: &Self::Request) -> u32 {
        u32::MAX
    }

    /// The latest time at which a request that arrives now has its answer.
    fn deadline(&self) -> Instant;

    /// A call for these requests; sends nothing yet.
    fn call<'a>(&self, requests: impl Iterator<Item = &'a Self::Request> + Clone) -> Self::Call;

    /// Makes the call. It returns by `deadline`.
    fn run(
        &self,
        call: Self::Call,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static;

    /// Whether the call may have been executed, or may still be.
    fn may_have_run(call: &Self::Call) -> bool;

    /// Nobody waits for this call any more, and its runtime may never read the answer.
    fn abandon(&self, call: &Self::Call);

    /// Some callers no longer wait for this call, and others do: it is abandoned if its answer is
    /// not read by `deadline`.
    fn abandon_overdue(&self, call: &Self::Call, deadline: Instant);

    /// These answers of one call had no recipient.
    fn unclaimed(&self, answers: Vec<Self::Answer>);
}

/// Makes the requests of one kind, in as few calls as it can.
pub(crate) struct Batcher<C: Calls> {
    calls: C,
    /// The flights that have a request or a flusher.
    flights: Lock<HashMap<FlightKey<C>, Flight<C>>>,
}

type FlightKey<C> = (runtime::Id, <C as Calls>::Key);

/// The requests of one key on one runtime.
struct Flight<C: Calls> {
    has_direct_call: bool,
    /// How many flushers take pending requests. Each has a call in flight, or is about to make one.
    flushers: usize,
    pending: VecDeque<Entry<C>>,
    /// The number of the next request to be enqueued.
    next_number: u64,
    /// The calls of the flushers, and silent calls, whose flushers take no more requests.
    in_flight: SmallVec<[BatchCall<C>; 1]>,
}

/// A flusher's call.
struct BatchCall<C: Calls> {
    call: C::Call,
    /// The number of its first request.
    first_number: u64,
    end_number: u64,
    deadline: Instant,
    /// How many of its requests still have a caller.
    live: usize,
    /// Whether it is abandoned once it is overdue.
    is_watched: bool,
    /// Whether it was not answered for so long that its flusher takes no more requests.
    is_silent: bool,
}

/// What remains to be done for a request whose caller is gone.
enum Left<C: Calls> {
    Nothing,
    /// Nobody waits for the call.
    Abandoned(C::Call),
    /// Others wait for it, and may never be polled.
    Unwatched(C::Call, Instant),
}

/// A pending request.
struct Entry<C: Calls> {
    request: C::Request,
    number: u64,
    deadline: Instant,
    /// `None` once answered.
    answer: Option<oneshot::Sender<Result<C::Answer>>>,
}

/// Sends an answer; returns it if nobody receives it. A waker that panics does not keep the answers
/// from later requests.
pub(crate) fn deliver<T>(sender: oneshot::Sender<T>, answer: T) -> Option<T> {
    let sending = AssertUnwindSafe(|| sender.send(answer).err());
    // The answer is there before the waker runs.
    catch_unwind(sending).unwrap_or(None)
}

/// Drops a sender without an answer. A panic of the waker that this runs goes no further.
pub(crate) fn drop_sender<T>(sender: oneshot::Sender<T>) {
    // The panic has been reported by the panic hook.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(sender)));
}

impl<C: Calls> Entry<C> {
    /// Whether nobody waits for its answer.
    fn is_gone(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Answers the request; returns the answer where nobody receives it.
    fn answer(&mut self, answer: Result<C::Answer>) -> Option<Result<C::Answer>> {
        match self.answer.take() {
            Some(sender) => deliver(sender, answer),
            None => Some(answer),
        }
    }
}

impl<C: Calls> Default for Flight<C> {
    fn default() -> Self {
        Self {
            has_direct_call: false,
            flushers: 0,
            pending: VecDeque::new(),
            next_number: 0,
            in_flight: SmallVec::new(),
        }
    }
}

enum Entered<'a, C: Calls> {
    Direct(DirectCall<C>),
    Pending(Ticket<'a, C>),
}

impl<C: Calls> Entered<'_, C> {
    /// `None` if the request must be made again.
    async fn answer(&mut self) -> Option<Result<C::Answer>> {
        match self {
            Self::Direct(direct) => direct.await,
            Self::Pending(ticket) => ticket.await,
        }
    }

    /// Whether the request may have been executed.
    fn may_have_run(&self) -> bool {
        match self {
            Self::Direct(direct) => direct.may_have_run(),
            Self::Pending(ticket) => ticket.may_have_run(),
        }
    }
}

/// Why a request of this call has no answer.
fn unanswered<C: Calls>(call: &C::Call) -> Error {
    Error::unanswered(C::may_have_run(call))
}

impl<C: Calls> Batcher<C> {
    pub(crate) fn new(calls: C) -> Self {
        Self {
            calls,
            flights: Lock::default(),
        }
    }

    /// Makes a request.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        key: &C::Key,
        request: &C::Request,
    ) -> Result<C::Answer> {
        let deadline = self.calls.deadline();
        let mut entered = self.enter(key, request, deadline)?;
        if let Some(answer) = entered.answer().await {
            return answer;
        }
        let mut may_have_run = entered.may_have_run();
        drop(entered);
        // Requests before it in the flight that it joins now may have later deadlines than its own.
        while Instant::now() < deadline {
            let mut again = self.enter(key, request, deadline)?;
            if let Ok(Some(answer)) = timeout_at(deadline, again.answer()).await {
                return answer;
            }
            may_have_run |= again.may_have_run();
        }
        Err(Error::unanswered(may_have_run))
    }

    /// A direct call beside all others, which is made when it is polled.
    pub(crate) fn direct(self: &Arc<Self>, request: &C::Request) -> Result<DirectCall<C>> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (calls, deadline) = (Arc::clone(self), self.calls.deadline());
        Ok(DirectCall::new(calls, None, runtime, request, deadline))
    }

    /// Makes a direct call if there is no other request on the key; otherwise enqueues the request.
    fn enter(
        self: &Arc<Self>,
        key: &C::Key,
        request: &C::Request,
        deadline: Instant,
    ) -> Result<Entered<'_, C>> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let flight_key = (runtime.id(), key.clone());
        let mut flights = self.flights();
        let flight = flights.entry(flight_key.clone()).or_default();
        let is_alone = C::may_go_alone(request) && !flight.has_direct_call && flight.flushers == 0;
        if is_alone {
            flight.has_direct_call = true;
            drop(flights);
            let calls = Arc::clone(self);
            let flight_key = Some(flight_key);
            let direct = DirectCall::new(calls, flight_key, runtime, request, deadline);
            return Ok(Entered::Direct(direct));
        }
        let number = flight.next_number;
        flight.next_number += 1;
        let (answer, receiver) = oneshot::channel();
        flight.pending.push_back(Entry {
            request: request.clone(),
            number,
            deadline,
            answer: Some(answer),
        });
        let is_added = flight.add_flusher();
        drop(flights);
        if is_added {
            Flusher::spawn(&runtime, Arc::clone(self), flight_key.clone());
        }
        Ok(Entered::Pending(Ticket {
            batcher: self,
            flight_key,
            home: Home::new(runtime, deadline),
            number,
            receiver,
        }))
    }

    /// Hands the answers of a call that nobody waits for to [`Calls::unclaimed`].
    fn unclaimed(&self, answers: Result<CallAnswers<C>>) {
        let granted = answers.into_iter().flatten().filter_map(Result::ok);
        self.calls.unclaimed(granted.collect());
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.flights().is_empty()
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<FlightKey<C>, Flight<C>>> {
        self.flights.lock()
    }

    /// Changes a flight, and removes it once nothing is left of it.
    fn change<T>(&self, key: &FlightKey<C>, change: impl FnOnce(&mut Flight<C>) -> T) -> Option<T> {
        let mut flights = self.flights();
        let flight = flights.get_mut(key)?;
        let answer = change(flight);
        if !flight.has_direct_call && flight.flushers == 0 && flight.in_flight.is_empty() {
            flights.remove(key);
        }
        Some(answer)
    }
}

impl<C: Calls> BatchCall<C> {
    fn carries(&self, number: u64) -> bool {
        (self.first_number..self.end_number).contains(&number)
    }
}

impl<C: Calls> Flight<C> {
    /// Counts one more flusher, which the caller must spawn, and returns `true`, unless one of the
    /// others takes the pending requests.
    fn add_flusher(&mut self) -> bool {
        let Some(last) = self.pending.back() else {
            return false;
        };
        let sent = self.in_flight.iter().filter(|it| !it.is_silent).count();
        let is_added = self.flushers == sent && sent < C::calls_at_once(&last.request);
        self.flushers += usize::from(is_added);
        is_added
    }

    /// The call that carries a request.
    fn call_of(&mut self, number: u64) -> Option<&mut BatchCall<C>> {
        self.in_flight.iter_mut().find(|it| it.carries(number))
    }

    /// Removes the call that carries a request.
    fn take_in_flight(&mut self, number: u64) -> Option<BatchCall<C>> {
        let place = self.in_flight.iter().position(|it| it.carries(number))?;
        Some(self.in_flight.remove(place))
    }

    /// Whether a request without an answer may have been executed.
    fn may_have_run(&self, number: u64) -> bool {
        if let Some(in_flight) = self.in_flight.iter().find(|it| it.carries(number)) {
            return C::may_have_run(&in_flight.call);
        }
        let first_pending = self.pending.front();
        first_pending.is_none_or(|first| number < first.number)
    }

    /// Notes that the caller of a request is gone.
    fn leave(&mut self, number: u64) -> Left<C> {
        let Some(in_flight) = self.call_of(number) else {
            return Left::Nothing;
        };
        in_flight.live -= 1;
        if in_flight.live == 0 {
            Left::Abandoned(in_flight.call.clone())
        } else if std::mem::replace(&mut in_flight.is_watched, true) {
            Left::Nothing
        } else {
            Left::Unwatched(in_flight.call.clone(), in_flight.deadline)
        }
    }
}
