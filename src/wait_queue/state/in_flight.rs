//! The call in flight: its waiters, its drivers, and what happens to it without an answer.

use std::sync::Arc;

use tokio::runtime;
use tokio::time::Instant;

use super::{Epoch, State, Waiter};
use crate::store::AcquireCall;

pub(super) struct InFlight {
    pub(super) call: Arc<AcquireCall>,
    pub(super) waiters: Vec<Waiter>,
    /// How many of the waiters have not left.
    pub(super) live: usize,
    pub(super) sent_at: Instant,
    /// When a driver last took it.
    pub(super) given_at: Instant,
    pub(super) take_over_at: Instant,
    /// How many drivers have taken it. The first answer counts; the other drivers may read theirs late, or never.
    pub(super) drivers: u32,
    /// The value of [`State::freed`] when it was sent.
    pub(super) freed: u64,
    /// The epoch of the last answer when it was sent.
    pub(super) epoch: Epoch,
}

/// What remains to be done for a waiter that has left.
#[derive(Debug)]
pub(in crate::wait_queue) enum Left {
    Nothing,
    /// Nobody waits for this call any more: the store must reclaim it.
    Abandoned(Arc<AcquireCall>),
    /// Others, on runtimes that may never read the answer, wait for the call, which may have taken permits for this
    /// waiter: the call in flight must be watched.
    Unwatched,
}

/// What happens to a call in flight that is watched.
#[derive(Debug)]
pub(in crate::wait_queue) enum Watched {
    /// No waiter has left it.
    Ended,
    /// A driver has taken it since.
    InTime,
    /// It is no longer in flight, and the store must reclaim it.
    Withdrawn(Arc<AcquireCall>),
}

impl State {
    /// A waiter has left: its receiver is closed.
    pub(in crate::wait_queue) fn leave(&mut self, sequence: u64) -> Left {
        if let Some(in_flight) = &mut self.in_flight
            && in_flight.leave(sequence)
        {
            if in_flight.live > 0 {
                let is_watched = std::mem::replace(&mut self.is_watched, true);
                return if is_watched {
                    Left::Nothing
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
            // The next waiter may fit where this one did not; without a next one the drivers are done.
            self.notify_drivers();
        } else if self.left > self.waiters.len() / 2 {
            self.remove_gone();
        }
        Left::Nothing
    }

    /// Ends a call in flight that some waiters have left, if no driver has taken it `since`: its driver has had the
    /// time that a call takes. The remaining waiters return to the queue; their runtime made no progress, not the
    /// store.
    pub(in crate::wait_queue) fn withdraw_overdue(&mut self, since: Instant) -> Watched {
        let in_flight = self.in_flight.as_ref();
        let Some(in_flight) = in_flight.filter(|it| it.live < it.waiters.len()) else {
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

    /// Returns the waiters of the call in flight to the queue.
    fn withdraw(&mut self) -> Option<Arc<AcquireCall>> {
        let in_flight = self.in_flight.take()?;
        for waiter in in_flight.waiters {
            self.return_to_line(waiter);
        }
        Some(in_flight.call)
    }

    /// A runtime has shut down, and its driver with it, in the middle of `call`. Returns the call if the store must
    /// reclaim it: no other driver will read its answer. A call that is no longer in flight has been reclaimed already.
    pub(in crate::wait_queue) fn driver_lost(
        &mut self,
        runtime: runtime::Id,
        call: Option<&Arc<AcquireCall>>,
        now: Instant,
    ) -> Option<Arc<AcquireCall>> {
        self.drivers.retain(|slot| slot.runtime != runtime);
        if !self.drivers.is_empty() {
            let is_its_call =
                |it: &&mut InFlight| call.is_some_and(|call| Arc::ptr_eq(&it.call, call));
            if let Some(in_flight) = self.in_flight.as_mut().filter(is_its_call) {
                in_flight.take_over_at = now;
            }
            self.notify_drivers();
            return None;
        }
        // The queue has no driver: dropping their places tells the waiters to join again.
        let lost = self.in_flight.take();
        let waiters = self.waiters.drain(..);
        let (call, carried) = lost.map(|it| (it.call, it.waiters)).unzip();
        for waiter in waiters.chain(carried.into_iter().flatten()) {
            self.outbox.remove(waiter);
        }
        self.left = 0;
        self.known = None;
        call
    }
}

impl InFlight {
    /// Notes that a waiter has left; `false` if it is not one of this call's.
    fn leave(&mut self, sequence: u64) -> bool {
        let by_sequence = |waiter: &Waiter| waiter.sequence.cmp(&sequence);
        let Ok(place) = self.waiters.binary_search_by(by_sequence) else {
            return false;
        };
        if std::mem::replace(&mut self.waiters[place].has_left, true) {
            return false;
        }
        self.live -= 1;
        true
    }
}
