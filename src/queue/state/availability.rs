//! What is known of the permits that are available, and how long the queue sleeps at most.

use std::time::Duration;

use tokio::time::Instant;

/// The longest time between two calls of the queue, where permits come back much later: other
/// processes may release permits or change the rate, and a message that tells of it may be lost.
/// Together with the time for which permits are left to others it makes a second.
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
    pub(in crate::queue) fn new(left: u64, sent_at: Instant, wait: Duration) -> Self {
        let wait = if wait > LONGEST_WAIT {
            LONGEST_SLEEP
        } else {
            wait
        };
        Self {
            left: i64::try_from(left).unwrap_or(i64::MAX),
            ask_at: sent_at + wait,
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
            let next = Availability::new(0, now, Duration::from_millis(wait));
            serde_json::json!({ "ask_after": (next.ask_at - now).as_millis() as u64 })
        });
    }
}
