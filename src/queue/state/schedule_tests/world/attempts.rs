//! The attempts of a driver's call, some of which arrive late.

use super::*;

/// A driver's call, and its last attempt.
pub(super) struct Attempt {
    pub(super) call: Arc<AcquireCall>,
    pub(super) sent_at: Instant,
    /// It does nothing after this time.
    pub(super) deadline: i64,
    /// It decides only after this time: until then, earlier attempts may arrive.
    pub(super) not_before: Option<i64>,
    /// `None` until the store has executed it; an error if the answer is lost.
    pub(super) result: Option<Result<Acquired>>,
}

impl Attempt {
    pub(super) fn new(call: Arc<AcquireCall>, now: Instant, millis: i64) -> Self {
        let mut attempt = Self {
            call,
            sent_at: now,
            deadline: millis,
            not_before: None,
            result: None,
        };
        attempt.repeat(now, millis);
        attempt
    }

    /// Makes the next attempt, while the call has time and is not reclaimed.
    pub(super) fn repeat(&mut self, now: Instant, millis: i64) {
        let deadline = millis + ATTEMPT.as_millis() as i64;
        let noted = acquire_call::Attempt {
            deadline,
            from: millis,
        };
        match self.call.note_attempt(noted) {
            Ok(before) if now < self.sent_at + DEADLINE => {
                self.deadline = deadline;
                self.not_before = before.map(|before| before.deadline);
            }
            _ => self.result = Some(Err(Error::Indeterminate { source: None })),
        }
    }

    /// Whether the store acts on it: it decides once it is due, and finds an earlier grant at any
    /// time.
    pub(super) fn may_decide(&self, store: &Ledger, millis: i64) -> bool {
        let is_due = self.not_before.is_none_or(|time| time < millis);
        millis <= self.deadline && (is_due || store.has_granted(&self.call))
    }
}
