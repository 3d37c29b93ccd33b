//! A waiter in the queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::substitute::{Substitute, WhileAway};
use crate::error::Result;
use crate::event::QueueTime;
use crate::grant::Grant;
use crate::window::SetUp;

/// Whatever holds up a waiter ends this long before the waiter gives up.
pub(super) const TIME_FOR_A_CALL: Duration = Duration::from_millis(10);

/// Reads the settings that a waiter's limiter gets. They may change while it waits, so each call
/// reads them.
pub(crate) type ReadSetUp = Arc<dyn Fn() -> Option<SetUp> + Send + Sync>;

pub(in crate::queue) struct Waiter {
    pub(in crate::queue) permits: u32,
    pub(in crate::queue) set_up: Option<ReadSetUp>,
    /// The runtime that it joined on; `None` before it has joined.
    pub(in crate::queue) runtime: Option<runtime::Id>,
    /// When it joined the queue.
    pub(in crate::queue) joined: Option<Instant>,
    /// When it gives up.
    pub(in crate::queue) until: Option<Instant>,
    /// Lower than those of the waiters that arrived later.
    pub(in crate::queue) sequence: u64,
    pub(in crate::queue) answer: oneshot::Sender<Result<Grant>>,
    /// Whether it left while its call was in flight. The same request may have joined again since,
    /// with the same sequence number.
    pub(in crate::queue) has_left: bool,
    pub(in crate::queue) while_away: WhileAway,
    pub(in crate::queue) queue_time: QueueTime,
}

impl Waiter {
    /// A waiter that does not stay through outages, with no set-up and no time limit.
    #[cfg(test)]
    pub(super) fn new(permits: u32, sequence: u64, answer: oneshot::Sender<Result<Grant>>) -> Self {
        Self {
            permits,
            set_up: None,
            runtime: None,
            joined: None,
            until: None,
            sequence,
            answer,
            has_left: false,
            while_away: WhileAway::Fail,
            queue_time: QueueTime::default(),
        }
    }

    pub(in crate::queue) fn substitute(&self) -> Option<&Arc<dyn Substitute>> {
        match &self.while_away {
            WhileAway::Ask(substitute) => Some(substitute),
            WhileAway::Fail | WhileAway::Stay => None,
        }
    }

    /// Whether it keeps its place while the store is away.
    pub(super) fn stays(&self) -> bool {
        self.while_away.stays()
    }

    /// The latest time to ask for it.
    pub(super) fn last_chance(&self) -> Option<Instant> {
        self.until?.checked_sub(TIME_FOR_A_CALL)
    }

    /// Whether it waits longer than `until`, unless it is served or dropped.
    pub(super) fn stays_for(&self, until: Option<Instant>) -> bool {
        match (self.until, until) {
            (Some(its_own), Some(until)) => its_own > until,
            _ => true,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }
}
