//! An acquire call: what it asks for, and how far it has come.
//!
//! A call has an id and outlives its attempts. An attempt may be repeated, on another connection or
//! by another runtime, and the call is granted once. Its outcome belongs to one party: the caller
//! that reads the answer or, if the caller is gone, the party that gives the permits back.
//! [`AcquireCall::claim`] decides which.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::lock::Lock;
#[cfg(all(test, feature = "redis"))]
use crate::permit::CallId;
use crate::permit::new_call_id;
#[cfg(any(feature = "test-util", test))]
use crate::window::Acquired;
use crate::window::{Acquire, Ahead, Requests, SetUp};

#[derive(Debug)]
pub(crate) struct AcquireCall {
    acquire: Acquire,
    /// The attempts that may have been executed, or may still be.
    attempts: Lock<SmallVec<[Attempt; 1]>>,
    /// The number of attempts, which the queue reads under its own lock and so without this one.
    made: AtomicUsize,
    /// The answer by which a store in this process granted the call, for later attempts to find.
    #[cfg(any(feature = "test-util", test))]
    pub(crate) granted: Lock<Option<Acquired>>,
    /// The score in ms of the grant that the caller got.
    granted_at: OnceLock<i64>,
    is_claimed: AtomicBool,
}

/// An attempt of a call, or what several attempts have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The time on the server's clock, in ms, after which the attempt does nothing.
    pub(crate) deadline: i64,
    /// The earliest score that its grant can have, in ms.
    pub(crate) from: i64,
}

impl Attempt {
    fn and(self, other: Self) -> Self {
        Self {
            deadline: self.deadline.max(other.deadline),
            from: self.from.min(other.from),
        }
    }
}

impl Deref for AcquireCall {
    type Target = Acquire;

    fn deref(&self) -> &Acquire {
        &self.acquire
    }
}

impl AcquireCall {
    pub(crate) fn new(requests: Requests) -> Self {
        Self {
            acquire: Acquire {
                id: new_call_id(),
                audited_rate: None,
                requests,
                newer_than: None,
                set_up: None,
                ahead: None,
            },
            attempts: Lock::default(),
            made: AtomicUsize::new(0),
            #[cfg(any(feature = "test-util", test))]
            granted: Lock::default(),
            granted_at: OnceLock::new(),
            is_claimed: AtomicBool::new(false),
        }
    }

    pub(crate) fn with_set_up(mut self, set_up: Option<SetUp>) -> Self {
        self.acquire.set_up = set_up;
        self
    }

    pub(crate) fn with_newer_than(mut self, newer_than: Option<i64>) -> Self {
        self.acquire.newer_than = newer_than;
        self
    }

    pub(crate) fn with_ahead(mut self, ahead: Option<Ahead>) -> Self {
        self.acquire.ahead = ahead;
        self
    }

    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn with_id(mut self, id: CallId) -> Self {
        self.acquire.id = id;
        self
    }

    /// The request that is sent, by a client that last summed the live grants at this rate.
    pub(crate) fn audited_at(&self, audited_rate: Option<i64>) -> Acquire {
        Acquire {
            audited_rate,
            ..self.acquire.clone()
        }
    }

    /// Notes an attempt that is about to be made, and returns the earlier ones. This orders the
    /// attempts: of those made at the same time, all but the first wait for the deadlines of the
    /// others.
    ///
    /// Fails if the outcome is claimed: nobody would look for what the attempt takes.
    pub(crate) fn note_attempt(&self, attempt: Attempt) -> Result<Option<Attempt>> {
        self.change(|attempts| {
            if self.is_claimed.load(Ordering::Relaxed) {
                return Err(Error::unanswered(!attempts.is_empty()));
            }
            let before = attempts.iter().copied().reduce(Attempt::and);
            attempts.push(attempt);
            Ok(before)
        })
    }

    /// Removes an attempt that has done nothing and cannot do anything later.
    pub(crate) fn forget_attempt(&self, attempt: Attempt) {
        self.change(|attempts| {
            if let Some(place) = attempts.iter().position(|other| *other == attempt) {
                attempts.remove(place);
            }
        });
    }

    /// Notes that the server got an attempt after its deadline, at `now` by the server's clock. A
    /// copy of the attempt may have come in time.
    pub(crate) fn note_deadline_exceeded(&self, attempt: Attempt, now: i64) {
        let mut attempts = self.attempts.lock();
        if let Some(late) = attempts.iter_mut().find(|other| **other == attempt) {
            late.deadline = late.deadline.min(now - 1);
        }
    }

