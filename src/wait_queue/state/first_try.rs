//! A waiter that finds nobody before it asks for itself first. Meanwhile the line is not asked for, so that nobody
//! overtakes it, unless the first try makes no progress.

use tokio::time::Instant;

use super::{State, TAKE_OVER_AFTER};

pub(super) struct FirstTry {
    pub(super) sequence: u64,
    started: Instant,
    /// How long it keeps the line from asking.
    pub(super) until: Instant,
    /// The value of [`State::freed`] when it started.
    pub(super) freed: u64,
}

impl State {
    /// Lets a waiter ask for itself, where nobody waits.
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
                until: now + TAKE_OVER_AFTER,
                freed: self.freed,
            });
        }
        is_first
    }

    /// Until when the line waits for a first try, whose head has its last chance then.
    pub(super) fn wait_for_first_try(
        &mut self,
        last_chance: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let first_try = self.first_try.as_ref()?;
        // One that nobody polls costs the head its place, and not its time.
        let until = last_chance.map_or(first_try.until, |last| last.min(first_try.until));
        if now < until {
            return Some(until);
        }
        let started = first_try.started;
        if first_try.until <= now {
            self.first_try = None;
        }
        self.note_held_up(started, now);
        None
    }

    pub(in crate::wait_queue) fn end_first_try(&mut self, sequence: u64) {
        let first_try = self.first_try.take_if(|it| it.sequence == sequence);
        if first_try.is_some() && !self.waiters.is_empty() {
            self.notify_drivers();
        }
    }
}
