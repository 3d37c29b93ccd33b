//! The steps of a first try; see `queue/first_try.rs`.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::contents::{FirstTry, State};
use super::waiter::Waiter;
use crate::batch::hold_up_within;

/// How much of the longest hold-up is left to the caller of a first try to join the queue.
pub(in crate::queue) fn time_to_join(longest: Duration) -> Duration {
    longest / 5
}

impl State {
    /// Starts a waiter's first try, if nobody waits.
    pub(in crate::queue) fn start_first_try(&mut self, sequence: u64, now: Instant) -> bool {
        self.remove_gone_head();
        let longest = hold_up_within(self.response_timeout);
        let is_first = self.waiters.is_empty()
            && self.in_flight.is_none()
            && self.first_try.is_none()
            && !self.gathers;
        if is_first {
            self.first_try = Some(FirstTry {
                sequence,
                started: now,
                until: now + longest,
                freed: self.freed,
                followed: None,
            });
        }
        is_first
    }

    /// A waiter that makes no first try joins. If another one's is in flight, its caller learns of
    /// that only then, and has the time to join before it.
    pub(super) fn leave_time_to_join(&mut self, now: Instant) {
        let longest = hold_up_within(self.response_timeout);
        if let Some(other) = &mut self.first_try
            && other.followed.is_some()
        {
            let joins_by = now + time_to_join(longest);
            other.until = other.until.max(joins_by);
        }
    }

    /// Returns what resolves when another waiter joins behind a first try that takes long; `None`
    /// if one has joined already, or the first try is over.
    pub(in crate::queue) fn watch_first_try(
        &mut self,
        sequence: u64,
    ) -> Option<oneshot::Receiver<()>> {
        let first_try = self.first_try.as_mut();
        let first_try = first_try.filter(|it| it.sequence == sequence)?;
        if !self.waiters.is_empty() {
            return None;
        }
        let (followed, receiver) = oneshot::channel();
        first_try.followed = Some(followed);
        Some(receiver)
    }

    /// Notifies the caller of a first try that a waiter has joined behind it, or in front of it.
    pub(super) fn notify_first_try(&mut self) {
        let first_try = self.first_try.as_mut();
        if let Some(followed) = first_try.and_then(|it| it.followed.take()) {
            self.outbox.notify_first_try(followed);
        }
    }

    /// Notes that the caller of a first try joins the queue without an answer.
    pub(in crate::queue) fn first_try_is_silent(&mut self, sequence: u64, now: Instant) {
        let first_try = self.first_try.as_ref();
        if let Some(first_try) = first_try.filter(|it| it.sequence == sequence) {
            self.note_held_up(first_try.started, now);
        }
    }

    /// Whether nobody waits who came before this waiter.
    pub(in crate::queue) fn is_next(&self, sequence: u64) -> bool {
        let in_flight = self.in_flight.iter().flat_map(|it| &it.waiters);
        let mut before = in_flight
            .take_while(|it| it.sequence < sequence)
            .chain(self.waiters.iter().take_while(|it| it.sequence < sequence));
        before.all(Waiter::is_gone)
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
            self.notify_first_try(); // by the outbox, as it runs a waker
            self.first_try = None;
        }
        self.note_held_up(started, until);
        None
    }

    pub(in crate::queue) fn end_first_try(&mut self, sequence: u64) {
        let first_try = self.first_try.take_if(|it| it.sequence == sequence);
        if first_try.is_some() && !self.waiters.is_empty() {
            self.notify_drivers();
        }
    }
}
