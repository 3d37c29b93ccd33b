//! How long waiters have waited behind a call without an answer. Their own call gets that much less time, so that each
//! learns within one response timeout that the store is silent.
//!
//! A call or a first try that makes no progress holds up others for half of the time that is left at most: its runtime may
//! not be polled, and then the store answers them. So a driver that takes a call over has time for it, however many drivers
//! had it before.

use std::time::Duration;

use tokio::time::Instant;

use super::{State, Waiter};
use crate::batch::longest_hold_up;

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
    /// The longest time for which a call or a first try without progress holds up others that have been held up for so
    /// long before.
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
