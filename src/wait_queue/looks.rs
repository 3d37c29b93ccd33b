//! How often one client has live grants summed, over all its limiters.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Summing takes the server as long as several calls. A client of many limiters, each of which is due, would do it with
/// nearly every call; so it does not more often than this.
const PAUSE: Duration = Duration::from_micros(500);
/// So many looks may come at once after a quiet time.
const AT_ONCE: u32 = 200;

/// A client's looks at the grants.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// When the next one is free, if they came one by one.
    next: Mutex<Option<Instant>>,
}

impl Looks {
    /// Takes a look, where there is one.
    pub(super) fn take(&self, now: Instant) -> bool {
        // Nothing panics while the lock is held.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(PAUSE * (AT_ONCE - 1)).unwrap_or(now);
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
    async fn after_a_quiet_time_many_come_at_once_and_then_one_a_pause() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let looks = Looks::default();
        let taken = |times: u32| (0..times).filter(|_| looks.take(Instant::now())).count();
        assert_eq!(taken(2 * AT_ONCE), AT_ONCE as usize);
        tokio::time::advance(3 * PAUSE).await;
        assert_eq!(taken(10), 3);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(2 * AT_ONCE), AT_ONCE as usize);
    }
}
