//! When the grants of a limiter were last audited.

use std::time::Duration;

use tokio::time::Instant;

use super::audit_budget::AuditBudget;
use crate::window::Answer;

/// Summing a grant takes the server less than a microsecond, so a client's audits cost it a two-thousandth of its time.
const PAUSE_PER_GRANT: Duration = Duration::from_millis(1);
/// The pause before a limiter with too many grants is tried again. An audit of it takes longer, and only one client
/// audits it at a time.
const PAUSE_OF_LARGE: Duration = Duration::from_secs(5);

/// A client has the grants of a limiter summed now and then, because only the sum shows what a peer's retry or release
/// did to the permits left. It costs the server time, so not each call does it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Audit {
    /// The rate of the last audit.
    pub(super) rate: Option<i64>,
    due: Option<Instant>,
}

impl Audit {
    /// The rate at which the grants were last summed, unless an audit is due and the budget allows it.
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
        let pause = if answer.audit_due {
            PAUSE_OF_LARGE
        } else {
            // At most 100 grants are summed.
            PAUSE_PER_GRANT * answer.counted.clamp(1, 1_000) as u32
        };
        self.due = Some(Instant::now() + pause);
    }
}
