//! How a waiter joins the queue.

use std::sync::Arc;

use tokio::runtime;
use tokio::sync::Notify;

use super::availability::Availability;
use super::contents::{FirstTry, Slot, State};
use super::waiter::Waiter;

impl State {
    /// Puts a waiter into the queue at the place of its sequence number. `denied` is the answer
    /// that its own request got just now. Returns how to notify the runtime's driver, if one must
    /// be started.
    pub(in crate::queue) fn join(
        &mut self,
        mut waiter: Waiter,
        runtime: runtime::Id,
        denied: Option<Availability>,
    ) -> Option<Arc<Notify>> {
        waiter.runtime = Some(runtime);
        if self.waiters.is_empty() {
            if self.in_flight.is_none() {
                self.freed_elsewhere.sent(false); // messages until now were for nobody
            }
            // A denial does not show permits that came free since its call was sent.
            let is_current =
                |it: &FirstTry| it.sequence == waiter.sequence && it.freed == self.freed;
            self.known = denied.filter(|_| self.first_try.as_ref().is_some_and(is_current));
        }
        if self
            .first_try
            .as_ref()
            .is_some_and(|it| it.sequence != waiter.sequence)
        {
            self.notify_first_try();
        }
        let ends_pause = self.ends_pause(&waiter);
        if self.insert(waiter) == 0 || ends_pause {
            // The time of the next call has changed, and this runtime may stall before it learns of
            // it.
            self.notify_drivers();
        }
        if self.drivers.iter().any(|slot| slot.runtime == runtime) {
            return None;
        }
        let notify = Arc::new(Notify::new());
        self.drivers.push(Slot {
            runtime,
            notify: Arc::clone(&notify),
            is_refused: true,
        });
        Some(notify)
    }
}
