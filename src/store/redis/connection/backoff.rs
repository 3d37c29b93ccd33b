//! The pauses between attempts to connect.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
/// The pauses are longer for a server that cannot be connected to than for one that accepts connections and loses them.
const LONGEST_AFTER_FAILURES: Duration = Duration::from_millis(400);
const LONGEST_AFTER_LOSSES: Duration = Duration::from_millis(50);

/// Pauses that double, each shortened at random, so that many clients do not return at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    start: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Between failed attempts to connect.
    pub(super) fn after_failures() -> Self {
        Self::new(FIRST, LONGEST_AFTER_FAILURES)
    }

    /// Between connections that were set up and soon lost: the first one is replaced at once.
    pub(super) fn after_losses() -> Self {
        Self::new(Duration::ZERO, LONGEST_AFTER_LOSSES)
    }

    fn new(start: Duration, longest: Duration) -> Self {
        Self {
            start,
            longest,
            next: start,
        }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.start;
    }

    /// Between half the pause and all of it.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).clamp(FIRST, self.longest);
        let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        pause.mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expect(backoff: &mut Backoff, pauses: &[u64]) {
        for &millis in pauses {
            let (longest, pause) = (Duration::from_millis(millis), backoff.next_pause());
            assert!(longest / 2 <= pause && pause <= longest, "{pause:?}");
        }
    }

    #[test]
    fn after_failures_pauses_double_up_to_the_longest_and_start_anew_after_a_success() {
        let mut backoff = Backoff::after_failures();
        for _ in 0..2 {
            expect(&mut backoff, &[10, 20, 40, 80, 160, 320, 400, 400, 400]);
            backoff.reset();
        }
    }

    #[test]
    fn after_losses_there_is_no_pause_at_first_and_none_is_longer_than_50_ms() {
        let mut backoff = Backoff::after_losses();
        for _ in 0..2 {
            expect(&mut backoff, &[0, 10, 20, 40, 50, 50, 50]);
            backoff.reset();
        }
    }
}
