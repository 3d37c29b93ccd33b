//! How a waiter leaves: its future is dropped, or its time is up.
//!
//! Either way its [`PlaceInQueue`](super::waiter::PlaceInQueue) is dropped, which closes the
//! channel of its answer in one step of the state. So each step finds a waiter either present or
//! gone, and a waiter that has left keeps no permit:
//! - If it had its answer, the grant goes back to the store.
//! - If it was queued, it is removed. If it was the head, the time of the next call is computed
//!   anew.
//! - If its call is in flight and other waiters share the call, what is granted to it goes to the
//!   next waiters that it fits when the answer arrives, or else back to the store. As the others
//!   may be on runtimes that never read the answer, a task watches the call.
//! - If it was the last one that waited for the call, the store reclaims the call.
//!
//! None of this needs the runtime of the waiter. The steps are in `state/leaving.rs`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::shared::Queue;
use super::state::{Left, Watched};
use crate::error::Result;
use crate::grant::Grant;

/// Awaits a future, or returns `None` at `until`.
pub(crate) async fn within<F: Future>(until: Option<Instant>, future: F) -> Option<F::Output> {
    match until {
        None => Some(future.await),
        Some(until) => timeout_at(until, future).await.ok(),
    }
}

impl Queue {
    /// Removes a waiter. `close` closes its receiver under the lock, so that each step of the state
    /// finds the waiter either present or gone, and returns the answer that it had, if any.
    pub(super) fn leave(
        self: &Arc<Self>,
        sequence: u64,
        close: impl FnOnce() -> Option<Result<Grant>>,
    ) {
        let (answer, left) = self.step(|state| match close() {
            Some(answer) => (Some(answer), Left::Nothing),
            None => (None, state.leave(sequence)),
        });
        if let Some(Ok(grant)) = answer {
            // Others may have waited for long: the store decides again who gets it, and when.
            self.give_back(grant);
        }
        if !matches!(left, Left::Nothing) {
            self.denials.drop_last(); // what its call takes for it may come back
        }
        match left {
            Left::Nothing | Left::Watched => {}
            Left::Abandoned(call) => self.reclaim(call),
            Left::Unwatched => self.watch(),
        }
    }

    /// Withdraws the call in flight, which a waiter has left, from its driver, if that has not
    /// ended it in the time that a call takes.
    fn watch(self: &Arc<Self>) {
        let queue = Arc::clone(self);
        let watching = async move {
            loop {
                let since = Instant::now();
                sleep_until(queue.store.call_deadline() + Duration::from_millis(1)).await;
                match queue.step(|state| state.withdraw_overdue(since)) {
                    Watched::InTime => {}
                    Watched::Ended => return,
                    Watched::Withdrawn(call) => return queue.reclaim(call),
                }
            }
        };
        self.store.run_in_background(Box::pin(watching));
    }
}
