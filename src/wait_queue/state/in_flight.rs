//! The call in flight: its waiters, its drivers, and what happens to it when a runtime shuts down.
//!
//! **Hold-ups.** A call or a first try that makes no progress holds up others for half of the time
//! that is left at most: its runtime may not be polled, and then the store answers them. So a
//! driver that takes a call over has time for it, however many drivers had it before. The call of
//! waiters that were held up gets that much less time, so that each learns within one response
//! timeout that the store is silent.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::time::Instant;

use super::{State, Waiter};
use crate::batch::longest_hold_up;
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
    /// For how long its waiters have waited for an answer, to this call or another one, when a
    /// driver last took it.
    pub(super) held_up: Duration,
    /// How many drivers have taken it. The first answer counts; the other drivers may read theirs
    /// late, or never.
    pub(super) drivers: u32,
    /// The value of [`State::freed`] when it was sent.
    pub(super) freed: u64,
}

impl State {
    /// A runtime has shut down, and its driver with it, in the middle of `call`. Returns the call
    /// if the store must reclaim it: no other driver will read its answer. A call that is no longer
    /// in flight has been reclaimed already.
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
                in_flight.take_over_at = now.max(in_flight.given_at);
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

/// A time in which the store did not answer. The next answer ends it.
#[derive(Clone, Copy)]
pub(super) struct HeldUp {
    from: Instant,
    to: Instant,
}

/// How long a call takes at most.
#[derive(Clone, Copy)]
pub(super) struct ResponseTimeout(pub(super) Duration);

impl ResponseTimeout {
    /// The longest time for which a call or a first try without progress holds up others that have
    /// been held up for so long before.
    pub(super) fn longest_hold_up(self, held_up: Duration) -> Duration {
        longest_hold_up(self.0.saturating_sub(held_up))
    }
}

impl Default for ResponseTimeout {
    fn default() -> Self {
        Self(Duration::MAX)
    }
}

impl State {
    /// The store did not answer in this time.
    pub(super) fn note_held_up(&mut self, from: Instant, to: Instant) {
        let before = self.held_up.unwrap_or(HeldUp { from, to });
        self.held_up = Some(HeldUp {
            from: before.from.min(from),
            to: before.to.max(to),
        });
    }

    /// How much of that time the first of these waiters was in the queue.
    pub(super) fn held_up_for(&self, waiters: &[Waiter]) -> Duration {
        // Those who stay wait for the store however long it is away.
        let failing = waiters.iter().filter(|waiter| !waiter.stays());
        let joined = failing.filter_map(|waiter| waiter.joined).min();
        let (Some(held_up), Some(joined)) = (self.held_up, joined) else {
            return Duration::ZERO;
        };
        held_up
            .to
            .saturating_duration_since(joined.max(held_up.from))
    }
}
