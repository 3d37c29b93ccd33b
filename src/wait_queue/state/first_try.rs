//! A waiter that finds the queue empty first makes a request of its own. In the meantime the queue makes no call, so
//! that nobody overtakes this waiter, unless its first try makes no progress.

use std::time::Duration;

use tokio::time::Instant;

use super::State;

pub(super) struct FirstTry {
    pub(super) sequence: u64,
    started: Instant,
    /// How long it keeps the queue from asking.
    pub(super) until: Instant,
    /// The value of [`State::freed`] when it started.
    pub(super) freed: u64,
}

impl State {
    /// Starts a waiter's first try, if nobody waits.
    pub(in crate::wait_queue) fn start_first_try(&mut self, sequence: u64, now: Instant) -> bool {
        self.remove_gone_head();
        let is_first = self.waiters.is_empty()
            && self.in_flight.is_none()
            && self
                .first_try
                .as_ref()
                .is_none_or(|other| other.until <= now);
        if is_first {
            self.first_try = Some(FirstTry {
                sequence,
                started: now,
                until: now + self.response_timeout.longest_hold_up(Duration::ZERO),
                freed: self.freed,
            });
        }
        is_first
    }

    /// Until when the queue waits for a first try. The head must be asked for by `last_chance`.
    pub(super) fn wait_for_first_try(
        &mut self,
        last_chance: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let first_try = self.first_try.as_ref()?;
        // A first try that nobody polls costs the head its place, but no time.
        let until = last_chance.map_or(first_try.until, |last| last.min(first_try.until));
        if now < until {
            return Some(until);
        }
        let started = first_try.started;
        if first_try.until <= now {
            self.first_try = None;
        }
        self.note_held_up(started, until);
        None
    }

    pub(in crate::wait_queue) fn end_first_try(&mut self, sequence: u64) {
        let first_try = self.first_try.take_if(|it| it.sequence == sequence);
        if first_try.is_some() && !self.waiters.is_empty() {
            self.notify_drivers();
        }
    }
}
