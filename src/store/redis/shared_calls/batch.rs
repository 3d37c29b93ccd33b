//! The pending batch of a runtime: parts that wait for the flusher.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::SharedReply;

/// The calls of one kind on one runtime.
pub(in crate::store::redis) struct RuntimeParts<P> {
    pub(super) in_flight: AtomicUsize,
    pending: Mutex<Pending<P>>,
}

/// Parts that wait for the flusher.
struct Pending<P> {
    entries: Vec<PendingPart<P>>,
    has_flusher: bool,
}

/// One part of a shared call.
pub(in crate::store::redis) struct PendingPart<P> {
    pub(in crate::store::redis) part: P,
    pub(super) deadline: Instant,
    /// The same by the server's clock.
    pub(super) server_deadline: i64,
    pub(super) answer: oneshot::Sender<SharedReply>,
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            has_flusher: false,
        }
    }
}

impl<P> Default for RuntimeParts<P> {
    fn default() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            pending: Mutex::default(),
        }
    }
}

impl<P> RuntimeParts<P> {
    fn pending(&self) -> MutexGuard<'_, Pending<P>> {
        // Nothing panics while the lock is held.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the entry needs a flusher.
    pub(super) fn push(&self, entry: PendingPart<P>) -> bool {
        let mut pending = self.pending();
        pending.entries.push(entry);
        !std::mem::replace(&mut pending.has_flusher, true)
    }

    /// Takes the pending batch if it has such a part.
    pub(super) fn take_if_any(&self, is_such: impl Fn(&P) -> bool) -> Option<Vec<PendingPart<P>>> {
        let mut pending = self.pending();
        let has_any = pending.entries.iter().any(|entry| is_such(&entry.part));
        has_any.then(|| std::mem::take(&mut *pending).entries)
    }

    /// Takes the pending batch. A later entry waits for the next flusher.
    pub(super) fn take(&self) -> Vec<PendingPart<P>> {
        std::mem::take(&mut *self.pending()).entries
    }
}

impl<P> PendingPart<P> {
    pub(super) fn answer(self, entered: SharedReply) {
        // A caller that has left needs no answer.
        let _ = self.answer.send(entered);
    }
}
