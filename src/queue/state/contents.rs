//! What the state holds, and the steps that its parts share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::super::sharing::Sharing;
use super::availability::Availability;
use super::freed_elsewhere::FreedElsewhere;
use super::in_flight::{HeldUp, InFlight};
use super::outbox::Outbox;
use super::waiter::Waiter;
use crate::store::AcquireCall;

#[derive(Default)]
pub(in crate::queue) struct State {
    /// The waiters that the call in flight does not carry, by ascending sequence number.
    pub(super) waiters: VecDeque<Waiter>,
    /// How many of `waiters` have left at most.
    pub(super) left: usize,
    pub(super) next_sequence: u64,
    pub(super) known: Option<Availability>,
    pub(super) in_flight: Option<InFlight>,
    /// Whether a task watches over a call that waiters have left.
    pub(super) is_watched: bool,
    pub(super) held_up: Option<HeldUp>,
    pub(super) away: Away,
    /// The longest time that a call takes.
    pub(super) response_timeout: Duration,
    pub(super) first_try: Option<FirstTry>,
    /// Whether a driver lets the callers that a call has served together ask again, and then takes
    /// its next step.
    pub(in crate::queue) gathers: bool,
    /// How often permits may have come free.
    pub(super) freed: u64,
    pub(super) freed_elsewhere: FreedElsewhere,
    pub(super) drivers: SmallVec<[Slot; 1]>,
    pub(super) sharing: Sharing,
    /// The number of waiters, including those whose first try is in flight.
    pub(super) admitted: usize,
    /// Whether nobody may wait any more.
    pub(in crate::queue) is_closed: bool,
    pub(super) outbox: Outbox,
}

/// A first try in flight; see [`first_try`](super::first_try).
pub(super) struct FirstTry {
    pub(super) sequence: u64,
    pub(super) started: Instant,
    /// How long it keeps the queue from asking.
    pub(super) until: Instant,
    /// The value of [`State::freed`] when it started.
    pub(super) freed: u64,
    /// Notifies its caller that another waiter has joined behind it.
    pub(super) followed: Option<oneshot::Sender<()>>,
}

/// What the queue knows of an outage.
#[derive(Default)]
pub(super) struct Away {
    /// The last call failed, and the next one is not made before this time.
    pub(super) retry_at: Option<Instant>,
    /// `Some` while a driver waits for the breaker: when it asks a substitute again that may grant
    /// permits by then, if there is one.
    pub(super) paused: Option<Option<Instant>>,
}

/// A runtime's driver.
pub(super) struct Slot {
    pub(super) runtime: runtime::Id,
    pub(super) notify: Arc<Notify>,
    /// Whether the runtime's breaker refused calls when the driver last looked. Until then it is
    /// not known to admit them.
    pub(super) is_refused: bool,
}

/// What a driver does next.
#[derive(Debug)]
pub(in crate::queue) enum Next {
    /// Make this call. It has less time than others, by that for which its waiters were held up.
    Call(Arc<AcquireCall>, Duration),
    /// Sleep until this time, or until notified.
    Sleep(Instant),
    /// The breaker refuses calls: sleep until it no longer does, until notified, or until this
    /// time.
    Pause(Option<Instant>),
    /// Nobody waits.
    Stop,
}

impl State {
    /// The queue of a limiter in a store with this response timeout.
    pub(in crate::queue) fn over(response_timeout: Duration) -> Self {
        Self {
            response_timeout,
            ..Self::default()
        }
    }

    /// The place of a waiter that arrives now.
    pub(super) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// Inserts a waiter at its place, and returns the place.
    pub(super) fn insert(&mut self, waiter: Waiter) -> usize {
        let is_before = |other: &Waiter| other.sequence < waiter.sequence;
        let place = match self.waiters.back() {
            Some(last) if !is_before(last) => self.waiters.partition_point(is_before),
            _ => self.waiters.len(),
        };
        self.waiters.insert(place, waiter);
        place
    }

    /// Puts a waiter back at its place, unless it has left. Others may have joined before it in the
    /// meantime.
    pub(super) fn return_to_queue(&mut self, waiter: Waiter) {
        if waiter.is_gone() {
            self.outbox.remove(waiter);
        } else {
            waiter.queue_time.goes_on();
            self.insert(waiter);
        }
    }

    /// Removes the waiters at the front that have left.
    pub(super) fn remove_gone_head(&mut self) {
        while self.waiters.front().is_some_and(Waiter::is_gone) {
            self.left = self.left.saturating_sub(1);
            if let Some(gone) = self.waiters.pop_front() {
                self.outbox.remove(gone);
            }
        }
        if self.waiters.is_empty() {
            self.known = None;
        }
    }

    /// Notes that the store did not answer in this time.
    pub(super) fn note_held_up(&mut self, from: Instant, to: Instant) {
        let before = self.held_up.unwrap_or(HeldUp { from, to });
        self.held_up = Some(HeldUp {
            from: before.from.min(from),
            to: before.to.max(to),
        });
    }

    /// For how long the store has not answered since the first of these waiters joined. Waiters
    /// that stay through outages do not count.
    pub(super) fn held_up_for(&self, waiters: &[Waiter]) -> Duration {
        // Waiters that stay wait for the store however long it is away.
        let failing = waiters.iter().filter(|waiter| !waiter.stays());
        let joined = failing.filter_map(|waiter| waiter.joined).min();
        let (Some(held_up), Some(joined)) = (self.held_up, joined) else {
            return Duration::ZERO;
        };
        held_up
            .to
            .saturating_duration_since(joined.max(held_up.from))
    }

    pub(super) fn notify_drivers(&mut self) {
        let drivers = self.drivers.iter().map(|slot| &slot.notify);
        self.outbox.notify(drivers);
    }

    pub(super) fn stop(&mut self, runtime: runtime::Id) -> Next {
        self.drivers.retain(|slot| slot.runtime != runtime);
        Next::Stop
    }

    #[cfg(test)]
    pub(in crate::queue) fn has_drivers(&self) -> bool {
        !self.drivers.is_empty()
    }

    /// The outbox of the last step, if there is anything in it.
    pub(in crate::queue) fn take_outbox(&mut self) -> Option<Outbox> {
        (!self.outbox.is_empty()).then(|| std::mem::take(&mut self.outbox))
    }
}
