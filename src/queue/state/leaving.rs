//! The steps by which a waiter leaves; see `queue/leaving.rs`.
//!
//! Leaving does not search the queue: only the head is removed at once, and another waiter when it
//! reaches the front, or when more than half of the queue has left.

use std::sync::Arc;

use tokio::time::Instant;

use super::contents::State;
use super::outbox::Outbox;
use super::waiter::Waiter;
use crate::error::Error;
use crate::store::AcquireCall;

/// What remains to be done for a waiter that has left.
#[derive(Debug)]
pub(in crate::queue) enum Left {
    Nothing,
    /// Nobody waits for this call any more: the store must reclaim it.
    Abandoned(Arc<AcquireCall>),
    /// The call in flight may take permits for this waiter, and the others that wait for it are on
    /// runtimes that may never read the answer: a task must watch the call.
    Unwatched,
    /// As `Unwatched`, but a task watches the call already.
    Watched,
}

/// What a task that watches the call in flight finds.
#[derive(Debug)]
pub(in crate::queue) enum Watched {
    /// There is no call in flight that a waiter has left.
    Ended,
    /// A driver has taken the call since: its time is not over.
    InTime,
    /// The call is no longer in flight now, and the store must reclaim it.
    Withdrawn(Arc<AcquireCall>),
}

impl State {
    /// Removes a waiter that has left, whose receiver is closed, or notes that it has left.
    pub(in crate::queue) fn leave(&mut self, sequence: u64) -> Left {
        if let Some(in_flight) = &mut self.in_flight
            && in_flight.leave(sequence)
        {
            if in_flight.live > 0 {
                let is_watched = std::mem::replace(&mut self.is_watched, true);
                return if is_watched {
                    Left::Watched
                } else {
                    Left::Unwatched
                };
            }
            self.notify_drivers();
            return match self.withdraw() {
                Some(call) => Left::Abandoned(call),
                None => Left::Nothing,
            };
        }
        self.left += 1;
        if self.waiters.front().is_some_and(Waiter::is_gone) {
            self.remove_gone_head();
            // The next waiter may fit where this one did not; without a next one the drivers are
            // done.
            self.notify_drivers();
        } else if self.left > self.waiters.len() / 2 {
            self.remove_gone();
        }
        Left::Nothing
    }

    /// Ends a call in flight that some waiters have left, if no driver has taken it `since`: its
    /// driver has had the time that a call takes. The remaining waiters return to the queue; their
    /// runtime made no progress, not the store.
    pub(in crate::queue) fn withdraw_overdue(&mut self, since: Instant) -> Watched {
        let in_flight = self.in_flight.as_ref();
        let Some(in_flight) = in_flight.filter(|it| it.is_left()) else {
            self.is_watched = false;
            return Watched::Ended;
        };
        if in_flight.given_at > since {
            return Watched::InTime;
        }
        self.is_watched = false;
        self.known = None;
        self.notify_drivers();
        match self.withdraw() {
            Some(call) => Watched::Withdrawn(call),
            None => Watched::Ended,
        }
    }

    /// Returns the waiters of the call in flight to the queue, and the call to the caller.
    fn withdraw(&mut self) -> Option<Arc<AcquireCall>> {
        let in_flight = self.in_flight.take()?;
        for waiter in in_flight.waiters {
            self.return_to_queue(waiter);
        }
        Some(in_flight.call)
    }

    /// Ends the waiting of all, now and later. Returns the call in flight, whose answer nobody
    /// waits for now.
    pub(in crate::queue) fn close(&mut self) -> Option<Arc<AcquireCall>> {
        self.is_closed = true;
        let call = self.take_all(|outbox, waiter| outbox.answer(waiter, Err(Error::Closed)));
        self.notify_drivers();
        call
    }

    /// Takes all waiters out, also those of the call in flight, and passes each to `end`. Returns
    /// that call.
    pub(super) fn take_all(
        &mut self,
        end: impl Fn(&mut Outbox, Waiter),
    ) -> Option<Arc<AcquireCall>> {
        let in_flight = self.in_flight.take();
        let (call, carried) = in_flight.map(|it| (it.call, it.waiters)).unzip();
        for waiter in carried.into_iter().flatten().chain(self.waiters.drain(..)) {
            end(&mut self.outbox, waiter);
        }
        self.left = 0;
        self.known = None;
        call
    }

    /// Removes all waiters that have left.
    fn remove_gone(&mut self) {
        for waiter in std::mem::take(&mut self.waiters) {
            if waiter.is_gone() {
                self.outbox.remove(waiter);
            } else {
                self.waiters.push_back(waiter);
            }
        }
        self.left = 0;
    }
}
