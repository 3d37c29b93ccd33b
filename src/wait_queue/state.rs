//! The queue of one limiter: who waits, what is in flight, and when to ask next. Pure state: each
//! method is one step under the lock, and the drivers do what it returns. The [`Outbox`] holds
//! answers and notifications, which are delivered after the step.

mod answers;
mod bounds;
mod first_try;
mod freed_elsewhere;
mod in_flight;
mod leaving;
mod outage;
mod outbox;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod step_tests;
mod waiter;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::sharing::{Ask, Sharing};
use crate::store::AcquireCall;
use crate::window::{Requests, SetUp};
pub(super) use answers::{Answered, Availability, Rest};
pub(super) use bounds::{Arrived, Waits};
use first_try::FirstTry;
pub(super) use first_try::time_to_join;
use freed_elsewhere::FreedElsewhere;
use in_flight::{HeldUp, InFlight, ResponseTimeout};
pub(super) use leaving::{Left, Watched};
use outage::Away;
pub(super) use outbox::Outbox;
pub(super) use waiter::Waiter;

/// The most waiters that one call carries.
const CAPACITY: usize = 4096;

#[derive(Default)]
pub(super) struct State {
    /// The waiters that no call in flight carries, by ascending sequence number.
    waiters: VecDeque<Waiter>,
    /// How many of them may have left.
    left: usize,
    next_sequence: u64,
    known: Option<Availability>,
    in_flight: Option<InFlight>,
    /// Whether a task watches over a call that waiters have left.
    is_watched: bool,
    held_up: Option<HeldUp>,
    away: Away,
    response_timeout: ResponseTimeout,
    first_try: Option<FirstTry>,
    /// Whether a driver lets the callers that a call has served together ask again, and then takes
    /// its next step.
    pub(super) gathers: bool,
    /// How often permits may have come free.
    freed: u64,
    freed_elsewhere: FreedElsewhere,
    drivers: SmallVec<[Slot; 1]>,
    sharing: Sharing,
    /// The number of waiters, including those whose first try is in flight.
    admitted: usize,
    /// Whether nobody may wait any more.
    pub(super) is_closed: bool,
    outbox: Outbox,
}

/// A runtime's driver.
struct Slot {
    runtime: runtime::Id,
    notify: Arc<Notify>,
    /// Whether the runtime's breaker refused calls when the driver last looked. Until then it is
    /// not known to admit them.
    is_refused: bool,
}

