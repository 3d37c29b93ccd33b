//! When the live grants of a limiter were summed last.

use std::time::Duration;

use tokio::time::Instant;

use super::audit_budget::AuditBudget;
use crate::model::Answer;

/// A client has the grants of a limiter summed now and then, because only the sum shows what a peer's retry or release
/// did to the permits left; not in each call, because it takes time on the server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Audit {
    /// The rate of the last audit.
    pub(super) rate: Option<i64>,
    due: Option<Instant>,
}

impl Audit {
    /// The rate at which the grants were summed, unless an audit is due and the budget has one left for it.
    pub(super) fn audited_rate(&self, budget: &AuditBudget) -> Option<i64> {
        let due = self.due?;
        let now = Instant::now();
        if now < due || !budget.take(now) {
            self.rate
        } else {
            None
        }
    }

    pub(super) fn note(&mut self, audited_rate: Option<i64>, answer: &Answer) {
        if audited_rate == Some(answer.rate) {
            return; // nothing was summed
        }
        self.rate = Some(answer.rate);
        if answer.counted == 0 && answer.balance < answer.rate {
            // More than the rate is in use, which each call has to sum.
            self.due = None;
            return;
        }
        // Summing a grant takes the server less than a microsecond, so this is a five-hundredth of its time.
        let grants = answer.counted.clamp(1, u64::from(u32::MAX)) as u32;
        let pause = Duration::from_micros(100) * grants;
        self.due = Some(Instant::now() + pause);
    }
}
