//! What the drivers do: when the queue asks next, and for whom.

use std::sync::Arc;

use tokio::runtime;
use tokio::time::Instant;

use super::super::sharing::Ask;
use super::contents::{Next, State};
use super::in_flight::InFlight;
use super::outbox::Outbox;
use super::waiter::Waiter;
use crate::batch::hold_up_within;
use crate::store::AcquireCall;
use crate::window::{Requests, SetUp};

/// The most waiters that one call carries.
pub(super) const CAPACITY: usize = 4096;

impl State {
    /// What a runtime's driver does next. `is_refused` says whether its breaker refuses calls.
    pub(in crate::queue) fn next(
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
            let left = self.response_timeout.saturating_sub(in_flight.held_up);
            in_flight.take_over_at = now + hold_up_within(left);
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

    /// Moves the front of the queue into a call. `is_caused` says whether a message that another
    /// client has freed permits is the reason.
    fn send(&mut self, now: Instant, has_peers: bool, is_caused: bool) -> Next {
        self.freed_elsewhere.sent(is_caused);
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
            take_over_at: now + hold_up_within(self.response_timeout.saturating_sub(held_up)),
            held_up,
            drivers: 1,
            freed: self.freed,
        });
        Next::Call(call, held_up)
    }

    /// Notes that permits may have come free: what is known no longer holds.
    pub(in crate::queue) fn permits_freed(&mut self) {
        self.freed += 1;
        self.known = None;
        self.sharing.permits_freed();
        self.notify_drivers();
    }

    /// Notes that another client has freed permits, and that this many are available now.
    pub(in crate::queue) fn freed_elsewhere(&mut self, available: i64) {
        let is_new = self.freed_elsewhere.reported(available) && self.in_flight.is_none();
        let fits = |head: &Waiter| i64::from(head.permits) <= available;
        if is_new && self.waiters.front().is_some_and(fits) {
            self.notify_drivers();
        }
    }

    /// A runtime has shut down, and its driver with it, in the middle of `call`. Returns the call
    /// if the store must reclaim it: no other driver will read its answer. A call that is no longer
    /// in flight has been reclaimed already.
    pub(in crate::queue) fn driver_lost(
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
                in_flight.take_over_at = now.max(in_flight.given_at);
            }
            self.notify_drivers();
            return None;
        }
        // The queue has no driver: dropping their places tells the waiters to join again.
        self.take_all(Outbox::remove)
    }
}
