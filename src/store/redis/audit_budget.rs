//! How often one client has live grants summed, over all its limiters.

use std::time::Duration;

use tokio::time::Instant;

use crate::lock::Lock;

/// An audit costs the server as much as several calls. A client with many limiters that are due
/// would audit with nearly every call, so two audits are this far apart in the long run.
const PAUSE: Duration = Duration::from_micros(500);
/// The most audits that follow one another after a quiet time.
const BURST: u32 = 200;

/// A client's audits.
#[derive(Debug, Default)]
pub(super) struct AuditBudget {
    /// When the next one is free, if they came one by one.
    next: Lock<Option<Instant>>,
}

impl AuditBudget {
    /// Takes an audit, if the budget has one.
    pub(super) fn take(&self, now: Instant) -> bool {
        let mut next = self.next.lock();
        let earliest = now.checked_sub(PAUSE * (BURST - 1)).unwrap_or(now);
        let free = next.map_or(earliest, |next| next.max(earliest));
        let is_free = free <= now;
        if is_free {
            *next = Some(free + PAUSE);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_quiet_time_a_burst_of_audits_is_allowed_then_one_a_pause() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let budget = AuditBudget::default();
        let taken = |times: u32| (0..times).filter(|_| budget.take(Instant::now())).count();
        assert_eq!(taken(2 * BURST), BURST as usize);
        tokio::time::advance(3 * PAUSE).await;
        assert_eq!(taken(10), 3);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(2 * BURST), BURST as usize);
    }
}
