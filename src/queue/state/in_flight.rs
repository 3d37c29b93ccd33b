//! The call in flight: its waiters and its drivers.
//!
//! **Hold-ups.** A call or a first try that makes no progress holds up others for half of the time
//! that is left at most: its runtime may not be polled, and then the store answers them. So a
//! driver that takes a call over has time for it, however many drivers had it before. The call of
//! waiters that were held up gets that much less time, so that each learns within one response
//! timeout that the store is silent.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::waiter::Waiter;
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

impl InFlight {
    /// Whether some of its waiters have left: what it takes for them goes to others.
    pub(super) fn is_left(&self) -> bool {
        self.live < self.waiters.len()
    }

    /// Notes that a waiter has left; `false` if it is not one of this call's.
    pub(super) fn leave(&mut self, sequence: u64) -> bool {
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

/// A time in which the store did not answer. The next answer ends it.
#[derive(Clone, Copy)]
pub(super) struct HeldUp {
    pub(super) from: Instant,
    pub(super) to: Instant,
}
