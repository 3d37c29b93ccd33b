//! The task that makes the calls of a flight.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::{
    BatchCall, Batcher, CallAnswers, Calls, Entry, Flight, FlightKey, hold_up_within, unanswered,
};
use crate::error::{Error, Result};

/// A call that was not sent is looked at again after this time at least.
const SHORTEST_HOLD_UP: Duration = Duration::from_millis(1);

/// Makes calls while requests are pending. If its runtime shuts down, dropping it lets the callers
/// make their requests again.
pub(super) struct Flusher<C: Calls> {
    batcher: Arc<Batcher<C>>,
    flight_key: FlightKey<C>,
    /// The number of the first request in flight.
    in_flight: Option<u64>,
    is_done: bool,
}

/// The requests of one call.
struct Batch<C: Calls> {
    call: C::Call,
    entries: Vec<Entry<C>>,
    /// The latest deadline of the requests.
    deadline: Instant,
    /// How many requests, from the front, have been answered because their time was up.
    expired: usize,
}

/// How a flusher's call ended.
enum Ended {
    /// The flusher takes no more requests.
    Silent,
    /// `is_followed` says whether requests are pending.
    Answered { is_followed: bool },
}

impl<C: Calls> Flusher<C> {
    /// Starts a flusher. The caller has counted it in its flight.
    pub(super) fn spawn(runtime: &Handle, batcher: Arc<Batcher<C>>, flight_key: FlightKey<C>) {
        let flusher = Self {
            batcher,
            flight_key,
            in_flight: None,
            is_done: false,
        };
        runtime.spawn(flusher.flush());
    }

    async fn flush(mut self) {
        while let Some(mut batch) = self.next_batch() {
            let Some(result) = self.run(&mut batch).await else {
                match self.put_back(batch) {
                    true => continue,
                    false => break,
                }
            };
            let is_shared = batch.entries.len() > 1;
            let ended = self.end_call();
            self.deliver(batch, result);
            match ended {
                Ended::Silent => break,
                // Its callers ask again, if they do, before the pending requests are taken.
                Ended::Answered { is_followed } if is_followed || is_shared => yield_now().await,
                Ended::Answered { .. } => {}
            }
        }
        self.is_done = true;
    }

    /// The next call's requests; `None` if no request is pending.
    fn next_batch(&mut self) -> Option<Batch<C>> {
        let (batch, overdue, _gone) = self.batcher.change(&self.flight_key, |flight| {
            let overdue = flight.take_overdue(Instant::now());
            let (entries, gone) = flight.take_pending();
            flight.flushers -= usize::from(entries.is_empty());
            (self.compose(flight, entries), overdue, gone)
        })?;
        fail_unsent(overdue);
        self.in_flight = batch.as_ref().and_then(Batch::first_number);
        batch
    }

    fn compose(&self, flight: &mut Flight<C>, entries: Vec<Entry<C>>) -> Option<Batch<C>> {
        let (first, last) = (entries.first()?, entries.last()?);
        let requests = entries.iter().map(|entry| &entry.request);
        let call = self.batcher.calls.call(requests);
        let deadlines = entries.iter().map(|entry| entry.deadline);
        let deadline = deadlines.max().unwrap_or_else(Instant::now);
        flight.in_flight.push(BatchCall {
            call: call.clone(),
            first_number: first.number,
            end_number: last.number + 1,
            deadline,
            live: entries.len(),
            is_watched: false,
            is_silent: false,
        });
        Some(Batch {
            call,
            entries,
            deadline,
            expired: 0,
        })
    }

    /// Makes the call and returns its answer; meanwhile answers requests whose time is up. Returns
    /// `None` if the call was not sent by the deadline of its first request, whose cost it would
    /// take too.
    async fn run(&mut self, batch: &mut Batch<C>) -> Option<Result<CallAnswers<C>>> {
        let running = self.batcher.calls.run(batch.call.clone(), batch.deadline);
        let mut running = pin!(running);
        let now = Instant::now();
        let time = self.batcher.calls.deadline().saturating_duration_since(now);
        let hold_up = hold_up_within(time);
        let mut check_at = Some(now + hold_up);
        loop {
            let in_flight = batch.entries.get(batch.expired);
            let in_flight = in_flight.map(|entry| entry.deadline);
            let pending = check_at.and_then(|_| self.first_deadline());
            let deadlines = [in_flight, pending, check_at].into_iter().flatten();
            let Some(next) = deadlines.min() else {
                return Some(running.await);
            };
            tokio::select! {
                biased;
                result = &mut running => return Some(result),
                () = sleep_until(next) => {}
            }
            let is_sent = C::may_have_run(&batch.call);
            if !is_sent && in_flight.is_some_and(|deadline| deadline <= Instant::now()) {
                return None;
            }
            self.expire(batch);
            if check_at.is_some_and(|check_at| check_at <= next) {
                // A call that was not sent waits for a connection, and another call would too.
                check_at = if is_sent {
                    self.step_aside();
                    None
                } else {
                    Some(next + hold_up.max(SHORTEST_HOLD_UP))
                };
            }
        }
    }

    /// Makes the requests of a call that was not sent pending again, before all others. Returns
    /// whether this flusher takes them.
    fn put_back(&mut self, mut batch: Batch<C>) -> bool {
        let entries = std::mem::take(&mut batch.entries);
        let unanswered = entries.into_iter().skip(batch.expired);
        let in_flight = self.in_flight.take();
        let goes_on = self.batcher.change(&self.flight_key, |flight| {
            let call = in_flight.and_then(|number| flight.take_in_flight(number));
            let has_stepped_aside = call.is_some_and(|call| call.is_silent);
            for entry in unanswered.rev() {
                flight.pending.push_front(entry);
            }
            !has_stepped_aside || flight.add_flusher()
        });
        goes_on.unwrap_or(false)
    }

