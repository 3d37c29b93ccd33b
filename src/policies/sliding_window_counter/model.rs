//! A window made of periods, with a counter for each: it slides by a period at a time.
//!
//! The periods are counted on from the first one's start, and a counter is named by its period's last millisecond. A moment on
//! the edge of two periods belongs to the one that ends there; the very first moment belongs to the period that it begins.

use std::time::Duration;

use super::{Lengths, SlidingWindowCounter};
use crate::error::{Error, Result};
use crate::keys::sibling;
use crate::permit::CallId;
use crate::policies::algorithm::{Evaluation, Model, State, Unusable, at_least_one, div_ceil};
use crate::policies::counters::Counters;
#[cfg(feature = "redis")]
use crate::policies::kind::Kind;
use crate::policies::target_keys::TargetKeys;
use crate::rate::whole_millis;
use crate::window::{At, Timed};

/// A decision reads this many counters at most, and after a change of the period those of before too: together no more
/// than [`MOST_TOUCHED`](crate::policies::algorithm::MOST_TOUCHED).
const MOST_PERIODS: i64 = 500;
/// In ms. A time of today and several windows are together an exact Lua number.
const LONGEST_WINDOW: i64 = 1 << 50;
/// How much longer than the start the counters live, in ms.
const COUNTERS_OUTLIVE: i64 = 16;

/// The start and the counters of one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Periods {
    start: Timed<i64>,
    /// By the periods' ends.
    counters: Counters,
}

impl State for Periods {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.start.drop_expired(server);
        self.counters.drop_expired(server);
        self.start.get().is_some() || !self.counters.is_empty()
    }

    fn has_own_key(&self) -> bool {
        false
    }

    fn close(self: Box<Self>, keys: &mut TargetKeys) {
        keys.start = self.start;
        keys.counters = self.counters;
    }
}

/// The last millisecond of the period that `now` is in.
#[inline]
fn current_end(start: i64, period: i64, now: i64) -> i64 {
    start + div_ceil(now - start, period).max(1) * period - 1
}

/// The periods as they stand at `now`.
struct Open {
    limit: i64,
    now: i64,
    start: i64,
    /// The end of the current one.
    current: i64,
    /// The window holds periods that end after it.
    floor: i64,
    lengths: Lengths,
    before: Option<Series>,
}

/// Periods of another length whose counters count on.
struct Series {
    newest: i64,
    floor: i64,
    period: i64,
}

impl Open {
    #[inline]
    fn holds(&self, last: i64) -> bool {
        let is_own = last <= self.current && (self.current - last) % self.lengths.period == 0;
        let is_before = |before: &Series| {
            before.floor < last
                && last <= before.newest
                && (before.newest - last) % before.period == 0
        };
        last > self.floor && (is_own || self.before.as_ref().is_some_and(is_before))
    }

    /// The ends and counts of what the window holds, the oldest first.
    #[inline]
    fn held<'a>(&'a self, state: &'a Periods) -> impl Iterator<Item = (i64, i64)> + 'a {
        let newest = self.before.as_ref().map_or(self.current, |b| b.newest);
        let counters = state.counters.between(self.floor, newest.max(self.current));
        counters.filter(|&(last, _)| self.holds(last))
    }

    /// Milliseconds until the window no longer holds the period that ends then: until the first one begins that is
    /// current without it.
    #[inline]
    fn until_out(&self, last: i64) -> i64 {
        let Lengths { window, period } = self.lengths;
        let current_then = div_ceil(last + window + 1 - self.start, period);
        self.start + (current_then - 1) * period + 1 - self.now
    }

    #[inline]
    fn evaluate(&self, state: &Periods, cost: i64) -> Evaluation {
        let limit = self.limit;
        // What a script returns may be hundreds of counters of 2^53.
        let (mut used, mut newest) = (0_i128, None);
        for (last, count) in self.held(state) {
            used += i128::from(count);
            if count != 0 {
                newest = Some(last);
            }
        }
        // Counters that a peer took below 0 give no more than the limit.
        let remaining = (i128::from(limit) - used).clamp(0, i128::from(limit)) as i64;
        if cost <= remaining {
            let newest = newest.unwrap_or(self.current).max(self.current);
            return Evaluation {
                granted: true,
                limit,
                remaining: remaining - cost,
                retry_after: 0,
                reset: self.until_out(newest),
                delay: 0,
            };
        }
        let mut left = used;
        let fits_without = self.held(state).find(|(_, count)| {
            left -= i128::from(*count);
            i128::from(limit - cost) >= left
        });
        let newest = newest.unwrap_or(self.current);
        Evaluation {
            granted: false,
            limit,
            remaining,
            retry_after: self.until_out(fits_without.map_or(newest, |(last, _)| last)),
            reset: self.until_out(newest),
            delay: 0,
        }
    }

