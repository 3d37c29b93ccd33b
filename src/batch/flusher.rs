//! The task that makes the calls of a flight.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::{Answers, Batcher, Calls, Entry, Flight, FlightKey, InFlight, unanswered};
use crate::error::{Error, Result};

/// Makes calls while requests are pending. If its runtime shuts down, dropping it lets the callers make their requests
/// again.
pub(super) struct Flusher<C: Calls> {
    batcher: Arc<Batcher<C>>,
    flight_key: FlightKey<C>,
    is_done: bool,
}

/// The requests of one call.
struct Batch<C: Calls> {
    call: C::Call,
    entries: Vec<Entry<C>>,
    /// The latest of theirs.
    deadline: Instant,
    /// How many of them, from the front, have been answered because their time was up.
    expired: usize,
}

impl<C: Calls> Flusher<C> {
    pub(super) fn new(batcher: Arc<Batcher<C>>, flight_key: FlightKey<C>) -> Self {
        Self {
            batcher,
            flight_key,
            is_done: false,
        }
    }

    pub(super) async fn flush(mut self) {
        while let Some(mut batch) = self.next_batch() {
            let result = self.run(&mut batch).await;
            self.deliver(batch, result);
        }
        self.is_done = true;
    }

    /// The next call's requests; `None` if no request is pending.
    fn next_batch(&self) -> Option<Batch<C>> {
        let (batch, overdue, _gone) = self.batcher.change(&self.flight_key, |flight| {
            let overdue = flight.take_overdue(Instant::now());
            let (entries, gone) = flight.take_pending();
            flight.has_flusher = !entries.is_empty();
            (self.compose(flight, entries), overdue, gone)
        })?;
        fail_unsent(overdue);
        batch
    }

    fn compose(&self, flight: &mut Flight<C>, entries: Vec<Entry<C>>) -> Option<Batch<C>> {
        let (first, last) = (entries.first()?, entries.last()?);
        let requests = entries.iter().map(|entry| &entry.request);
        let call = self.batcher.calls.call(requests);
        let deadlines = entries.iter().map(|entry| entry.deadline);
        let deadline = deadlines.max().unwrap_or_else(Instant::now);
        flight.in_flight = Some(InFlight {
            call: call.clone(),
            first_number: first.number,
            end_number: last.number + 1,
            deadline,
            live: entries.len(),
            is_watched: false,
        });
        Some(Batch {
            call,
            entries,
            deadline,
            expired: 0,
        })
    }

    /// The call's answer; in the meantime requests whose time is up are answered.
    async fn run(&self, batch: &mut Batch<C>) -> Result<Answers<C>> {
        let running = self.batcher.calls.run(batch.call.clone(), batch.deadline);
        let mut running = pin!(running);
        loop {
            let pending = self.batcher.change(&self.flight_key, |flight| {
                flight.pending.front().map(|entry| entry.deadline)
            });
            let in_flight = batch.entries.get(batch.expired);
            let deadlines = in_flight.map(|entry| entry.deadline).into_iter();
            let Some(next) = deadlines.chain(pending.flatten()).min() else {
                return running.await;
            };
            tokio::select! {
                biased;
                result = &mut running => return result,
                () = sleep_until(next) => self.expire(batch),
            }
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

    fn deliver(&self, mut batch: Batch<C>, result: Result<Answers<C>>) {
        self.batcher
            .change(&self.flight_key, |flight| flight.in_flight = None);
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

    /// Takes as many pending requests as one call carries, and those before them whose callers are gone.
    fn take_pending(&mut self) -> (Vec<Entry<C>>, Vec<Entry<C>>) {
        let mut entries = Vec::with_capacity(self.pending.len().min(C::CAPACITY));
        let mut gone = Vec::new();
        let mut room = u32::MAX;
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
            flight.has_flusher = false;
            let pending = std::mem::take(&mut flight.pending);
            (pending, flight.in_flight.take())
        });
        if let Some((_pending, Some(in_flight))) = left {
            self.batcher.calls.abandon(&in_flight.call);
        }
    }
}
