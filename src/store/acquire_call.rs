//! An acquire call: what it asks for, and how far it has come.
//!
//! A call has an id and outlives its attempts: an attempt may be repeated, on another connection or by another runtime,
//! and the call is granted once. Its outcome belongs to one party: the caller that reads the answer, or, where the caller
//! is gone, whoever gives the permits back. [`AcquireCall::claim`] decides which.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::model::{Requests, SetUp};
use crate::permit::{Random, new_random};

#[derive(Debug)]
pub(crate) struct AcquireCall {
    pub(crate) id: Random,
    pub(crate) requests: Requests,
    /// Has the answer tell how many grants have a higher score than this.
    pub(crate) newer_than: Option<i64>,
    /// The settings that the limiter must have.
    pub(crate) set_up: Option<SetUp>,
    /// Whether an attempt may have been executed.
    may_have_run: AtomicBool,
    /// Whether permits were delivered.
    was_granted: AtomicBool,
    /// Whether nobody waits for it any more.
    is_abandoned: AtomicBool,
    is_claimed: AtomicBool,
}

impl AcquireCall {
    pub(crate) fn new(requests: Requests) -> Self {
        Self {
            id: new_random(),
            requests,
            newer_than: None,
            set_up: None,
            may_have_run: AtomicBool::new(false),
            was_granted: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            is_claimed: AtomicBool::new(false),
        }
    }

    pub(crate) fn with_set_up(self, set_up: Option<SetUp>) -> Self {
        Self { set_up, ..self }
    }

    pub(crate) fn may_have_run(&self) -> bool {
        self.may_have_run.load(Ordering::Relaxed)
    }

    pub(crate) fn note_attempt(&self) {
        self.may_have_run.store(true, Ordering::Relaxed);
    }

    /// Takes charge of the outcome; `false` where somebody else did.
    pub(crate) fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn was_granted(&self) -> bool {
        self.was_granted.load(Ordering::Relaxed)
    }

    pub(crate) fn note_granted(&self) {
        self.was_granted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    pub(crate) fn note_abandoned(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }
}
