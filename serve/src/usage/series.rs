//! Counts over the last five minutes, in slots of five seconds.

use std::collections::VecDeque;

use redisson_rate_limiter::RequestResult;
use serde::Serialize;

/// The number of ticks in a slot; a tick is a second.
const TICKS: u32 = 5;
/// The most slots that a series keeps.
const SLOTS: usize = 60;
const SLOTS_OF_A_MINUTE: usize = 12;
/// The number of complete slots over which a rate is measured.
const SLOTS_OF_A_RATE: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Series {
    /// The counts since the server started.
    total: Counts,
    /// The ticks of the current slot.
    ticks: u32,
    /// The counts of each slot; the last element is the current slot.
    slots: VecDeque<Counts>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    pub(super) granted: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    #[serde(skip)]
    pub(super) unmatched: u64,
}

/// The rates of requests, in requests a second.
#[derive(Debug, PartialEq)]
pub(super) struct PerSecond {
    pub(super) decided: f64,
    pub(super) unmatched: f64,
}

impl Series {
    pub(super) fn note(&mut self, counts: Counts) {
        if self.slots.is_empty() {
            self.slots.push_back(Counts::default());
        }
        self.total.add(counts);
        if let Some(slot) = self.slots.back_mut() {
            slot.add(counts);
        }
    }

    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks < TICKS {
            return;
        }
        self.ticks = 0;
        if self.slots.len() == SLOTS {
            self.slots.pop_front();
        }
        self.slots.push_back(Counts::default());
    }

    pub(super) fn total(&self) -> Counts {
        self.total
    }

    pub(super) fn slots(&self) -> Vec<Counts> {
        self.slots.iter().copied().collect()
    }

    pub(super) fn last_minute(&self) -> Counts {
        self.sum(0, SLOTS_OF_A_MINUTE + 1)
    }

    pub(super) fn per_second(&self) -> PerSecond {
        let complete = self.slots.len().saturating_sub(1).min(SLOTS_OF_A_RATE);
        let (counts, seconds) = if complete == 0 {
            (self.sum(0, 1), self.ticks.max(1))
        } else {
            (self.sum(1, complete), TICKS * complete as u32)
        };
        let decided = counts.granted + counts.denied + counts.failed;
        let rate = |count: u64| count as f64 / f64::from(seconds);
        PerSecond {
            decided: rate(decided),
            unmatched: rate(counts.unmatched),
        }
    }

    /// The sum of the `slots` slots that come before the last `skipped` ones.
    fn sum(&self, skipped: usize, slots: usize) -> Counts {
        let mut sum = Counts::default();
        for counts in self.slots.iter().rev().skip(skipped).take(slots) {
            sum.add(*counts);
        }
        sum
    }
}

impl Counts {
    pub(super) const UNMATCHED: Self = Self {
        granted: 0,
        denied: 0,
        failed: 0,
        unmatched: 1,
    };

    pub(super) fn of(result: RequestResult) -> Self {
        let mut counts = Self::default();
        match result {
            RequestResult::Granted(_) => counts.granted = 1,
            RequestResult::Denied(_) => counts.denied = 1,
            _ => counts.failed = 1,
        }
        counts
    }

    fn add(&mut self, other: Self) {
        self.granted += other.granted;
        self.denied += other.denied;
        self.failed += other.failed;
        self.unmatched += other.unmatched;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Counts {
        Counts::of(RequestResult::TimedOut)
    }

    fn slot(series: &mut Series) {
        for _ in 0..TICKS {
            series.tick();
        }
    }

    #[test]
    fn a_series_has_the_last_five_minutes() {
        let mut series = Series::default();
        for _ in 0..SLOTS + 10 {
            series.note(failed());
            slot(&mut series);
        }
        let slots = series.slots();
        assert_eq!(slots.len(), SLOTS);
        assert!(slots[..SLOTS - 1].iter().all(|slot| slot.failed == 1));
        assert_eq!(series.total().failed, SLOTS as u64 + 10);
        assert_eq!(series.last_minute().failed, SLOTS_OF_A_MINUTE as u64);
    }

    #[test]
    fn the_rate_is_measured_over_the_last_two_complete_slots() {
        let mut series = Series::default();
        assert_eq!(series.per_second().decided, 0.0);
        series.note(failed());
        assert_eq!(series.per_second().decided, 1.0);
        slot(&mut series);
        assert_eq!(series.per_second().decided, 0.2);
        slot(&mut series);
        series.note(failed());
        assert_eq!(series.per_second().decided, 0.1);
        slot(&mut series);
        slot(&mut series);
        assert_eq!(series.per_second().decided, 0.1);
        slot(&mut series);
        assert_eq!(series.per_second().decided, 0.0);
    }
}