/// What a driver does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Make this call, in the store's time less that for which its waiters have been held up.
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
    pub(super) fn over(response_timeout: Duration) -> Self {
        Self {
            response_timeout: ResponseTimeout(response_timeout),
            ..Self::default()
        }
    }

    /// The place of a waiter that arrives now.
    pub(super) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// Puts a waiter into the queue at the place of its sequence number. `denied` is the answer
    /// that its own request got just now. Returns how to notify the runtime's driver, if one must
    /// be started.
    pub(super) fn join(
        &mut self,
        mut waiter: Waiter,
        runtime: runtime::Id,
        denied: Option<Availability>,
    ) -> Option<Arc<Notify>> {
        waiter.runtime = Some(runtime);
        if self.waiters.is_empty() {
            if self.in_flight.is_none() {
                self.freed_elsewhere.sent(false); // nobody waited for what was said
            }
            // Its denial does not know of permits that came free since it was sent.
            let is_current =
                |it: &FirstTry| it.sequence == waiter.sequence && it.freed == self.freed;
            self.known = denied.filter(|_| self.first_try.as_ref().is_some_and(is_current));
        }
        if self
            .first_try
            .as_ref()
            .is_some_and(|it| it.sequence != waiter.sequence)
        {
            self.tell_first_try();
        }
        let ends_pause = self.ends_pause(&waiter);
        if self.insert(waiter) == 0 || ends_pause {
            // The time of the next call has changed, and this runtime may stall before it learns of
            // it.
            self.notify_drivers();
        }
        if self.drivers.iter().any(|slot| slot.runtime == runtime) {
            return None;
        }
        let notify = Arc::new(Notify::new());
        self.drivers.push(Slot {
            runtime,
            notify: Arc::clone(&notify),
            is_refused: true,
        });
        Some(notify)
    }

    /// Inserts a waiter at its place, and returns the place.
    fn insert(&mut self, waiter: Waiter) -> usize {
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
    fn return_to_queue(&mut self, waiter: Waiter) {
        if waiter.is_gone() {
            self.outbox.remove(waiter);
        } else {
            waiter.queue_time.goes_on();
            self.insert(waiter);
        }
    }

    /// Permits may have come free: what is known no longer holds.
    pub(super) fn permits_freed(&mut self) {
        self.freed += 1;
        self.known = None;
        self.sharing.permits_freed();
        self.notify_drivers();
    }

    fn notify_drivers(&mut self) {
        let drivers = self.drivers.iter().map(|slot| &slot.notify);
        self.outbox.notify(drivers);
    }

    #[cfg(test)]
    pub(super) fn has_drivers(&self) -> bool {
        !self.drivers.is_empty()
    }

    /// The outbox of the last step, if there is anything in it.
    pub(super) fn take_outbox(&mut self) -> Option<Outbox> {
        (!self.outbox.is_empty()).then(|| std::mem::take(&mut self.outbox))
    }

    /// What a runtime's driver does next. `is_refused` says whether its breaker refuses calls.
    pub(super) fn next(
        &mut self,
        runtime: runtime::Id,
        now: Instant,
        has_peers: bool,
        is_refused: bool,
    ) -> Next {
        self.note_refused(runtime, is_refused);
        self.gathers = false;
        if let Some(in_flight) = &mut self.in_flight {
            if now < in_flight.take_over_at {
                return Next::Sleep(in_flight.take_over_at);
            }
            // A driver that comes late has lost no time by the call.
            in_flight.held_up += in_flight.take_over_at - in_flight.given_at;
            in_flight.given_at = now;
            in_flight.take_over_at = now + self.response_timeout.longest_hold_up(in_flight.held_up);
            in_flight.drivers += 1;
            return Next::Call(Arc::clone(&in_flight.call), in_flight.held_up);
        }
        self.remove_gone_head();
        let Some(head) = self.waiters.front() else {
            return self.stop(runtime);
        };
        let (head_permits, last_chance) = (i64::from(head.permits), head.last_chance());
        if let Some(until) = self.wait_for_first_try(last_chance, now) {
            return Next::Sleep(until);
        }
        if let Some(next) = self.while_away(runtime, now, is_refused) {
            return next;
        }
        if let Some(known) = self.known
            && head_permits > known.left
            && let ask_at = self.sharing.hold_until(known.ask_at, last_chance)
            && now < ask_at
        {
            match self.freed_elsewhere.due(head_permits, now) {
                Some(due) if due <= now => {
                    self.sharing.permits_freed();
                    return self.send(now, has_peers, true);
                }
                due => return Next::Sleep(due.map_or(ask_at, |due| due.min(ask_at))),
            }
        }
        self.send(now, has_peers, false)
    }

    fn stop(&mut self, runtime: runtime::Id) -> Next {
        self.drivers.retain(|slot| slot.runtime != runtime);
        Next::Stop
    }

    /// Moves the front of the queue into a call. `is_told` if it is made because another client has
    /// freed permits.
    fn send(&mut self, now: Instant, has_peers: bool, is_told: bool) -> Next {
        self.freed_elsewhere.sent(is_told);
        let mut waiters = Vec::new();
        // The grants of a call share one member of the sorted set, which holds a u32.
        let mut room = u32::MAX;
        while let Some(next) = self.waiters.front() {
            let is_gone = next.is_gone();
            if !is_gone && (waiters.len() == CAPACITY || next.permits > room) {
                break;
            }
            let Some(next) = self.waiters.pop_front() else {
                break;
            };
            if is_gone {
                self.left = self.left.saturating_sub(1);
                self.outbox.remove(next);
            } else {
                room -= next.permits;
                next.queue_time.ends(now);
                waiters.push(next);
            }
        }
        let ask = if has_peers {
            self.sharing.plan(now)
        } else {
            Ask::default()
        };
        let permits = waiters.iter().map(|waiter| waiter.permits);
        let requests = Requests::fifo(permits, ask.share);
        let set_ups = waiters.iter().filter_map(|it| it.set_up.as_ref()?());
        let set_up = SetUp::of_all(set_ups);
        let call = AcquireCall::new(requests)
            .with_set_up(set_up)
            .with_newer_than(ask.newer_than);
        let call = Arc::new(call);
        let held_up = self.held_up_for(&waiters);
        self.in_flight = Some(InFlight {
            call: Arc::clone(&call),
            live: waiters.len(),
            waiters,
            sent_at: now,
            given_at: now,
            take_over_at: now + self.response_timeout.longest_hold_up(held_up),
            held_up,
            drivers: 1,
            freed: self.freed,
        });
        Next::Call(call, held_up)
    }
}
