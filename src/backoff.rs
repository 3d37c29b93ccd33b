//! Pauses between attempts: each is twice as long as the one before, up to a bound.

use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// Makes the next attempt come at once, and the first pause after it.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn restart(&mut self) {
        self.next = Duration::ZERO;
    }

    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).clamp(self.first, self.longest);
        pause
    }
}

/// Between half the pause and all of it, so that many clients do not return at the same moment.
/// `random` is from 0 to 1.
pub(crate) fn shortened(pause: Duration, random: f64) -> Duration {
    pause.mul_f64(0.5 + random / 2.0)
}

/// From 0 to 1.
pub(crate) fn random() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(backoff: &mut Backoff) -> [u128; 7] {
        std::array::from_fn(|_| backoff.next_pause().as_millis())
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew_after_a_success() {
        let [first, longest] = [10, 50].map(Duration::from_millis);
        let mut backoff = Backoff::new(first, longest);
        assert_eq!(pauses(&mut backoff), [10, 20, 40, 50, 50, 50, 50]);
        for _ in 0..2 {
            backoff.restart();
            assert_eq!(pauses(&mut backoff), [0, 10, 20, 40, 50, 50, 50]);
        }
    }

    #[test]
    fn a_pause_is_shortened_by_half_at_most() {
        let pause = Duration::from_millis(40);
        assert_eq!(shortened(pause, 0.0), pause / 2);
        assert_eq!(shortened(pause, 1.0), pause);
        let random = random();
        assert!((0.0..=1.0).contains(&random), "{random}");
    }
}
