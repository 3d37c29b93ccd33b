//! How long a server takes to answer, and so how long a silent connection is tolerated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A server that forks or runs another client's slow command is silent for up to this long, too.
const SHORTEST: Duration = Duration::from_millis(250);
pub(super) const LONGEST: Duration = Duration::from_millis(500);

/// The smoothed round-trip time.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// In µs; 0 if unknown.
    smoothed: AtomicU64,
}

impl RoundTrip {
    pub(super) fn learn(&self, took: Duration) {
        // One delayed answer says little about the next one.
        let took = took.min(self.silence_limit());
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let smoothed = match self.smoothed.load(Ordering::Relaxed) {
            0 => took,
            smoothed => smoothed - smoothed / 8 + took / 8,
        };
        self.smoothed.store(smoothed.max(1), Ordering::Relaxed);
    }

    /// Learns how long the first answer over a new connection took. What was known before may be of another path or
    /// another load: from now on an answer may take at least twice as long.
    pub(super) fn learn_anew(&self, took: Duration) {
        let half = u64::try_from(took.as_micros() / 2).unwrap_or(u64::MAX);
        self.smoothed.fetch_max(half.max(1), Ordering::Relaxed);
    }

    /// A connection is replaced if calls wait and nothing arrives for this long: 8 round trips, at least 250 ms and at
    /// most 500 ms, but never less than 4 round trips.
    pub(super) fn silence_limit(&self) -> Duration {
        let smoothed = match self.smoothed.load(Ordering::Relaxed) {
            0 => return LONGEST,
            smoothed => Duration::from_micros(smoothed),
        };
        (smoothed * 8)
            .clamp(SHORTEST, LONGEST)
            .max(smoothed.saturating_mul(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_after(round_trips: &[Duration]) -> Duration {
        let round_trip = RoundTrip::default();
        for &took in round_trips {
            round_trip.learn(took);
        }
        round_trip.silence_limit()
    }

    #[test]
    fn the_limit_follows_the_round_trips() {
        let ms = Duration::from_millis;
        assert_eq!(limit_after(&[]), ms(500));
        assert_eq!(limit_after(&[ms(1)]), ms(250));
        assert_eq!(limit_after(&[ms(40)]), ms(320));
        assert_eq!(limit_after(&[ms(100)]), ms(500));
        // A connection that is always slow is not a silent one.
        assert!(limit_after(&[ms(900); 100]) > ms(900));
    }

    #[test]
    fn a_connection_that_is_slow_from_the_start_may_take_twice_as_long_at_once() {
        let ms = Duration::from_millis;
        let round_trip = RoundTrip::default();
        round_trip.learn_anew(ms(1));
        assert_eq!(round_trip.silence_limit(), ms(250));
        round_trip.learn_anew(ms(600));
        assert_eq!(round_trip.silence_limit(), ms(1_200));
    }

    #[test]
    fn one_late_answer_moves_the_limit_little() {
        let ms = Duration::from_millis;
        let mut round_trips = [ms(1); 10];
        round_trips[9] = ms(60_000);
        assert!(limit_after(&round_trips) < ms(300));
    }
}
