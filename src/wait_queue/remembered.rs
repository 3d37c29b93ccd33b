//! Requests that the store's last [denial](crate::denials) denies too, and the calls that drop it.

use std::time::Duration;

use tokio::time::Instant;

use super::plain::{Checked, PlainRequest};
use super::{Queue, WaitQueue};
use crate::decision::Decision;
use crate::denials::{Change, Deniable, Denial, Sent};
use crate::error::Result;
use crate::event::QueueTime;
use crate::window::{Acquired, Requests, SetUp};

impl WaitQueue {
    /// A call of this client that may free permits or change the limiter is about to be made. Until
    /// it is over, no denial is remembered.
    pub(crate) fn change(&self, deadline: Instant) -> Change {
        self.queue.denials.change(deadline)
    }

    /// Likewise a call of others than this queue that has this set-up; `None` if it changes
    /// nothing.
    pub(crate) fn set_up(&self, set_up: SetUp, deadline: Instant) -> Option<Change> {
        self.queue.denials.set_up(Some(set_up), deadline)
    }

    /// The denial of a request, if one of the store that is no older than `at_most` denies it.
    pub(crate) fn remembered(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
    ) -> Option<Decision> {
        if at_most.is_zero() {
            return None;
        }
        let request = Deniable::one(permits, set_up, at_most);
        self.queue.denials.denial(&request, self.store().changes())
    }

    /// Like [`check`](Self::check), after [`remembered`](Self::remembered). If the request is
    /// probably denied again, requests that arrive in the meantime share its answer.
    pub(crate) fn check_remembering(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        at_most: Duration,
        queue_time: &QueueTime,
    ) -> impl Future<Output = Result<Checked>> + use<'_> {
        let is_shared = !at_most.is_zero() && {
            let request = Deniable::one(permits, set_up, at_most);
            let changes = self.store().changes();
            self.queue.denials.would_deny(&request, changes)
        };
        let request = PlainRequest {
            permits,
            set_up,
            at_most,
            is_shared,
            queue_time: queue_time.clone(),
        };
        async move {
            let calls = self.queue.lease_calls();
            let checked = self.plain.ask(&(), &request).await?;
            // A lease may have been taken or given back in the meantime, or is being given back
            // because of this denial.
            if !checked.decision.is_granted()
                && let Some(calls) = match calls {
                    Some(calls) => calls.were_made().then_some(calls),
                    None => self.queue.lease_calls(),
                }
            {
                let again = async {
                    calls.done().await;
                    self.plain.ask(&(), &request).await
                };
                return Box::pin(again).await;
            }
            Ok(checked)
        }
    }

    /// Whether there is a denial for requests that remember denials for this long.
    pub(crate) fn remembers(&self, at_most: Duration) -> bool {
        self.queue.denials.are_in_use(at_most)
    }
}

impl Queue {
    pub(super) fn sent(&self) -> Sent {
        self.denials.sent(self.store.changes())
    }

    /// Notes what an answer means for later requests.
    pub(super) fn note(
        &self,
        requests: &Requests,
        set_up: Option<SetUp>,
        answer: &Acquired,
        sent: Sent,
    ) {
        match Denial::by_answer(answer, requests, set_up, sent) {
            // Otherwise it does not count what leases have, or what a waiter that has left is
            // granted.
            Some(denial) if !self.is_leased() && !self.state.lock().is_left() => {
                self.denials.remember(denial);
            }
            _ => {
                let available = answer.available.max(0).unsigned_abs();
                self.denials.note_available(available);
            }
        }
    }
}