    /// The last deadline of the attempts other than `attempt`: until then one can arrive and, if
    /// the grant was given back, take permits again.
    ///
    /// The first attempt does not count: either it took the permits, or its deadline had passed
    /// when another attempt took them.
    pub(crate) fn last_deadline_except(&self, attempt: Attempt) -> Option<i64> {
        if self.made.load(Ordering::Acquire) < 2 {
            return None;
        }
        let attempts = self.attempts.lock();
        let others = attempts.iter().skip(1).filter(|other| **other != attempt);
        others.map(|other| other.deadline).max()
    }

    /// What all attempts have in common that may have been executed, or may still be.
    pub(crate) fn attempts_made(&self) -> Option<Attempt> {
        self.attempts.lock().iter().copied().reduce(Attempt::and)
    }

    /// Whether an attempt may have been executed, or may still be.
    pub(crate) fn may_have_run(&self) -> bool {
        self.made.load(Ordering::Acquire) > 0
    }

    fn change<T>(&self, change: impl FnOnce(&mut SmallVec<[Attempt; 1]>) -> T) -> T {
        let mut attempts = self.attempts.lock();
        let answer = change(&mut attempts);
        self.made.store(attempts.len(), Ordering::Release);
        answer
    }

    /// Claims the outcome; `false` if it is claimed already. No attempt is noted from then on,
    /// except one that is being noted now: [`attempts_made`](Self::attempts_made) waits for it.
    pub(crate) fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn granted_at(&self) -> Option<i64> {
        self.granted_at.get().copied()
    }

    pub(crate) fn note_granted(&self, score: i64) {
        // An answer is delivered once, so this is set once.
        let _ = self.granted_at.set(score);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(deadline: i64, from: i64) -> Attempt {
        Attempt { deadline, from }
    }

    #[test]
    fn an_attempt_knows_the_last_deadline_and_earliest_score_of_those_before() {
        let call = AcquireCall::new(Requests::one(1));
        assert_eq!(call.note_attempt(attempt(20, 5)).unwrap(), None);
        assert_eq!(
            call.note_attempt(attempt(10, 3)).unwrap(),
            Some(attempt(20, 5))
        );
        assert_eq!(
            call.note_attempt(attempt(30, 9)).unwrap(),
            Some(attempt(20, 3))
        );
        assert_eq!(call.attempts_made(), Some(attempt(30, 3)));
    }

    #[test]
    fn an_attempt_that_did_nothing_holds_up_none_behind_it() {
        let call = AcquireCall::new(Requests::one(1));
        call.note_attempt(attempt(10, 3)).unwrap();
        call.note_attempt(attempt(20, 5)).unwrap();
        call.forget_attempt(attempt(20, 5));
        assert_eq!(
            call.note_attempt(attempt(30, 6)).unwrap(),
            Some(attempt(10, 3))
        );
        call.forget_attempt(attempt(10, 3));
        call.forget_attempt(attempt(30, 6));
        assert_eq!(call.attempts_made(), None);
    }

    #[test]
    fn a_late_attempt_may_have_run_by_a_copy_but_holds_up_none_behind_it() {
        let call = AcquireCall::new(Requests::one(1));
        call.note_attempt(attempt(10, 3)).unwrap();
        call.note_attempt(attempt(90, 5)).unwrap();
        call.note_deadline_exceeded(attempt(90, 5), 20);
        assert!(call.may_have_run());
        assert_eq!(call.attempts_made(), Some(attempt(19, 3)));
        assert_eq!(call.last_deadline_except(attempt(10, 3)), Some(19));
        call.note_deadline_exceeded(attempt(10, 3), 20);
        assert_eq!(call.attempts_made(), Some(attempt(19, 3)));
    }

    #[test]
    fn no_attempt_is_made_of_a_call_whose_outcome_is_claimed() {
        let call = AcquireCall::new(Requests::one(1));
        call.note_attempt(attempt(10, 3)).unwrap();
        assert!(call.claim());
        let refused = call.note_attempt(attempt(20, 5));
        assert!(matches!(refused, Err(Error::Indeterminate { .. })));
        assert_eq!(call.attempts_made(), Some(attempt(10, 3)));
    }

    #[test]
    fn a_call_may_have_run_once_an_attempt_is_noted_unless_that_did_nothing() {
        let call = AcquireCall::new(Requests::one(1));
        assert!(!call.may_have_run());
        call.note_attempt(attempt(10, 3)).unwrap();
        assert!(call.may_have_run());
        call.forget_attempt(attempt(10, 3));
        assert!(!call.may_have_run());
        assert!(call.claim());
        let refused = call.note_attempt(attempt(20, 5));
        assert!(matches!(refused, Err(Error::StoreUnavailable { .. })));
    }
}