    /// Has the counters live as long as the window needs them. The start's time to live shows whether they do: with the
    /// first request of the newest period it was two windows.
    #[inline]
    fn keep(&self, state: &mut Periods, server: i64) {
        let Lengths { window, period } = self.lengths;
        // Half a period more than it is old at most: clocks may differ a little.
        let slack = (period + period / 2).min(window);
        let needed =
            |newest: i64| server + newest.min(self.current) - slack + 2 * window - self.now;
        let left = state.start.expires_at();
        if left.is_none_or(|at| at >= needed(self.current)) {
            return; // found without looking at the counters
        }
        let Some((newest, _)) = self.held(state).last() else {
            return;
        };
        let end = needed(newest);
        if state.start.outlive(end) {
            for (last, counter) in state.counters.iter_mut() {
                if self.holds(last) {
                    counter.outlive(end + COUNTERS_OUTLIVE);
                }
            }
        }
    }

    #[inline]
    fn charge(&self, state: &mut Periods, server: i64, cost: i64) {
        self.keep(state, server);
        let counter = state.counters.of(self.current);
        let is_first = state.start.get().is_none() || counter.get().is_none();
        *counter.get_or_set(|| 0) += cost;
        if is_first {
            let end = state.start.life(server, server + 2 * self.lengths.window);
            counter.expire_at(end + COUNTERS_OUTLIVE);
            state.start.set(self.start);
            state.start.expire_at(end);
        }
    }
}

impl SlidingWindowCounter {
    #[inline]
    fn lengths(&self) -> Lengths {
        // They were validated, so that they fit.
        Lengths {
            window: self.window.as_millis() as i64,
            period: self.period.as_millis() as i64,
        }
    }

    #[inline]
    fn open(&self, state: &Periods, now: i64) -> Open {
        let lengths = self.lengths();
        let Lengths { window, period } = lengths;
        let new_start = || self.starts.of(window, now);
        let start = state.start.get().copied().unwrap_or_else(new_start);
        let current = current_end(start, period, now);
        let floor = current - window;
        Open {
            limit: i64::from(self.limit),
            now,
            start,
            current,
            floor,
            lengths,
            before: self.before.map(|before| Series {
                newest: current_end(start, before.period, now),
                // Its keys have gone after two windows of that rule.
                floor: floor.max(now - 2 * before.window - COUNTERS_OUTLIVE - 1),
                period: before.period,
            }),
        }
    }
}

impl Model for SlidingWindowCounter {
    type State = Periods;

    #[cfg(feature = "redis")]
    const KIND: Kind = Kind::SlidingWindowCounter;
    const HAS_OWN_KEY: bool = false;

    fn validate(&self) -> Result<()> {
        let refuse = |argument, reason| Err(Error::InvalidArgument { argument, reason });
        at_least_one(self.limit, "limit")?;
        let window = whole_millis(self.window, "window")?;
        let period = whole_millis(self.period, "period")?;
        if window > LONGEST_WINDOW {
            return refuse("window", "must be at most 2^50 ms");
        }
        if window % period != 0 {
            return refuse("window", "must be a whole number of periods");
        }
        if window / period > MOST_PERIODS {
            return refuse("period", "must be longer: a window has at most 500 periods");
        }
        self.starts.validate(window, "window")
    }

    fn limit(&self) -> Option<i64> {
        Some(i64::from(self.limit))
    }

    fn touches(&self, _cost: u32) -> u32 {
        let Lengths { window, period } = self.lengths();
        let before = self.before.map_or(0, |before| {
            window.min(2 * before.window + COUNTERS_OUTLIVE + 1) / before.period + 1
        });
        // Each window was validated, so that it has few periods.
        (window / period + before) as u32
    }

