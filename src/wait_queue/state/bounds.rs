//! The number of waiters, the time that the next one would wait, and who is refused.

use std::time::Duration;

use tokio::time::Instant;

use super::{IntervalOf, State};

impl State {
    /// Counts one more waiter, or returns the number of waiters as `Err` if there are `max` already.
    pub(in crate::wait_queue) fn admit(&mut self, max: usize) -> Result<(), usize> {
        if self.admitted >= max {
            return Err(self.admitted);
        }
        self.admitted += 1;
        Ok(())
    }

    /// A waiter that was admitted no longer waits.
    pub(in crate::wait_queue) fn dismiss(&mut self) {
        self.admitted -= 1;
    }

    pub(in crate::wait_queue) fn admitted(&self) -> usize {
        self.admitted
    }

    /// The least time that a request for this many permits waits behind the queue. With `until`, waiters that give up
    /// by then are not counted: their permits may be left to it.
    pub(in crate::wait_queue) fn shortest_wait(
        &self,
        permits: u32,
        until: Option<Instant>,
        now: Instant,
        interval: &IntervalOf<'_>,
    ) -> Option<Duration> {
        let in_flight = self.in_flight.iter().flat_map(|it| &it.waiters);
        let ahead = in_flight
            .chain(&self.waiters)
            .filter(|waiter| !waiter.is_gone() && waiter.stays_for(until))
            .map(|waiter| u64::from(waiter.permits))
            .fold(0, u64::saturating_add);
        let permits = ahead.saturating_add(u64::from(permits));
        self.last_answer.shortest_wait(permits, now, interval)
    }
}
