//! What the store observed last, which readers take without the lock of the state: a request that
//! is denied from memory costs no lock, and neither does sending a call. What was dropped before a
//! reader starts is not read any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::atomic::AtomicCell;
use tokio::time::Instant;

use super::last_answer::{Deniable, Sent};
use super::observed::Observed;
use crate::decision::Decision;
use crate::window::SetUp;

#[derive(Default)]
pub(in crate::wait_queue) struct Published {
    observed: AtomicCell<Option<Observed>>,
    /// How often an answer has been dropped.
    epoch: AtomicU64,
}

impl Published {
    /// A call that is sent now, while the store counts so many
    /// [`changes`](crate::store::LimiterStore::changes).
    pub(in crate::wait_queue) fn sent(&self, now: Instant, changes: u64) -> Sent {
        Sent {
            at: now,
            epoch: self.epoch.load(Ordering::Acquire),
            changes,
        }
    }

    /// Whether no answer has been dropped since a call was sent.
    pub(super) fn is_current(&self, sent: &Sent) -> bool {
        sent.epoch == self.epoch.load(Ordering::Acquire)
    }

    /// Discards the answers to the calls in flight. Called under the lock of the state only.
    pub(super) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Called under the lock of the state only.
    pub(super) fn publish(&self, observed: Option<Observed>) {
        self.observed.store(observed);
    }

    pub(super) fn last(&self) -> Option<Observed> {
        self.observed.load()
    }

    /// What the store observed last, if requests with this set-up leave the limiter as it says, and
    /// the store counts so many changes.
    pub(super) fn observed(&self, set_up: Option<SetUp>, changes: u64) -> Option<Observed> {
        let observed = self.last()?;
        (observed.has_settings_of(set_up) && observed.is_after(changes)).then_some(observed)
    }

    /// The denial of a request that would still be denied.
    pub(in crate::wait_queue) fn denial(
        &self,
        request: &Deniable,
        changes: u64,
        now: Instant,
    ) -> Option<Decision> {
        self.observed(request.set_up, changes)?.denial(request, now)
    }

    /// Whether a request would be denied if the answer were young enough.
    pub(in crate::wait_queue) fn would_deny(
        &self,
        request: &Deniable,
        changes: u64,
        now: Instant,
    ) -> bool {
        let observed = self.observed(request.set_up, changes);
        observed.is_some_and(|observed| observed.denies(request, now))
    }

    /// Whether it denies anything at that age.
    pub(in crate::wait_queue) fn is_in_use(&self, at_most: Duration, now: Instant) -> bool {
        let observed = self.last();
        observed.is_some_and(|observed| observed.age(now) < observed.lasts.min(at_most))
    }
}
