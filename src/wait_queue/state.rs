//! The line of one limiter: who waits, what is in flight, and when to ask next. Pure state; each method is one step under
//! the lock, and the drivers do what it returns.

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod steps;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::sharing::{Ask, Seen, Sharing};
use super::{LONGEST_SLEEP, LONGEST_WAIT, ReadSetUp};
use crate::decision::{Grant, check_fits};
use crate::error::{Error, Result};
use crate::model::{Answer, Requests};
use crate::store::AcquireCall;

/// How many waiters one call carries at most.
const CAPACITY: usize = 4096;

/// What holds up a waiter ends so long before the waiter gives up.
const TIME_FOR_A_CALL: Duration = Duration::from_millis(10);

/// How long a call may be in flight before another runtime's driver sends it again.
const TAKE_OVER_AFTER: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct State {
    /// Those that no call in flight carries, by ascending sequence number.
    waiters: VecDeque<Waiter>,
    /// How many of them may have left.
    left: usize,
    next_sequence: u64,
    known: Option<Known>,
    in_flight: Option<InFlight>,
    /// When the last call was sent, where it failed.
    failed_since: Option<Instant>,
    first_try: Option<FirstTry>,
    /// How often permits may have come free.
    freed: u64,
    drivers: SmallVec<[Slot; 1]>,
    sharing: Sharing,
}

pub(super) struct Waiter {
    pub(super) permits: u32,
    pub(super) set_up: Option<ReadSetUp>,
    /// When it joined the line.
    joined: Option<Instant>,
    /// When it gives up.
    until: Option<Instant>,
    /// Who came first has the lower one.
    pub(super) sequence: u64,
    pub(super) answer: oneshot::Sender<Result<Grant>>,
    /// Whether it left while its call was in flight. The same request may wait again by then, at the same place.
    has_left: bool,
}

/// What the last answer said: so many permits are left, and more of them not before the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    left: i64,
    ask_at: Instant,
}

struct InFlight {
    call: Arc<AcquireCall>,
    waiters: Vec<Waiter>,
    /// How many of the waiters have not left.
    live: usize,
    sent_at: Instant,
    take_over_at: Instant,
    /// How many drivers have been given it to make. The first answer is the call's; those of the other drivers may be read
    /// late, or never.
    drivers: u32,
    /// The value of [`State::freed`] when it was sent.
    freed: u64,
}

/// A call's answer, and what is known about it.
pub(super) struct Answered<'a> {
    pub(super) call: &'a Arc<AcquireCall>,
    pub(super) answer: &'a Answer,
    pub(super) sent_at: Instant,
    /// All permits that this process has been granted, those of this call included.
    pub(super) own: u64,
    pub(super) name: &'a str,
}

/// What a call's answer leaves to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Permits that it granted and nobody holds.
    pub(super) permits: u32,
    /// Whether the store is to reclaim the call: other drivers make it as well, and what it is granted for them has no owner.
    pub(super) is_reclaimed: bool,
}

struct FirstTry {
    sequence: u64,
    /// How long it keeps the line from asking.
    until: Instant,
    /// The value of [`State::freed`] when it started.
    freed: u64,
}

/// A runtime's driver.
struct Slot {
    runtime: runtime::Id,
    notify: Arc<Notify>,
}

/// What a driver does next.
#[derive(Debug)]
pub(super) enum Next {
    Call(Arc<AcquireCall>),
    /// Sleep until then, or until it is notified.
    Sleep(Instant),
    /// Nobody waits.
    Stop,
}

impl Known {
    pub(super) fn new(left: u64, sent_at: Instant, wait: Duration) -> Self {
        let wait = if wait > LONGEST_WAIT {
            LONGEST_SLEEP
        } else {
            wait
        };
        Self {
            left: i64::try_from(left).unwrap_or(i64::MAX),
            ask_at: sent_at + wait,
        }
    }
}

impl Waiter {
    pub(super) fn new(
        permits: u32,
        set_up: Option<ReadSetUp>,
        sequence: u64,
        answer: oneshot::Sender<Result<Grant>>,
    ) -> Self {
        Self {
            permits,
            set_up,
            joined: None,
            until: None,
            sequence,
            answer,
            has_left: false,
        }
    }

    pub(super) fn joined(self, now: Instant) -> Self {
        Self {
            joined: Some(now),
            ..self
        }
    }

