//! What the answer to a call means for its waiters, and for the time of the next call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::sharing::Seen;
use super::availability::Availability;
use super::contents::State;
use super::in_flight::InFlight;
use crate::decision::check_fits;
use crate::error::Error;
use crate::grant::Grant;
use crate::store::AcquireCall;
use crate::window::{Acquired, SetUp};

/// A call's answer, and what is known about it.
pub(in crate::queue) struct Answered<'a> {
    pub(in crate::queue) call: &'a Arc<AcquireCall>,
    pub(in crate::queue) answer: &'a Acquired,
    pub(in crate::queue) sent_at: Instant,
    pub(in crate::queue) now: Instant,
    /// All permits granted to this process, including those of this call.
    pub(in crate::queue) own: u64,
    pub(in crate::queue) name: &'a str,
}

/// What remains to be done after an answer.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::queue) struct Rest {
    /// Permits that were granted and have no owner.
    pub(in crate::queue) permits: u32,
    /// Whether the store must reclaim the call: other drivers make it too, and what it is granted
    /// for them has no owner.
    pub(in crate::queue) is_reclaimed: bool,
}

impl State {
    /// Answers the waiters of a call.
    pub(in crate::queue) fn answered(&mut self, answered: &Answered<'_>) -> Rest {
        let Answered { call, answer, .. } = *answered;
        // The grants of one call fit a u32.
        let taken = call.requests.taken(answer) as u32;
        let Some(in_flight) = self.in_flight.take_if(|it| Arc::ptr_eq(&it.call, call)) else {
            // Another driver has answered it, or all of its waiters have left. If its score is that
            // of the grant that was delivered, it is that grant. Otherwise it was granted once
            // more, after the first grant had come back.
            let is_delivered = call.granted_at() == Some(answer.score);
            return Rest {
                permits: if is_delivered { 0 } else { taken },
                is_reclaimed: false,
            };
        };
        self.held_up = None;
        self.end_outage();
        self.gathers = in_flight.waiters.len() > 1;
        let mut spare = 0;
        let mut denied = Vec::new();
        let mut waiters = in_flight.waiters.into_iter();
        for (run, granted) in call.requests.served(answer) {
            for (place, waiter) in (0..run.count).zip(&mut waiters) {
                if place < granted && waiter.is_gone() {
                    spare += waiter.permits;
                    self.outbox.remove(waiter);
                } else if place < granted {
                    self.outbox.grant(waiter, call, answer);
                } else if let Err(error) = check_fits(answered.name, run.permits, answer.rate) {
                    self.outbox.answer(waiter, Err(error));
                } else {
                    denied.push(waiter);
                }
            }
        }
        if taken > 0 {
            call.note_granted(answer.score);
        }
        let first_denied = denied.first().map(|waiter| waiter.permits);
        for waiter in denied.into_iter().rev() {
            self.return_to_queue(waiter);
        }
        spare -= self.hand_off(spare, call, answer, in_flight.sent_at);
        let known = self.learn(answered, taken, first_denied);
        // The answer may not include permits that came free in the meantime.
        self.known = known.filter(|_| in_flight.freed == self.freed);
        if self.drivers.len() > 1 {
            // The other drivers sleep until they would take the call over; the next call may be due
            // before that.
            self.notify_drivers();
        }
        Rest {
            permits: spare,
            is_reclaimed: in_flight.drivers > 1,
        }
    }

    /// Whether a waiter has left the call in flight: what the call is granted for it comes back.
    pub(in crate::queue) fn is_left(&self) -> bool {
        self.in_flight.as_ref().is_some_and(InFlight::is_left)
    }

    /// What an answer says about the time of the next call.
    fn learn(
        &mut self,
        answered: &Answered<'_>,
        taken: u32,
        denied: Option<u32>,
    ) -> Option<Availability> {
        let Answered {
            answer,
            sent_at,
            now,
            ..
        } = *answered;
        if answer.found {
            return None; // the answer says what was granted, not what is available
        }
        let taken = i64::from(taken);
        let left = (answer.available - taken).max(0);
        let interval = answer.interval();
        let hold = self.sharing.note(Seen {
            sent_at,
            score: answer.score,
            rate: answer.rate,
            interval,
            left,
            taken,
            newer: answer.newer(),
            own: answered.own,
            denied,
        });
        let delay = self.sharing.ask_after(Duration::ZERO, interval);
        self.freed_elsewhere.answered(now, taken == 0, delay);
        if answer.has_more && denied.is_none() {
            return None; // more may be available than the answer says
        }
        Some(match hold {
            // What is left is for other processes.
            Some(until) => Availability {
                left: 0,
                ask_at: until,
            },
            None => {
                let wait = self.sharing.ask_after(answer.wait(), interval);
                Availability::new(left.unsigned_abs(), sent_at, wait, now)
            }
        })
    }

    /// Gives spare permits of a grant made just now to the waiters at the front of the queue that
    /// they suffice for. Returns how many it gave.
    fn hand_off(
        &mut self,
        spare: u32,
        call: &AcquireCall,
        answer: &Acquired,
        sent_at: Instant,
    ) -> u32 {
        let mut used = 0;
        loop {
            // A waiter leaves in one step of the state, so that the head stays until it has its
            // grant.
            self.remove_gone_head();
            let Some(head) = self.waiters.pop_front() else {
                return used;
            };
            if head.permits > spare - used {
                self.waiters.push_front(head);
                return used;
            }
            used += head.permits;
            head.queue_time.ends(sent_at);
            self.outbox.grant(head, call, answer);
        }
    }

    /// Gives the waiters at the front of the queue what `take` has for them, in order. Gives
    /// nothing while a call or a first try is in flight, whose waiters come first.
    pub(in crate::queue) fn serve_front(
        &mut self,
        now: Instant,
        mut take: impl FnMut(u32, Option<SetUp>) -> Option<Grant>,
    ) {
        while self.in_flight.is_none() {
            self.remove_gone_head();
            let Some(head) = self.waiters.front() else {
                return;
            };
            let (permits, last_chance) = (head.permits, head.last_chance());
            let set_up = head.set_up.as_ref().and_then(|read| read());
            if self.wait_for_first_try(last_chance, now).is_some() {
                return;
            }
            let Some(grant) = take(permits, set_up) else {
                return;
            };
            if let Some(head) = self.waiters.pop_front() {
                self.outbox.answer(head, Ok(grant));
            }
        }
    }

    /// Gives the waiters of a call that has failed the error, except for those that keep their
    /// places. Returns whether the store must reclaim the call, as in [`Rest`].
    pub(in crate::queue) fn failed(
        &mut self,
        call: &Arc<AcquireCall>,
        error: &Error,
        now: Instant,
    ) -> bool {
        let Some(in_flight) = self.in_flight.take_if(|it| Arc::ptr_eq(&it.call, call)) else {
            return false;
        };
        self.note_held_up(in_flight.sent_at, now);
        let mut is_left = false;
        for waiter in in_flight.waiters {
            if waiter.stays() && error.is_unavailable() {
                is_left = true;
                self.return_to_queue(waiter);
            } else {
                self.outbox.answer(waiter, Err(error.clone()));
            }
        }
        if is_left {
            self.call_failed(now);
        }
        self.known = None;
        if self.drivers.len() > 1 {
            // The other drivers sleep until they would take the call over.
            self.notify_drivers();
        }
        in_flight.drivers > 1 || call.may_have_run()
    }
}