    /// The deadline of the first pending request.
    fn first_deadline(&self) -> Option<Instant> {
        let first = |flight: &mut Flight<C>| flight.pending.front().map(|entry| entry.deadline);
        self.batcher.change(&self.flight_key, first).flatten()
    }

    /// Leaves the pending requests, and those to come, to another flusher.
    fn step_aside(&self) {
        let is_followed = self.batcher.change(&self.flight_key, |flight| {
            if let Some(call) = self.in_flight.and_then(|number| flight.call_of(number)) {
                call.is_silent = true;
            }
            flight.flushers -= 1;
            flight.add_flusher()
        });
        if is_followed == Some(true) {
            let (batcher, flight_key) = (Arc::clone(&self.batcher), self.flight_key.clone());
            Self::spawn(&Handle::current(), batcher, flight_key);
        }
    }

    fn expire(&self, batch: &mut Batch<C>) {
        let now = Instant::now();
        let overdue = self
            .batcher
            .change(&self.flight_key, |flight| flight.take_overdue(now));
        fail_unsent(overdue.into_iter().flatten());
        while let Some(entry) = batch.entries.get_mut(batch.expired)
            && entry.deadline <= now
        {
            entry.answer(Err(unanswered::<C>(&batch.call)));
            batch.expired += 1;
        }
    }

    /// Removes the call from those in flight.
    fn end_call(&mut self) -> Ended {
        let in_flight = self.in_flight.take();
        let ended = self.batcher.change(&self.flight_key, |flight| {
            let ended = flight.take_in_flight(in_flight?)?;
            let is_followed = !flight.pending.is_empty();
            Some(match ended.is_silent {
                true => Ended::Silent,
                false => Ended::Answered { is_followed },
            })
        });
        ended
            .flatten()
            .unwrap_or(Ended::Answered { is_followed: false })
    }

    fn deliver(&self, mut batch: Batch<C>, result: Result<CallAnswers<C>>) {
        let mut unclaimed = Vec::new();
        match result {
            Ok(answers) => {
                for (entry, answer) in batch.entries.iter_mut().zip(answers) {
                    if let Some(Ok(answer)) = entry.answer(answer) {
                        unclaimed.push(answer);
                    }
                }
            }
            Err(error) => {
                for entry in &mut batch.entries {
                    entry.answer(Err(error.clone()));
                }
            }
        }
        if !unclaimed.is_empty() {
            self.batcher.calls.unclaimed(unclaimed);
        }
    }
}

impl<C: Calls> Flight<C> {
    /// Takes the pending requests whose time is up.
    fn take_overdue(&mut self, now: Instant) -> Vec<Entry<C>> {
        let is_overdue = |entry: &Entry<C>| entry.deadline <= now;
        let in_time = self.pending.iter().position(|entry| !is_overdue(entry));
        let overdue = in_time.unwrap_or(self.pending.len());
        self.pending.drain(..overdue).collect()
    }

    /// Takes as many pending requests as one call carries, and those before them whose callers are
    /// gone.
    fn take_pending(&mut self) -> (Vec<Entry<C>>, Vec<Entry<C>>) {
        let mut entries = Vec::with_capacity(self.pending.len().min(C::CAPACITY));
        let mut gone = Vec::new();
        let first = self.pending.front();
        let mut room = first.map_or(u32::MAX, |first| C::room(&first.request));
        while let Some(next) = self.pending.front() {
            let is_gone = next.is_gone();
            let cost = C::cost(&next.request);
            if !is_gone && (entries.len() == C::CAPACITY || cost > room) {
                break;
            }
            let next = self.pending.pop_front();
            if is_gone {
                gone.extend(next);
            } else {
                room -= cost;
                entries.extend(next);
            }
        }
        (entries, gone)
    }
}

/// Answers requests whose time was up before they were sent.
fn fail_unsent<C: Calls>(overdue: impl IntoIterator<Item = Entry<C>>) {
    for mut entry in overdue {
        entry.answer(Err(Error::not_sent()));
    }
}

impl<C: Calls> Batch<C> {
    fn first_number(&self) -> Option<u64> {
        Some(self.entries.first()?.number)
    }
}

impl<C: Calls> Drop for Batch<C> {
    fn drop(&mut self) {
        if C::IS_REPEATABLE {
            return; // a caller whose request is dropped makes it again
        }
        for entry in &mut self.entries {
            entry.answer(Err(unanswered::<C>(&self.call)));
        }
    }
}

impl<C: Calls> Drop for Flusher<C> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        // The runtime shuts down. The callers learn of it when their entries are dropped.
        let left = self.batcher.change(&self.flight_key, |flight| {
            let in_flight = self.in_flight;
            let in_flight = in_flight.and_then(|number| flight.take_in_flight(number));
            if in_flight.as_ref().is_some_and(|it| it.is_silent) {
                return (Default::default(), in_flight);
            }
            flight.flushers -= 1;
            (std::mem::take(&mut flight.pending), in_flight)
        });
        if let Some((_pending, Some(in_flight))) = left {
            self.batcher.calls.abandon(&in_flight.call);
        }
    }
}