    pub(super) fn until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }

    /// When to ask for it at the latest.
    fn last_chance(&self) -> Option<Instant> {
        self.until?.checked_sub(TIME_FOR_A_CALL)
    }

    fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}

impl State {
    /// The place of a waiter that comes now, however late it joins.
    pub(super) fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence
    }

    /// Lets a waiter ask for itself, where nobody waits.
    pub(super) fn start_first_try(&mut self, sequence: u64, now: Instant) -> bool {
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
                until: now + TAKE_OVER_AFTER,
                freed: self.freed,
            });
        }
        is_first
    }

    pub(super) fn end_first_try(&mut self, sequence: u64) {
        let first_try = self.first_try.take_if(|it| it.sequence == sequence);
        if first_try.is_some() && !self.waiters.is_empty() {
            self.notify_drivers();
        }
    }

    /// Puts a waiter in line, at the place of its sequence number. `denied` is what its own request was told just now.
    /// Returns how to notify the runtime's driver, where it has to be started.
    pub(super) fn join(
        &mut self,
        waiter: Waiter,
        runtime: runtime::Id,
        denied: Option<Known>,
    ) -> Option<Arc<Notify>> {
        if self.waiters.is_empty() {
            // Permits that came free since it asked are not part of its denial.
            let is_current =
                |it: &FirstTry| it.sequence == waiter.sequence && it.freed == self.freed;
            self.known = denied.filter(|_| self.first_try.as_ref().is_some_and(is_current));
        }
        if self.insert(waiter) == 0 {
            // The time to ask is another one, and this runtime may stall before it knows.
            self.notify_drivers();
        }
        if self.drivers.iter().any(|slot| slot.runtime == runtime) {
            return None;
        }
        let notify = Arc::new(Notify::new());
        self.drivers.push(Slot {
            runtime,
            notify: Arc::clone(&notify),
        });
        Some(notify)
    }

    /// Puts a waiter at its place, and returns which that is.
    fn insert(&mut self, waiter: Waiter) -> usize {
        let is_before = |other: &Waiter| other.sequence < waiter.sequence;
        let place = match self.waiters.back() {
            Some(last) if !is_before(last) => self.waiters.partition_point(is_before),
            _ => self.waiters.len(),
        };
        self.waiters.insert(place, waiter);
        place
    }

    /// A waiter has left: its receiver is closed. Returns the call in flight where nobody waits for it any more.
    pub(super) fn leave(&mut self, sequence: u64) -> Option<Arc<AcquireCall>> {
        if let Some(in_flight) = &mut self.in_flight
            && in_flight.leave(sequence)
        {
            if in_flight.live > 0 {
                return None;
            }
            let call = self.in_flight.take().map(|in_flight| in_flight.call);
            self.notify_drivers();
            return call;
        }
        self.left += 1;
        if self.waiters.front().is_some_and(Waiter::is_gone) {
            self.remove_gone_head();
            // The next one may fit where this one did not; without a next one, the drivers are done.
            self.notify_drivers();
        } else if self.left > self.waiters.len() / 2 {
            self.waiters.retain(|waiter| !waiter.is_gone());
            self.left = 0;
        }
        None
    }

    fn remove_gone_head(&mut self) {
        while self.waiters.front().is_some_and(Waiter::is_gone) {
            self.waiters.pop_front();
            self.left = self.left.saturating_sub(1);
        }
        if self.waiters.is_empty() {
            self.known = None;
        }
    }

    /// Permits may have come free: what is known holds no longer.
    pub(super) fn permits_freed(&mut self) {
        self.freed += 1;
        self.known = None;
        self.sharing.release_hold();
        self.notify_drivers();
    }

    fn notify_drivers(&self) {
        for slot in &self.drivers {
            slot.notify.notify_one();
        }
    }

    /// What a runtime's driver does next.
    pub(super) fn next(&mut self, runtime: runtime::Id, now: Instant, has_peers: bool) -> Next {
        if let Some(in_flight) = &mut self.in_flight {
            if now < in_flight.take_over_at {
                return Next::Sleep(in_flight.take_over_at);
            }
            in_flight.take_over_at = now + TAKE_OVER_AFTER;
            in_flight.drivers += 1;
            return Next::Call(Arc::clone(&in_flight.call));
        }
        self.remove_gone_head();
        if let Some(first_try) = &self.first_try {
            // A first try that nobody polls costs the head its place, and not its time.
            let last_chance = self.waiters.front().and_then(Waiter::last_chance);
            let until = last_chance.map_or(first_try.until, |last| last.min(first_try.until));
            if now < until {
                return Next::Sleep(until);
            }
        }
        let Some(head) = self.waiters.front() else {
            self.drivers.retain(|slot| slot.runtime != runtime);
            return Next::Stop;
        };
        if let Some(known) = self.known
            && i64::from(head.permits) > known.left
            && let ask_at = self.sharing.hold_until(known.ask_at, head.last_chance())
            && now < ask_at
        {
            return Next::Sleep(ask_at);
        }
        Next::Call(self.send(now, has_peers))
    }

    /// Moves the front of the line into a call.
    fn send(&mut self, now: Instant, has_peers: bool) -> Arc<AcquireCall> {
        let mut waiters = Vec::new();
        // The grants of a call are one member of the permits, which holds a u32.
        let mut room = u32::MAX;
        while let Some(next) = self.waiters.front() {
            let is_gone = next.is_gone();
            if !is_gone && (waiters.len() == CAPACITY || next.permits > room) {
                break;
            }
            let next = self.waiters.pop_front();
            if is_gone {
                self.left = self.left.saturating_sub(1);
            } else if let Some(next) = next {
                room -= next.permits;
                waiters.push(next);
            }
        }
        let ask = if has_peers {
            self.sharing.plan(now)
        } else {
            Ask::default()
        };
        let permits = waiters.iter().map(|waiter| waiter.permits);
        let requests = Requests::in_line(permits, ask.share);
        // The settings in force are those of the last one.
        let last = waiters.iter().rev().find_map(|it| it.set_up.as_ref());
        let set_up = last.and_then(|read| read());
        let call = AcquireCall::new(requests)
            .with_set_up(set_up)
            .with_newer_than(ask.newer_than)
            .held_up_for(self.held_up_for(&waiters, now));
        let call = Arc::new(call);
        self.in_flight = Some(InFlight {
            call: Arc::clone(&call),
            live: waiters.len(),
            waiters,
            sent_at: now,
            take_over_at: now + TAKE_OVER_AFTER,
            drivers: 1,
            freed: self.freed,
        });
        call
    }

    /// How long waiters have stood behind a call that failed, or a first try that makes no progress. Their own call takes
    /// so much less, so that each learns of a silent store within one response timeout.
    fn held_up_for(&self, waiters: &[Waiter], now: Instant) -> Duration {
        let first_try = self.first_try.as_ref();
        let first_try = first_try.and_then(|it| it.until.checked_sub(TAKE_OVER_AFTER));
        let Some(since) = self.failed_since.into_iter().chain(first_try).min() else {
            return Duration::ZERO;
        };
        let joined = waiters.iter().filter_map(|waiter| waiter.joined).min();
        joined.map_or(Duration::ZERO, |joined| {
            now.saturating_duration_since(joined.max(since))
        })
    }

    /// Delivers a call's answer.
    pub(super) fn answered(&mut self, answered: &Answered<'_>) -> Rest {
        let Answered { call, answer, .. } = *answered;
        // One call's grants fit a u32.
        let taken = call.requests.taken(answer) as u32;
        let Some(in_flight) = self.in_flight.take_if(|it| Arc::ptr_eq(&it.call, call)) else {
            // It was answered by another driver, or all of its waiters have left. With the score of what was delivered, it
            // is that grant. With another one, it was granted once more, after the first grant had come back.
            let is_delivered = call.granted_at() == Some(answer.score);
            return Rest {
                permits: if is_delivered { 0 } else { taken },
                is_reclaimed: false,
            };
        };
        self.failed_since = None;
        let mut spare = 0;
        let mut denied = Vec::new();
        let mut waiters = in_flight.waiters.into_iter();
        for (run, granted) in call.requests.served(answer) {
            for (place, waiter) in (0..run.count).zip(&mut waiters) {
                if place < granted {
                    spare += waiter.grant(call, answer);
                } else if let Err(error) = check_fits(answered.name, run.permits, answer.rate) {
                    waiter.fail(error);
                } else {
                    denied.push(waiter);
                }
            }
        }
        if taken > 0 {
            call.note_granted(answer.score);
        }
        let has_backlog = !denied.is_empty();
        for waiter in denied.into_iter().rev() {
            if !waiter.is_gone() {
                // Others may have joined before it meanwhile.
                self.insert(waiter);
            }
        }
        spare -= self.hand_off(spare, call, answer);
        let known = self.learn(answered, taken, has_backlog);
        // What came free meanwhile may be missing in it.
        self.known = known.filter(|_| in_flight.freed == self.freed);
        if self.drivers.len() > 1 {
            // The others sleep until they would take the call over; the next one may be due before that.
            self.notify_drivers();
        }
        Rest {
            permits: spare,
            is_reclaimed: in_flight.drivers > 1,
        }
    }

    /// What an answer says about the time to ask next.
    fn learn(&mut self, answered: &Answered<'_>, taken: u32, has_backlog: bool) -> Option<Known> {
        let Answered {
            answer, sent_at, ..
        } = *answered;
        if answer.found {
            return None; // it says what was granted, and not what is left
        }
        let taken = i64::from(taken);
        let left = (answer.balance - taken).max(0);
        let interval = answer
            .interval
            .map(|ms| Duration::from_millis(ms.unsigned_abs()));
        let hold = self.sharing.note(Seen {
            sent_at,
            score: answer.score,
            rate: answer.rate,
            interval,
            left,
            taken,
            newer: answer.newer,
            own: answered.own,
            has_backlog,
        });
        if answer.has_more && !has_backlog {
            return None; // more may be left than the answer says
        }
        Some(match hold {
            // What is left is for others.
            Some(until) => Known {
                left: 0,
                ask_at: until,
            },
            None => {
                let wait = answer.wait() + self.sharing.jitter(interval, taken > 0);
                Known::new(left.unsigned_abs(), sent_at, wait)
            }
        })
    }

    /// Gives the front of the line what fits out of a grant made just now; returns how much that is.
    fn hand_off(&mut self, spare: u32, call: &AcquireCall, answer: &Answer) -> u32 {
        let mut used = 0;
        loop {
            self.remove_gone_head();
            let Some(head) = self.waiters.pop_front() else {
                return used;
            };
            if head.permits > spare - used {
                self.waiters.push_front(head);
                return used;
            }
            let permits = head.permits;
            used += permits - head.grant(call, answer);
        }
    }

    /// A call has failed: those that it carried learn why. Returns whether the store is to reclaim it, as in [`Rest`].
    pub(super) fn failed(&mut self, call: &Arc<AcquireCall>, error: &Error) -> bool {
        let Some(in_flight) = self.in_flight.take_if(|it| Arc::ptr_eq(&it.call, call)) else {
            return false;
        };
        self.failed_since = Some(in_flight.sent_at);
        for waiter in in_flight.waiters {
            waiter.fail(error.clone());
        }
        self.known = None;
        in_flight.drivers > 1
    }

    /// A runtime has shut down, and its driver with it, in the middle of `call`. Returns the call where the store has to
    /// reclaim it: no other driver will read its answer. One that is in flight no longer has been reclaimed already.
    pub(super) fn driver_lost(
        &mut self,
        runtime: runtime::Id,
        call: Option<&Arc<AcquireCall>>,
    ) -> Option<Arc<AcquireCall>> {
        self.drivers.retain(|slot| slot.runtime != runtime);
        let is_its_call = |it: &InFlight| call.is_some_and(|call| Arc::ptr_eq(&it.call, call));
        if !self.drivers.is_empty() {
            if let Some(in_flight) = self.in_flight.as_mut().filter(|it| is_its_call(it)) {
                in_flight.take_over_at = Instant::now();
            }
            self.notify_drivers();
            return None;
        }
        let lost = self.in_flight.take_if(|it| is_its_call(it));
        // Nobody drives the line: dropping their places tells the waiters to join again.
        self.waiters.clear();
        self.left = 0;
        self.known = None;
        lost.map(|in_flight| in_flight.call)
    }
}

impl InFlight {
    /// Notes that a waiter has left; `false` where it is none of this call's.
    fn leave(&mut self, sequence: u64) -> bool {
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

impl Waiter {
    /// Hands the waiter its part of a call's grant; returns the permits where it has left.
    fn grant(self, call: &AcquireCall, answer: &Answer) -> u32 {
        let permits = self.permits;
        let grant = Grant {
            score: answer.score,
            random: call.id,
            permits,
        };
        match self.answer.send(Ok(grant)) {
            Ok(()) => 0,
            Err(_) => permits,
        }
    }

    fn fail(self, error: Error) {
        // Who has left needs no answer.
        let _ = self.answer.send(Err(error));
    }
}
