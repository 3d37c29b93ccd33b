//! How long a server takes to answer: how long a silent connection is tolerated, and which attempts
//! can be answered in their time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The shortest silence limit: a server that forks, or runs a slow command of another client, is
/// silent for up to this long.
const SHORTEST: Duration = Duration::from_millis(250);
/// The longest silence limit, unless round trips are slow.
pub(super) const LONGEST: Duration = Duration::from_millis(500);

/// How much later than usual an answer is read by a busy machine.
const LATENESS: Duration = Duration::from_millis(10);

/// The smoothed round-trip time.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// In µs; 0 if unknown.
    smoothed: AtomicU64,
    /// By how much round trips differ from it, smoothed, in µs.
    deviation: AtomicU64,
}

/// What is known of the answers of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The connection is replaced after this much silence.
    pub(crate) silence_limit: Duration,
    /// How long an answer takes, if it is late as well.
    pub(crate) answer_time: Duration,
}

impl RoundTrip {
    pub(super) fn learn(&self, took: Duration) {
        // One delayed answer says little about the next one.
        let took = micros(took.min(self.silence_limit()));
        let (smoothed, deviation) = match self.smoothed.load(Ordering::Relaxed) {
            0 => (took, took / 2),
            smoothed => {
                let deviation = self.deviation.load(Ordering::Relaxed);
                let difference = smoothed.abs_diff(took);
                (
                    smoothed - smoothed / 8 + took / 8,
                    deviation - deviation / 4 + difference / 4,
                )
            }
        };
        self.smoothed.store(smoothed.max(1), Ordering::Relaxed);
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// Learns how long the first answer over a new connection took. What was known before may be of
    /// another path or another load: from now on an answer may take at least twice as long.
    pub(super) fn learn_anew(&self, took: Duration) {
        let took = micros(took);
        self.smoothed
            .fetch_max((took / 2).max(1), Ordering::Relaxed);
        self.deviation.fetch_max(took / 8, Ordering::Relaxed);
    }

    fn smoothed(&self) -> Duration {
        Duration::from_micros(self.smoothed.load(Ordering::Relaxed))
    }

    pub(super) fn pace(&self) -> Pace {
        let deviation = Duration::from_micros(self.deviation.load(Ordering::Relaxed));
        Pace {
            silence_limit: self.silence_limit(),
            answer_time: self.smoothed() + 4 * deviation + LATENESS,
        }
    }

    /// The latest time to send what is to be answered by `deadline`.
    pub(super) fn send_by(&self, deadline: Instant) -> Instant {
        deadline.checked_sub(self.smoothed()).unwrap_or(deadline)
    }

    /// Whether what is sent now may be answered by `deadline`. What has the whole response timeout
    /// is sent even if the answers before took longer: otherwise a server that is faster by now is
    /// never noticed.
    pub(super) fn fits(&self, deadline: Instant, response_timeout: Duration) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        left > self.smoothed() || left >= response_timeout / 16 * 15
    }

    /// Whether what is sent now may be answered by `deadline` if it takes two round trips.
    pub(super) fn fits_twice(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        left >= 2 * self.pace().answer_time
    }

    /// A connection is replaced if calls wait and nothing arrives for this long: 8 round trips, at
    /// least 250 ms and at most 500 ms, but never less than 4 round trips.
    pub(super) fn silence_limit(&self) -> Duration {
        let smoothed = self.smoothed();
        if smoothed.is_zero() {
            return LONGEST;
        }
        (smoothed * 8)
            .clamp(SHORTEST, LONGEST)
            .max(smoothed.saturating_mul(4))
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
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
    fn a_connection_slow_from_the_start_may_take_twice_as_long_at_once() {
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

    #[test]
    fn an_answer_is_given_the_time_that_answers_take_and_differ_by() {
        let ms = Duration::from_millis;
        let answer_time_after = |round_trips: &[u64]| {
            let round_trip = RoundTrip::default();
            for &took in round_trips {
                round_trip.learn(ms(took));
            }
            round_trip.pace().answer_time
        };
        assert_eq!(answer_time_after(&[]), LATENESS);
        assert_eq!(answer_time_after(&[40]), ms(40 + 4 * 20) + LATENESS);
        let steady = answer_time_after(&[40; 30]);
        assert!(steady >= ms(50) && steady < ms(51), "{steady:?}");
        assert!(answer_time_after(&[40, 40, 40, 80]) > steady);
        let round_trip = RoundTrip::default();
        round_trip.learn_anew(ms(600));
        assert_eq!(round_trip.pace().answer_time, ms(600) + LATENESS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_time_for_its_answer_is_sent_only_with_all_its_time() {
        let ms = Duration::from_millis;
        let fits = |smoothed, left| {
            let round_trip = RoundTrip::default();
            if smoothed > 0 {
                round_trip.learn(ms(smoothed));
            }
            round_trip.fits(Instant::now() + ms(left), ms(160))
        };
        assert!(fits(0, 1) && !fits(0, 0));
        assert!(fits(40, 41) && !fits(40, 40));
        assert!(fits(200, 150) && !fits(200, 149));
    }
}
