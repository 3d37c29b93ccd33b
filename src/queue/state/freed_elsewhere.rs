//! Permits that other clients have freed, as the store tells: when to ask for them.
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
    /// How many permits are available by the best message since the last call was sent. The value
    /// that is read when the subscription begins may be told after a message that is newer.
    available: i64,
    /// When the call for them is due.
    due: Option<Instant>,
    /// How much later than a message a call is made, so that those who were granted less are served
    /// first.
    delay: Duration,
    /// The pause after a call, and its end.
    pause: Duration,
    not_before: Option<Instant>,
    /// Whether a message caused the call in flight.
    is_asking: bool,
}

impl FreedElsewhere {
    /// A message says that so many permits are available. Returns whether that is news.
    pub(super) fn told(&mut self, available: i64) -> bool {
        self.available = self.available.max(available);
        self.due.is_none()
    }

    /// When the head is to be asked for, if a message says that it fits.
    pub(super) fn due(&mut self, head_permits: i64, now: Instant) -> Option<Instant> {
        if head_permits > self.available {
            self.due = None; // the next message is news again
            return None;
        }
        let due = self.due.get_or_insert(now + self.delay);
        Some(self.not_before.map_or(*due, |at| at.max(*due)))
    }

    /// A call is sent, which finds what came free before.
    pub(super) fn sent(&mut self, is_caused: bool) {
        (self.available, self.due, self.is_asking) = (0, None, is_caused);
    }

    /// The answer to a call is read. The next message is heeded after this delay.
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
