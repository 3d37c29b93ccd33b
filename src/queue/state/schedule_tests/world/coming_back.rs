//! Permits that come back: from callers, other processes, and abandoned calls.

use super::*;

impl World {
    pub(super) fn give_back_held(&mut self, choice: u16) {
        let holds = |waiter: &SimulatedWaiter| matches!(waiter.place, Place::Holding(_));
        if let Some(waiter) = self.choose_waiter(choice, holds) {
            let place = std::mem::replace(&mut self.waiters[waiter].place, Place::Gone);
            if let Place::Holding(grant) = place {
                self.refunds.push(grant);
            }
        }
    }

    pub(super) fn execute_refund(&mut self, choice: u16) {
        if !self.refunds.is_empty() {
            let grant = self
                .refunds
                .remove(usize::from(choice) % self.refunds.len());
            self.store.refund(&grant);
            self.unheard += 1;
        }
    }

    pub(super) fn hear_of_refund(&mut self) {
        if self.unheard > 0 {
            self.unheard -= 1;
            self.state.permits_freed();
        }
    }

    pub(super) fn others_give_back(&mut self, choice: u16) {
        if self.store.give_back_of_another(choice) {
            self.freed_elsewhere();
        }
    }

    /// The queue hears of it by its next call.
    pub(super) fn freed_elsewhere(&mut self) {
        self.freed_elsewhere_at = Some(self.millis());
        self.unknown_until = self.now + LONGEST_SLEEP;
    }

    /// An answer is read, from which the queue counts its sleep: it may be older than what others
    /// gave back.
    pub(super) fn note_read(&mut self, answer: &Acquired) {
        if !answer.found && self.freed_elsewhere_at >= Some(answer.score) {
            self.unknown_until = self.now + LONGEST_SLEEP;
        }
    }

    pub(super) fn reclaim(&mut self) {
        let millis = self.millis();
        let is_due = |call: &Arc<AcquireCall>| {
            let made = call.attempts_made();
            made.is_none_or(|made| made.deadline < millis)
        };
        if let Some(due) = self.reclaims.iter().position(is_due) {
            let call = self.reclaims.remove(due);
            if call.claim() {
                self.store.reclaim(call.id, call.granted_at());
            }
            self.unheard += 1;
        }
    }
}