    fn keys(&self, target: &str) -> Vec<String> {
        vec![sibling(target, "-st"), sibling(target, "-")]
    }

    fn open(keys: &mut TargetKeys) -> Option<Periods> {
        Some(Periods {
            start: std::mem::take(&mut keys.start),
            counters: std::mem::take(&mut keys.counters),
        })
    }

    #[cfg(feature = "redis")]
    fn numbers(&self) -> Vec<i64> {
        let Lengths { window, period } = self.lengths();
        let unit = self.starts.unit(window);
        let before = self.before.map_or([0, 0], |b| [b.window, b.period]);
        [&[i64::from(self.limit), window, period, unit], &before[..]].concat()
    }

    fn after(&self, before: &Self) -> (Self, Duration) {
        let period = self.lengths().period;
        let other_periods = [Some(before.lengths()), before.before];
        let mut other_periods = other_periods.into_iter().flatten();
        let moved = Self {
            before: other_periods.find(|lengths| lengths.period != period),
            ..*self
        };
        (moved, self.window.saturating_add(before.window))
    }

    #[cfg(feature = "redis")]
    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<Periods> {
        let (&start, counters) = numbers.split_first()?;
        let mut state = Periods::default();
        state.start.set(start);
        for counter in counters.chunks(2) {
            let &[last, count] = counter else {
                return None;
            };
            state.counters.of(last).set(count);
        }
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Periods, at: At, cost: i64) -> Result<Evaluation, Unusable> {
        Ok(self.open(state, at.now).evaluate(state, cost))
    }

    #[inline]
    fn charge(&self, state: &mut Periods, at: At, _call_id: &CallId, cost: i64) {
        self.open(state, at.now).charge(state, at.server, cost);
    }

    fn keep(&self, state: &mut Periods, at: At) {
        self.open(state, at.now).keep(state, at.server);
    }

    // Opens the periods once for both steps.
    #[inline]
    fn check(
        &self,
        state: &mut Periods,
        at: At,
        _call_id: &CallId,
        cost: i64,
    ) -> Result<Evaluation, Unusable> {
        let open = self.open(state, at.now);
        let evaluation = open.evaluate(state, cost);
        if evaluation.granted {
            open.charge(state, at.server, cost);
        } else {
            open.keep(state, at.server);
        }
        Ok(evaluation)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::{share_a_slot, sibling};
    use crate::policies::algorithm::MOST_TOUCHED;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, compare, show_key, timed, times_to_live,
    };

    fn policy(limit: u32, window: u64, period: u64) -> SlidingWindowCounter {
        let (window, period) = (Duration::from_millis(window), Duration::from_millis(period));
        SlidingWindowCounter::new(limit, window).with_period(period)
    }

    /// Two of such windows are no whole number of TTL_UNIT, so that 16 ms make no difference once rounded up.
    const WINDOWS: [u64; 4] = [50_000, 60_000, 120_000, 150_000];
    const PERIODS: [u64; 5] = [1, 2, 5, 10, 50];

    impl Compared for SlidingWindowCounter {
        fn policies() -> BoxedStrategy<Self> {
            let (windows, periods) = (
                prop::sample::select(&WINDOWS),
                prop::sample::select(&PERIODS),
            );
            (1..30_u32, windows, periods, any::<bool>())
                .prop_map(|(limit, window, periods, is_natural)| {
                    let policy = policy(limit, window, window / periods);
                    if is_natural {
                        policy.with_natural_start()
                    } else {
                        policy
                    }
                })
                .boxed()
        }

        fn states() -> BoxedStrategy<Periods> {
            let starts = prop_oneof![(-300..9_i64).prop_map(|n| n * 1000), -300_000..9_000_i64];
            let counter = (0..300_i64, -3..20_i64, times_to_live());
            let periods = prop::sample::select(&[1_000_i64, 5_000, 6_000, 10_000, 30_000]);
            (
                prop::option::of((starts, times_to_live())),
                periods,
                prop::collection::vec(counter, 0..20),
            )
                .prop_map(|(start, period, counters)| {
                    let (start, time_to_live) = start.map_or((0, None), |s| s);
                    let (start, is_there) = (START + start, start != 0);
                    let mut state = Periods::default();
                    if is_there {
                        state.start = timed(start, time_to_live);
                    }
                    for (place, count, time_to_live) in counters {
                        let last = start + place * period - 1;
                        *state.counters.of(last) = timed(count, time_to_live);
                    }
                    state
                })
                .boxed()
        }

