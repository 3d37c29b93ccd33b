//! The number of waiters, the time that the next one would wait, and who is refused.

use std::time::Duration;

use tokio::time::Instant;

use super::availability::LONGEST_WAIT;
use super::contents::State;
use super::waiter::Waiter;
use crate::denials::Denial;
use crate::window::SetUp;

impl State {
    /// Counts a caller that is about to wait, and starts its first try if it `may_try` and nobody
    /// waits. Fails with the number of waiters if there are `max` already.
    pub(in crate::queue) fn arrive(
        &mut self,
        max: usize,
        may_try: bool,
        now: Instant,
    ) -> Result<Arrived, usize> {
        self.admit(max)?;
        let sequence = self.take_sequence();
        let is_first = may_try && self.start_first_try(sequence, now);
        if !is_first {
            self.leave_time_to_join(now);
        }
        Ok(Arrived { sequence, is_first })
    }

    /// Counts a caller that has arrived as one that no longer waits.
    pub(in crate::queue) fn depart(&mut self, sequence: u64) {
        self.end_first_try(sequence);
        self.dismiss();
    }

    /// Counts one more waiter, or returns the number of waiters as `Err` if there are `max`
    /// already.
    pub(super) fn admit(&mut self, max: usize) -> Result<(), usize> {
        if self.admitted >= max {
            return Err(self.admitted);
        }
        self.admitted += 1;
        Ok(())
    }

    /// Counts a waiter that was admitted as one that no longer waits.
    pub(super) fn dismiss(&mut self) {
        self.admitted -= 1;
    }

    pub(in crate::queue) fn admitted(&self) -> usize {
        self.admitted
    }

    /// The least time that a request for this many permits waits behind the queue. With `until`,
    /// waiters that give up by then are not counted: their permits may be left to it. `None` if
    /// that is unknown, or the permits exceed the rate.
    pub(in crate::queue) fn shortest_wait(
        &self,
        request: &Waits,
        denial: &Denial,
        now: Instant,
    ) -> Option<Duration> {
        let Waits { permits, until, .. } = *request;
        let exceeds = |permits: u32| u64::from(permits) > denial.rate();
        // An older one is no estimate for a waiter to rely on.
        if exceeds(permits) || denial.age(now) > LONGEST_WAIT {
            return None;
        }
        let mut sum = u64::from(permits);
        if let Some(in_flight) = &self.in_flight {
            if !denial.has_settings_of(in_flight.call.set_up) {
                return None;
            }
            // The answer may count what a call that was under way has taken.
            if in_flight.sent_at >= denial.received_at {
                sum = ahead(&in_flight.waiters, until, exceeds).fold(sum, u64::saturating_add);
            }
        }
        for waiter in &self.waiters {
            let set_up = waiter.set_up.as_ref().and_then(|read| read());
            if !waiter.is_gone() && !denial.has_settings_of(set_up) {
                return None;
            }
        }
        sum = ahead(&self.waiters, until, exceeds).fold(sum, u64::saturating_add);
        denial.shortest_wait(sum, now)
    }
}

/// The place of a caller that has arrived.
#[derive(Clone, Copy)]
pub(in crate::queue) struct Arrived {
    /// Its place in the queue, however late or often the caller joins.
    pub(in crate::queue) sequence: u64,
    /// Whether it makes a first try.
    pub(in crate::queue) is_first: bool,
}

/// A request that waits, or is about to.
#[derive(Clone, Copy)]
pub(in crate::queue) struct Waits {
    pub(in crate::queue) permits: u32,
    pub(in crate::queue) set_up: Option<SetUp>,
    pub(in crate::queue) until: Option<Instant>,
}

/// The permits of waiters that are served before a request that waits until then.
fn ahead<'a>(
    waiters: impl IntoIterator<Item = &'a Waiter>,
    until: Option<Instant>,
    exceeds: impl Fn(u32) -> bool,
) -> impl Iterator<Item = u64> {
    let waiters = waiters.into_iter();
    let staying = waiters.filter(move |waiter| !waiter.is_gone() && waiter.stays_for(until));
    let permits = staying.map(|waiter| waiter.permits);
    permits.filter(move |&it| !exceeds(it)).map(u64::from)
}
