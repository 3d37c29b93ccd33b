//! The steps while the store is away; see `queue/outage.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::substitute::{Substituted, WhileAway};
use super::contents::{Away, Next, State};
use super::waiter::Waiter;
use crate::error::Result;
use crate::grant::Grant;
use crate::store::AcquireCall;

/// The time from a failed call to the next one for waiters that have kept their places. Without it,
/// calls that fail at once would be made in a row.
const PAUSE: Duration = Duration::from_millis(20);

impl State {
    /// Whether all waiters of the call in flight keep their places while the store is away.
    pub(in crate::queue) fn all_stay(&self, call: &Arc<AcquireCall>) -> bool {
        let in_flight = self.in_flight.as_ref();
        let in_flight = in_flight.filter(|it| Arc::ptr_eq(&it.call, call));
        in_flight.is_some_and(|it| it.waiters.iter().all(Waiter::stays))
    }

    /// Notes that a call for waiters that keep their places has failed.
    pub(in crate::queue) fn call_failed(&mut self, now: Instant) {
        self.away.retry_at = Some(now + PAUSE);
    }

    /// Notes that a call was answered: the outage is over.
    pub(super) fn end_outage(&mut self) {
        self.away = Away::default();
    }

    /// Whether a driver that waits for the breaker must take its next step because of a waiter that
    /// joins.
    pub(super) fn ends_pause(&self, waiter: &Waiter) -> bool {
        match (&self.away.paused, &waiter.while_away) {
            (None, _) | (Some(_), WhileAway::Stay) => false,
            (Some(_), WhileAway::Fail) => true,
            (Some(ask_at), WhileAway::Ask(substitute)) => {
                ask_at.is_none() && substitute.may_grant(waiter.permits)
            }
        }
    }

    /// What a driver does while the store is away; `None` if it goes on as always.
    pub(super) fn while_away(
        &mut self,
        runtime: runtime::Id,
        now: Instant,
        is_refused: bool,
    ) -> Option<Next> {
        self.away.paused = None;
        // The store may have answered others since.
        self.away.retry_at.take_if(|at| *at <= now);
        if !is_refused && self.away.retry_at.is_none() {
            return None;
        }
        let ask_at = self.ask_substitutes(runtime, now);
        self.remove_gone_head();
        if self.waiters.is_empty() {
            return Some(self.stop(runtime));
        }
        if !is_refused {
            return self.away.retry_at.map(Next::Sleep);
        }
        self.away.retry_at = None;
        // Whatever is known is outdated when the outage ends.
        self.known = None;
        // Waiters that do not stay need a call that the breaker refuses: it fails them.
        let all_stay = self.waiters.iter().all(|it| it.stays() || it.is_gone());
        all_stay.then(|| {
            self.away.paused = Some(ask_at);
            Next::Pause(ask_at)
        })
    }

    /// Notes whether the breaker of a runtime refuses calls. Each runtime has its own connections.
    pub(super) fn note_refused(&mut self, runtime: runtime::Id, is_refused: bool) {
        let slot = self.drivers.iter_mut().find(|it| it.runtime == runtime);
        if let Some(slot) = slot {
            slot.is_refused = is_refused;
        }
    }

    /// Asks the substitutes of the waiters in order, also of those in a call that is silent. Skips
    /// waiters whose own runtime can call the store. Returns when to ask again, if a substitute
    /// may grant permits later.
    pub(in crate::queue) fn ask_substitutes(
        &mut self,
        runtime: runtime::Id,
        now: Instant,
    ) -> Option<Instant> {
        self.note_refused(runtime, true);
        let drivers = &self.drivers;
        let may_call = |waiter: &Waiter| {
            let mut drivers = drivers.iter().filter(|it| !it.is_refused);
            drivers.any(|it| Some(it.runtime) == waiter.runtime)
        };
        if let Some(in_flight) = &mut self.in_flight {
            for waiter in &mut in_flight.waiters {
                if may_call(waiter) {
                    continue;
                }
                match waiter.ask_substitute() {
                    Substituted::Granted(grant) => {
                        in_flight.live -= 1;
                        self.outbox.answer_to(waiter.leave_call(), Ok(grant));
                    }
                    Substituted::Later(after) => return now.checked_add(after),
                    Substituted::Never => {}
                }
            }
        }
        let mut place = 0;
        while let Some(waiter) = self.waiters.get(place) {
            if may_call(waiter) {
                place += 1;
                continue;
            }
            match waiter.ask_substitute() {
                Substituted::Granted(grant) => {
                    if let Some(waiter) = self.waiters.remove(place) {
                        self.outbox.answer(waiter, Ok(grant));
                    }
                }
                Substituted::Later(after) => return now.checked_add(after),
                Substituted::Never => place += 1,
            }
        }
        None
    }
}

impl Waiter {
    fn ask_substitute(&self) -> Substituted {
        match &self.while_away {
            WhileAway::Ask(substitute) if !self.is_gone() => substitute.ask(self.permits),
            _ => Substituted::Never,
        }
    }

    /// Leaves the call in flight with its answer, which the caller sends.
    fn leave_call(&mut self) -> oneshot::Sender<Result<Grant>> {
        self.has_left = true;
        let (closed, _) = oneshot::channel();
        std::mem::replace(&mut self.answer, closed)
    }
}