        fn show(state: &Periods, target: &str) -> Keyspace {
            let number = |number: &i64| Content::Text(number.to_string());
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, sibling(target, "-st"), &state.start, number);
            for (last, counter) in state.counters.iter() {
                show_key(
                    &mut keyspace,
                    sibling(target, &format!("-{last}")),
                    counter,
                    number,
                );
            }
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            prop_oneof![1..2_000_i64, (1..30_i64).prop_map(|n| n * 1_000)].boxed()
        }
    }

    #[test]
    fn script_and_model_agree() {
        compare::<SlidingWindowCounter>();
    }

    #[test]
    fn counters_of_any_number_are_summed_exactly() {
        let before = policy(5, 500, 1);
        let (policy, _) = policy(5, 5_000, 10).after(&before);
        let most = 1_i64 << 53;
        for (count, is_granted) in [(most, false), (-most, true)] {
            let counters = (-5_000..1_000).flat_map(|last| [last, count]);
            let numbers: Vec<i64> = [-5_000].into_iter().chain(counters).collect();
            let at = At { now: 0, server: 0 };
            let state = policy.state_from_reply(at, &numbers).unwrap();
            let open = policy.open(&state, 0);
            let summed: i128 = { open.held(&state) }
                .map(|(_, count)| i128::from(count.abs()))
                .sum();
            assert!(summed > i128::from(i64::MAX), "{summed}");
            let evaluation = policy.evaluate(&state, at, 5).unwrap();
            assert_eq!((evaluation.granted, evaluation.remaining), (is_granted, 0));
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let refused = |policy: SlidingWindowCounter| match policy.validate() {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(policy(0, 10, 1)), "limit");
        assert_eq!(refused(policy(1, 0, 1)), "window");
        assert_eq!(refused(policy(1, 10, 0)), "period");
        assert_eq!(refused(policy(1, 10, 3)), "window");
        assert_eq!(refused(policy(1, 5, 10)), "window");
        assert_eq!(refused(policy(1, 501, 1)), "period");
        assert_eq!(refused(policy(1, (1 << 50) + 1, (1 << 50) + 1)), "window");
        assert_eq!(
            refused(policy(1, 1_500, 500).with_natural_start()),
            "window"
        );
        let part_of_a_ms = Duration::from_micros(1_500);
        let whole = Duration::from_millis(3);
        assert_eq!(
            refused(SlidingWindowCounter::new(1, part_of_a_ms).with_period(whole)),
            "window"
        );
        assert_eq!(
            refused(SlidingWindowCounter::new(1, whole).with_period(part_of_a_ms)),
            "period"
        );
        policy(u32::MAX, 500, 1).validate().unwrap();
        policy(1, 1 << 50, 1 << 50).validate().unwrap();
        policy(1, 3_000, 500)
            .with_natural_start()
            .validate()
            .unwrap();
    }

    #[test]
    fn no_change_of_the_periods_has_a_call_read_more_than_it_may() {
        let year = 365 * 24 * 3_600_000;
        let policies = [
            (1, 1),
            (500, 1),
            (1_000, 2),
            (500 * year, year),
            (year, year),
        ];
        let policies = policies.map(|(window, period)| policy(1, window, period));
        for before in &policies {
            for policy in &policies {
                policy.validate().unwrap();
                let changed = policy.after(before).0;
                assert!(changed.touches(1) <= MOST_TOUCHED, "{before} {policy}");
            }
        }
        let changed = policies[3].after(&policies[1]).0;
        assert_eq!(changed.touches(1), 500 + 2 * 500 + 16 + 1 + 1);
    }

    #[test]
    fn the_keys_of_a_target_show_that_its_counters_would_be_in_several_slots() {
        let keys = |target| policy(1, 10, 1).keys(target);
        assert!(share_a_slot(&keys("user:123")));
        assert!(share_a_slot(&keys("a}b")));
        assert!(!share_a_slot(&keys("}b")));
    }
}
