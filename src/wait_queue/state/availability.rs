//! What the last answer says about the time of the next call.

use std::time::Duration;

use tokio::time::Instant;

use super::super::{LONGEST_SLEEP, LONGEST_WAIT};

/// `left` permits are available, and more of them not before `ask_at`.
#[derive(Debug, Clone, Copy)]
pub(in crate::wait_queue) struct Availability {
    pub(super) left: i64,
    pub(super) ask_at: Instant,
}

impl Availability {
    pub(in crate::wait_queue) fn new(left: u64, sent_at: Instant, wait: Duration) -> Self {
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
