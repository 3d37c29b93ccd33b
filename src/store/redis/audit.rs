//! When the grants of a limiter were last audited.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::audit_budget::AuditBudget;
use crate::window::Acquired;

/// The pause for each grant that was summed. That takes the server less than a microsecond, so the
/// audits of a limiter by one client cost less than a thousandth of the server's time.
const PAUSE_PER_GRANT: Duration = Duration::from_millis(1);
/// The pause before a limiter with too many grants is tried again. An audit of it takes longer, and
/// only one client audits it at a time.
const PAUSE_OF_LARGE: Duration = Duration::from_secs(5);

/// A client has the grants of a limiter summed now and then, because only the sum shows what a
/// peer's retry or release did to the permits left. It costs the server time, so not each call does
/// it.
///
/// Calls read and write it without a lock. The time is written before the rate, so a call that
/// reads a rate reads the time of its audit or of a later one.
#[derive(Debug)]
pub(super) struct Audit {
    /// The rate of the last audit, or [`NONE`].
    rate: AtomicI64,
    start: Instant,
    /// When the next one is due, in ns since the start.
    due: AtomicU64,
}

/// There was no audit.
const NONE: i64 = i64::MIN;

impl Default for Audit {
    fn default() -> Self {
        Self {
            rate: AtomicI64::new(NONE),
            start: Instant::now(),
            due: AtomicU64::new(0),
        }
    }
}

impl Audit {
    /// The rate of the last audit.
    pub(super) fn rate(&self) -> Option<i64> {
        let rate = self.rate.load(Ordering::Acquire);
        (rate != NONE).then_some(rate)
    }

    /// The rate at which the grants were last summed, unless an audit is due and the budget allows
    /// it.
    pub(super) fn audited_rate(&self, budget: &AuditBudget) -> Option<i64> {
        let rate = self.rate()?;
        let now = Instant::now();
        let is_due = self.nanos(now) >= self.due.load(Ordering::Relaxed);
        (!is_due || !budget.take(now)).then_some(rate)
    }

    /// Makes the next calls be for this audited rate.
    #[cfg(test)]
    pub(super) fn set(&self, audited_rate: Option<i64>) {
        self.due.store(u64::MAX, Ordering::Relaxed);
        self.rate
            .store(audited_rate.unwrap_or(NONE), Ordering::Release);
    }

    fn nanos(&self, time: Instant) -> u64 {
        // 584 years fit.
        time.saturating_duration_since(self.start).as_nanos() as u64
    }

    pub(super) fn note(&self, audited_rate: Option<i64>, answer: &Acquired) {
        if let Some(pause) = pause_after(audited_rate, answer) {
            let due = self.nanos(Instant::now() + pause);
            self.due.store(due, Ordering::Relaxed);
            self.rate.store(answer.rate, Ordering::Release);
        }
    }
}

/// The time until the grants are summed again after this answer; `None` if the call did not ask for
/// their sum.
pub(super) fn pause_after(audited_rate: Option<i64>, answer: &Acquired) -> Option<Duration> {
    if answer.found || audited_rate == Some(answer.rate) {
        return None;
    }
    Some(if answer.audit_due {
        PAUSE_OF_LARGE
    } else {
        // A script sums at most `BOUNDS.most_summed` grants. What a reply claims is bounded too.
        PAUSE_PER_GRANT * answer.counted.clamp(1, 1_000) as u32
    })
}
