//! For how long waiters have stood behind a call without an answer. Their own call takes so much less, so that each learns of
//! a silent store within one response timeout.

use std::time::Duration;

use tokio::time::Instant;

use super::{State, Waiter};

/// A time in which nothing was heard of the store. The next answer ends it.
#[derive(Clone, Copy)]
pub(super) struct HeldUp {
    from: Instant,
    to: Instant,
}

impl State {
    /// Nothing was heard of the store in this time.
    pub(super) fn note_held_up(&mut self, from: Instant, to: Instant) {
        let before = self.held_up.unwrap_or(HeldUp { from, to });
        self.held_up = Some(HeldUp {
            from: before.from.min(from),
            to: before.to.max(to),
        });
    }

    /// How much of it the first of these waiters has stood in line.
    pub(super) fn held_up_for(&self, waiters: &[Waiter]) -> Duration {
        let joined = waiters.iter().filter_map(|waiter| waiter.joined).min();
        let (Some(held_up), Some(joined)) = (self.held_up, joined) else {
            return Duration::ZERO;
        };
        held_up
            .to
            .saturating_duration_since(joined.max(held_up.from))
    }
}
