//! How many permits the next lease has.

use std::time::Duration;

use tokio::time::Instant;

/// The permits that callers were granted recently, counted in slices of time as long as a lease.
#[derive(Debug)]
pub(super) struct Demand {
    slice: Duration,
    started: Instant,
    current: Uses,
    before: Uses,
    /// Before this time no lease is wanted.
    paused_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    permits: u64,
    /// By how many calls they were granted; each permit taken of a lease counts as one.
    times: u64,
}

/// The demand of a slice is judged when this part of it has passed, at the earliest: so leases grow
/// fourfold at most.
const SHORTEST_PART: f64 = 0.25;

/// A lease has this many times the demand, because demand is uneven.
const MARGIN: f64 = 1.25;

/// The fewest permits of a lease: fewer cost no more calls without a lease.
const FEWEST: f64 = 2.0;

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            slice: Duration::from_millis(1),
            started: now,
            current: Uses::default(),
            before: Uses::default(),
            paused_until: None,
        }
    }

    /// Sets the length of a lease, which is that of a slice.
    pub(super) fn set_slice(&mut self, slice: Duration) {
        self.slice = slice.max(Duration::from_millis(1));
    }

    /// Notes permits that callers were granted.
    pub(super) fn note(&mut self, permits: u64, times: u64, now: Instant) {
        self.roll(now);
        self.current.permits += permits;
        self.current.times += times;
    }

    /// Makes no lease wanted for this long.
    pub(super) fn pause(&mut self, pause: Duration, now: Instant) {
        self.paused_until = self.paused_until.max(now.checked_add(pause));
    }

    /// How many permits a lease that begins now should have. `None` if this slice and the one
    /// before together had fewer than `fewest_uses`.
    pub(super) fn wanted(&mut self, fewest_uses: u64, now: Instant) -> Option<u32> {
        self.roll(now);
        if self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        if self.before.times + self.current.times < fewest_uses {
            return None;
        }
        let passed = now.saturating_duration_since(self.started).as_secs_f64();
        let part = (passed / self.slice.as_secs_f64()).clamp(SHORTEST_PART, 1.0);
        let permits = (self.current.permits as f64 / part).max(self.before.permits as f64);
        let wanted = (permits * MARGIN).ceil();
        (wanted >= FEWEST).then_some(wanted as u32)
    }

    /// Begins a new slice if the time of the current one is over.
    fn roll(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.started);
        if passed < self.slice {
            return;
        }
        let current = std::mem::take(&mut self.current);
        (self.before, self.started) = if passed < self.slice * 2 {
            (current, self.started + self.slice)
        } else {
            (Uses::default(), now)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(100);

    fn demand() -> (Demand, Instant) {
        let now = Instant::now();
        let mut demand = Demand::new(now);
        demand.set_slice(SLICE);
        (demand, now)
    }

    #[test]
    fn a_request_that_comes_alone_wants_no_lease() {
        let (mut demand, start) = demand();
        demand.note(1_000, 1, start);
        assert_eq!(demand.wanted(2, start), None);
        // The next one comes when the first is forgotten.
        demand.note(1_000, 1, start + 2 * SLICE);
        assert_eq!(demand.wanted(2, start + 2 * SLICE), None);
        assert_eq!(demand.wanted(2, start + 5 * SLICE), None);
    }

    #[test]
    fn a_lease_has_the_permits_granted_in_a_slice_and_a_quarter_more() {
        let (mut demand, start) = demand();
        for i in 0..10 {
            demand.note(1, 1, start + i * SLICE / 10);
        }
        assert_eq!(demand.wanted(2, start + SLICE), Some(13));
        assert_eq!(demand.wanted(2, start + SLICE + SLICE / 2), Some(13));
        assert_eq!(demand.wanted(2, start + 2 * SLICE), None);
    }

    #[test]
    fn at_a_sudden_demand_leases_grow_fourfold_at_most() {
        let (mut demand, start) = demand();
        demand.note(1, 1, start);
        demand.note(7, 1, start);
        assert_eq!(demand.wanted(2, start), Some(40));
        assert_eq!(demand.wanted(2, start + SLICE / 2), Some(20));
    }

    #[test]
    fn after_too_few_uses_no_lease_is_wanted() {
        let (mut demand, start) = demand();
        demand.note(7, 7, start);
        demand.note(8, 8, start + SLICE);
        assert_eq!(demand.wanted(16, start + SLICE), None);
        demand.note(1, 1, start + SLICE);
        assert_eq!(demand.wanted(16, start + SLICE), Some(45));
    }

    #[test]
    fn while_leases_are_paused_none_is_wanted() {
        let (mut demand, start) = demand();
        demand.note(8, 2, start);
        demand.pause(SLICE / 2, start);
        demand.pause(SLICE / 4, start);
        assert_eq!(demand.wanted(2, start + SLICE * 2 / 5), None);
        assert_eq!(demand.wanted(2, start + SLICE / 2), Some(20));
        demand.pause(Duration::MAX, start); // a pause beyond the clock's range is none
        assert_eq!(demand.wanted(2, start + SLICE / 2), Some(20));
    }
}
