//! The pending batch of a runtime: acquires that wait for the flusher.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::SharedReply;
use crate::rate::RateType;
use crate::store::redis::script::Args;

/// The acquires of one runtime.
#[derive(Default)]
pub(super) struct RuntimeAcquires {
    pub(super) in_flight: AtomicUsize,
    pending: Mutex<Pending>,
}

/// Acquires that wait for the flusher.
#[derive(Default)]
struct Pending {
    entries: Vec<PendingAcquire>,
    has_flusher: bool,
}

/// One acquire in a shared call.
pub(super) struct PendingAcquire {
    pub(super) rate_type: RateType,
    /// The keys, then the arguments.
    pub(super) words: Args,
    pub(super) keys: usize,
    /// The runs and the options, unless there is a single plain request.
    pub(super) list: Option<Args>,
    /// How many runs of equal requests it has.
    pub(super) runs: usize,
    pub(super) requests: u32,
    pub(super) deadline: Instant,
    /// The same by the server's clock.
    pub(super) server_deadline: i64,
    pub(super) answer: oneshot::Sender<SharedReply>,
}

impl RuntimeAcquires {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        // Nothing panics while the lock is held.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the entry needs a flusher.
    pub(super) fn push(&self, entry: PendingAcquire) -> bool {
        let mut pending = self.pending();
        pending.entries.push(entry);
        !std::mem::replace(&mut pending.has_flusher, true)
    }

    /// Takes the pending batch. A later entry waits for the next flusher.
    pub(super) fn take(&self) -> Vec<PendingAcquire> {
        std::mem::take(&mut *self.pending()).entries
    }
}

impl PendingAcquire {
    pub(super) fn answer(self, reply: SharedReply) {
        // A caller that has left needs no answer.
        let _ = self.answer.send(reply);
    }
}
