//! Permits that other clients have freed, as the store reports: when to ask for them.
//!
//! A message only makes the next call sooner. So a wrong one costs a call, and a lost one costs the
//! time until the queue asks anyway. After a call that a message caused and that was granted
//! nothing, the next one is not made for a pause that doubles each time: of many clients that one
//! message wakes, most ask in vain, and anybody may send messages.

use std::time::Duration;

use tokio::time::Instant;

use super::availability::LONGEST_SLEEP;

/// The pause after a first call in vain.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub(super) struct FreedElsewhere {
    /// The most permits that a message since the last call has reported as available. Messages may
    /// come out of order: the first value of a subscription may come after a newer one.
    available: i64,
    /// When the call for these permits is due; `None` before a call is planned.
    due: Option<Instant>,
    /// The time from a message to the call, so that processes that were granted less ask first.
    delay: Duration,
    /// For how long after an answer no message causes a call.
    pause: Duration,
    /// The end of that pause.
    not_before: Option<Instant>,
    /// Whether a message caused the call in flight.
    is_asking: bool,
}

impl FreedElsewhere {
    /// Notes that a message reports this many available permits. Returns whether no call is planned
    /// yet.
    pub(super) fn reported(&mut self, available: i64) -> bool {
        self.available = self.available.max(available);
        self.due.is_none()
    }

    /// When to ask for the head, if a message says that it fits; plans that call.
    pub(super) fn due(&mut self, head_permits: i64, now: Instant) -> Option<Instant> {
        if head_permits > self.available {
            self.due = None; // the next message counts as new
            return None;
        }
        let due = self.due.get_or_insert(now + self.delay);
        Some(self.not_before.map_or(*due, |at| at.max(*due)))
    }

    /// Notes that a call is sent, which finds what came free before. `is_caused` says whether a
    /// message caused the call.
    pub(super) fn sent(&mut self, is_caused: bool) {
        (self.available, self.due, self.is_asking) = (0, None, is_caused);
    }

    /// Notes the answer to a call, which was granted nothing if `is_vain`. From then on `delay` is
    /// the time from a message to its call.
    pub(super) fn answered(&mut self, now: Instant, is_vain: bool, delay: Duration) {
        self.delay = delay;
        if std::mem::take(&mut self.is_asking) {
            self.pause = if is_vain {
                (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_SLEEP)
            } else {
                Duration::ZERO
            };
        }
        self.not_before = Some(now + self.pause);
    }
}
