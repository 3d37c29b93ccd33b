//! An acquire call: what it asks for, and how far it has come.
//!
//! A call has an id and outlives its attempts: an attempt may be repeated, on another connection or by another runtime,
//! and the call is granted once. Its outcome belongs to one party: the caller that reads the answer, or, where the caller
//! is gone, whoever gives the permits back. [`AcquireCall::claim`] decides which.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::model::Requests;
use crate::permit::{Random, new_random};

#[derive(Debug)]
pub(crate) struct AcquireCall {
    pub(crate) id: Random,
    pub(crate) requests: Requests,
    /// How many attempts may have been executed.
    attempts: AtomicU32,
    /// The score of the grant that was delivered.
    granted_at: OnceLock<i64>,
    /// Whether nobody waits for it any more.
    is_abandoned: AtomicBool,
    is_claimed: AtomicBool,
}

impl AcquireCall {
    pub(crate) fn new(requests: Requests) -> Self {
        Self {
            id: new_random(),
            requests,
            attempts: AtomicU32::new(0),
            granted_at: OnceLock::new(),
            is_abandoned: AtomicBool::new(false),
            is_claimed: AtomicBool::new(false),
        }
    }

    pub(crate) fn may_have_run(&self) -> bool {
        self.attempts.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn was_repeated(&self) -> bool {
        self.attempts.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn note_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes charge of the outcome; `false` where somebody else did.
    pub(crate) fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn granted_at(&self) -> Option<i64> {
        self.granted_at.get().copied()
    }

    pub(crate) fn note_granted(&self, score: i64) {
        // It is delivered once.
        let _ = self.granted_at.set(score);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn note_abandoned(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}
