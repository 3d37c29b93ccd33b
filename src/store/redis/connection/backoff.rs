//! How long to wait between attempts to connect.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(400);

/// Pauses that double, each shortened at random, so that many clients do not come back at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST }
    }

    pub(super) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Between half the pause and all of it.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        pause.mul_f64(0.5 + random / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew_after_a_success() {
        let mut backoff = Backoff::new();
        let mut expected = FIRST;
        for _ in 0..20 {
            let pause = backoff.next_pause();
            assert!(expected / 2 <= pause && pause <= expected, "{pause:?}");
            expected = (expected * 2).min(LONGEST);
        }
        backoff.reset();
        assert!(backoff.next_pause() <= FIRST);
    }
}
