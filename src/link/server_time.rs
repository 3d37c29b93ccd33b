//! An estimate of the server's clock, from its answers.
//!
//! A call carries its deadline in the server's time, so that a call that was delayed on its way
//! takes nothing. Every answer brings the server's time along and corrects the estimate. A wrong
//! estimate costs one more round trip, but never a permit.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The latest time that an answer is taken to mean: deadlines are computed from here without
/// overflow.
const LATEST: i64 = 1 << 54;

/// The answer to TIME in ms.
pub(crate) fn millis((seconds, micros): (i64, i64)) -> i64 {
    let millis = seconds.saturating_mul(1000).saturating_add(micros / 1000);
    millis.clamp(0, LATEST)
}

/// The server's time minus this process's, in ms.
#[derive(Debug)]
pub(crate) struct ServerTime {
    /// When this process's time starts.
    start: Instant,
    offset: AtomicI64,
}

const UNKNOWN: i64 = i64::MIN;

impl ServerTime {
    pub(crate) fn unknown() -> Self {
        Self {
            start: Instant::now(),
            offset: AtomicI64::new(UNKNOWN),
        }
    }

    fn local_millis(&self) -> i64 {
        self.start.elapsed().as_millis() as i64
    }

    pub(crate) fn is_known(&self) -> bool {
        self.offset.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Learns from an answer that has just arrived. The server read its clock before the answer
    /// travelled, so the answer is never ahead, but behind by its travel time. So a later estimate
    /// is adopted at once, and an earlier one by an eighth: a busy machine that reads one answer
    /// late does not set the deadlines of its next calls too early, and a server's clock that was
    /// set back is soon known.
    pub(crate) fn learn(&self, server_millis: i64) {
        let reported = server_millis.clamp(0, LATEST) - self.local_millis();
        let known = self.offset.load(Ordering::Relaxed);
        let estimate = estimate(known, reported);
        self.offset.store(estimate, Ordering::Relaxed);
    }

    /// The server's time after `wait`, if known.
    pub(crate) fn after(&self, wait: Duration) -> Option<i64> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset != UNKNOWN).then(|| self.local_millis() + offset + wait.as_millis() as i64)
    }
}

fn estimate(known: i64, reported: i64) -> i64 {
    if reported >= known {
        return reported; // also if it is the first answer
    }
    known - ((known - reported) / 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_vectors::{hold, list, number};

    #[test]
    fn the_server_s_clock_is_estimated_as_the_specification_says() {
        hold("clock", |given| {
            let mut known = UNKNOWN;
            let replies = list(&given["replies"]).map(|reply| {
                known = estimate(known, number(&reply["server"]) - number(&reply["own"]));
                known
            });
            let differences: Vec<i64> = replies.collect();
            serde_json::json!({ "differences": differences })
        });
    }

    #[test]
    fn the_first_answer_and_a_later_time_are_adopted_as_they_are() {
        assert_eq!(estimate(UNKNOWN, -5_000), -5_000);
        assert_eq!(estimate(1_000, 1_001), 1_001);
        assert_eq!(ServerTime::unknown().after(Duration::ZERO), None);
    }

    #[test]
    fn an_impossible_time_is_read_as_the_latest_possible() {
        assert_eq!(millis((1_700_000_000, 123_456)), 1_700_000_000_123);
        assert_eq!(millis((i64::MAX, i64::MAX)), LATEST);
        assert_eq!(millis((i64::MIN, 0)), 0);
        let time = ServerTime::unknown();
        for reported in [i64::MAX, i64::MIN, i64::MAX] {
            time.learn(reported);
            assert!(time.after(Duration::from_secs(1)).is_some());
        }
    }

    #[test]
    fn an_answer_that_was_read_late_moves_the_estimate_by_an_eighth() {
        assert_eq!(estimate(10_000, 2_000), 9_000);
    }

    #[test]
    fn a_clock_that_was_set_back_is_known_after_some_answers() {
        let known = (0..100).fold(60_000, |known, _| estimate(known, 0));
        assert_eq!(known, 0);
    }
}
