//! What is known of the permits that are available, and how long the queue sleeps at most.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::after;

/// The longest time between an answer and the next call of the queue, where permits come back much
/// later: other processes may release permits or change the rate, and a message about it may be
/// lost. Together with the time for which permits are left to others it makes a second.
///
/// It counts from the answer, so that a process that is too busy to read answers in time asks less
/// often, and has the time to ask for messages.
pub(in crate::queue) const LONGEST_SLEEP: Duration = Duration::from_millis(850);

/// A wait of up to this length is not interrupted: one more call per window of a second would gain
/// nothing.
pub(in crate::queue) const LONGEST_WAIT: Duration = Duration::from_millis(1_003);

/// `left` permits are available, and more of them not before `ask_at`.
#[derive(Debug, Clone, Copy)]
pub(in crate::queue) struct Availability {
    pub(super) left: i64,
    pub(super) ask_at: Instant,
}

impl Availability {
    /// What the answer says that is read at `now`, to a call that was sent at `sent_at`.
    pub(in crate::queue) fn new(left: u64, sent_at: Instant, wait: Duration, now: Instant) -> Self {
        let back_at = after(sent_at, wait);
        Self {
            left: i64::try_from(left).unwrap_or(i64::MAX),
            ask_at: match wait > LONGEST_WAIT {
                true => back_at.min(now + LONGEST_SLEEP),
                false => back_at,
            },
        }
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;
    use crate::client_vectors::{hold, number};

    #[test]
    fn a_wait_is_interrupted_as_the_specification_says() {
        hold("waits", |given| {
            let (now, wait) = (Instant::now(), number(&given["wait"]).unsigned_abs());
            let next = Availability::new(0, now, Duration::from_millis(wait), now);
            serde_json::json!({ "ask_after": (next.ask_at - now).as_millis() as u64 })
        });
    }
}
