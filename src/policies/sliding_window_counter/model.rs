//! A window made of periods, with a counter for each: it slides by a period at a time.
//!
//! The periods are counted on from the first one's start, and a counter is named by its period's
//! last millisecond. A moment on the edge of two periods belongs to the one that ends there; the
//! very first moment belongs to the period that it begins.

use std::mem::take;
use std::time::Duration;

use super::SlidingWindowCounter;
use crate::error::{Result, at_least_one, require};
use crate::keys::sibling;
use crate::policies::answer::{Answer, Outcome};
use crate::policies::arithmetic::{div_ceil, in_millis};
use crate::policies::counters::Counters;
use crate::policies::lengths::{KnownLengths, Lengths, Series, current_end};
use crate::policies::model::{Charge, Model, Properties};
use crate::policies::state::SharedKeys;
use crate::policies::state::State;
use crate::rate::whole_millis;
use crate::window::{At, Timed};

/// A decision reads this many counters at most, and those of other lengths of periods too: together
/// no more than [`MOST_TOUCHED`](crate::policies::model::MOST_TOUCHED).
const MOST_PERIODS: i64 = 500;
/// In ms. The sum of a time of today and several windows is an exact Lua number.
const LONGEST_WINDOW: i64 = 1 << 50;
/// How much longer than the start the counters live, in ms.
const COUNTERS_OUTLIVE: i64 = 16;

/// The start and the counters of one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Periods {
    start: Timed<i64>,
    lengths: Timed<Lengths>,
    /// The counters, by the ends of their periods.
    counters: Counters,
    /// Whether the counters are those that a script found in the window.
    is_found: bool,
}

impl State for Periods {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.start.drop_expired(server);
        self.lengths.drop_expired(server);
        self.counters.drop_expired(server);
        self.start.get().is_some() || self.lengths.get().is_some() || !self.counters.is_empty()
    }

    fn has_own_key(&self) -> bool {
        false
    }

    fn open(keys: &mut SharedKeys) -> Option<Self> {
        Some(Self {
            start: take(&mut keys.start),
            lengths: take(&mut keys.lengths),
            counters: take(&mut keys.counters),
            is_found: false,
        })
    }

    fn close(self, keys: &mut SharedKeys) -> Option<Self> {
        (keys.start, keys.lengths, keys.counters) = (self.start, self.lengths, self.counters);
        None
    }
}

/// The periods as they stand at `now`.
struct Open {
    limit: i64,
    now: i64,
    start: i64,
    /// Whether the start is stored.
    is_started: bool,
    /// The end of the current period.
    current: i64,
    /// The window contains the periods that end after this time.
    floor: i64,
    window: i64,
    period: i64,
    lengths: KnownLengths,
}

impl Open {
    #[inline]
    fn holds(&self, last: i64) -> bool {
        let is_own = last <= self.current && (self.current - last) % self.period == 0;
        last > self.floor && (is_own || self.lengths.has_other(last))
    }

    /// The ends and counts of what the window holds, the oldest first.
    #[inline]
    fn held<'a>(&'a self, state: &'a Periods) -> impl Iterator<Item = (i64, i64)> + 'a {
        let newest = match state.is_found {
            true => i64::MAX,
            false => self.lengths.newest(),
        };
        let counters = state.counters.between(self.floor, newest);
        counters.filter(|&(last, _)| state.is_found || self.holds(last))
    }

    /// Milliseconds until the window no longer contains the period that ends at `last`: until the
    /// first period begins whose window is without it.
    #[inline]
    fn until_out(&self, last: i64) -> i64 {
        let current_then = div_ceil(last + self.window + 1 - self.start, self.period);
        self.start + (current_then - 1) * self.period + 1 - self.now
    }

    /// Milliseconds until the window no longer contains the newest period with a count. The very
    /// first moment, which belongs to the first period in addition to its length, is left out, so
    /// that the result is at most the window.
    #[inline]
    fn until_reset(&self, newest: i64) -> i64 {
        self.until_out(newest) - i64::from(self.now == self.start)
    }

    #[inline]
    fn evaluate(&self, state: &Periods, cost: i64) -> Answer {
        let limit = self.limit;
        // The sum may exceed an i64: a script may return hundreds of counters of up to 2^53.
        let (mut used, mut newest) = (0_i128, None);
        for (last, count) in self.held(state) {
            used += i128::from(count);
            if count != 0 {
                newest = Some(last);
            }
        }
        // Counters that a peer took below 0 give no more than the limit.
        let mut remaining = (i128::from(limit) - used).clamp(0, i128::from(limit)) as i64;
        let granted = cost <= remaining;
        if granted {
            used += i128::from(cost);
            remaining -= cost;
            newest = newest.max(Some(self.current));
        }
        let until_fits = |cost| {
            let last = self.last_to_go(state, used, cost);
            // Otherwise it fits once the cost of this request is out, or all is.
            let last = last.or(newest.filter(|_| !granted));
            self.until_out(last.unwrap_or(self.current))
        };
        let reset = newest.map_or(0, |newest| self.until_reset(newest));
        Answer {
            outcome: Outcome::of(granted),
            limit,
            window: self.window,
            remaining,
            retry_after: if granted { 0 } else { until_fits(cost) },
            available_in: match remaining {
                0 => until_fits(1).min(reset),
                _ => 0,
            },
            reset,
            delay: 0,
            mark: self.current,
        }
    }

    /// The end of the period without which, and without all older ones, a request of `cost` fits
    /// beside the rest of what is `used`.
    #[inline]
    fn last_to_go(&self, state: &Periods, used: i128, cost: i64) -> Option<i64> {
        let mut left = used;
        let fits_without = self.held(state).find(|(_, count)| {
            left -= i128::from(*count);
            i128::from(self.limit - cost) >= left
        });
        fits_without.map(|(last, _)| last)
    }

    /// When the counters may expire, if the newest period with a request ends at `newest`.
    #[inline]
    fn needed(&self, newest: i64, server: i64) -> i64 {
        // Half a period more than it is old at most: clocks may differ a little.
        let slack = (self.period + self.period / 2).min(self.window);
        server + newest - slack + 2 * self.window - self.now
    }

    /// Extends the times to live of the counters to the time for which the window needs them. The
    /// time to live of the start shows whether that is necessary: with the first request of the
    /// newest period it was two windows.
    #[inline]
    fn extend(&self, state: &mut Periods, server: i64) {
        let left = state.start.expires_at();
        if left.is_none_or(|at| at >= self.needed(self.current, server)) {
            return; // without reading the counters
        }
        let Some((newest, _)) = self.held(state).last() else {
            return;
        };
        // The end of the period of this length that holds it.
        let newest = newest.min(self.current);
        let end = self.needed(newest + (self.current - newest) % self.period, server);
        if state.start.outlive(end) {
            state.lengths.outlive(end);
            for (last, counter) in state.counters.iter_mut() {
                if self.holds(last) {
                    counter.outlive(end + COUNTERS_OUTLIVE);
                }
            }
        }
    }

    fn write_lengths(&self, state: &mut Periods, server: i64) {
        let end = state.start.life(server, server + 2 * self.window);
        state.lengths.set(self.lengths.with_own());
        state.lengths.expire_at(end);
    }

    /// Changes the state as a request that takes nothing does.
    #[inline]
    fn keep(&self, state: &mut Periods, server: i64) {
        self.extend(state, server);
        if !self.lengths.is_known && state.lengths.get().is_some() {
            self.write_lengths(state, server);
        }
    }

    #[inline]
    fn charge(&self, state: &mut Periods, server: i64, cost: i64) {
        self.extend(state, server);
        let counter = state.counters.of(self.current);
        let is_first = !self.is_started || counter.get().is_none();
        *counter.get_or_set(|| 0) += cost;
        if is_first {
            // Longer than two windows where the first period is still ahead.
            let needed = self.needed(self.current, server);
            let end = state.start.life(needed, server + 2 * self.window);
            counter.expire_at(end + COUNTERS_OUTLIVE);
            state.start.set(self.start);
            state.start.expire_at(end);
        }
        if is_first || !self.lengths.is_known {
            self.write_lengths(state, server);
        }
    }
}

impl SlidingWindowCounter {
    #[inline]
    fn open(&self, state: &Periods, now: i64) -> Open {
        let (window, period) = (in_millis(self.window), in_millis(self.period));
        // Only a clock that was wrong can have written a start that is further ahead than the
        // window.
        let stored = state.start.get().filter(|&&start| start <= now + window);
        let start = stored.map_or_else(|| self.starts.of(window, now), |start| *start);
        let current = current_end(start, period, now);
        let own = Series {
            window,
            period,
            last: current,
        };
        Open {
            limit: i64::from(self.limit),
            now,
            start,
            is_started: stored.is_some(),
            current,
            floor: current - window,
            window,
            period,
            lengths: KnownLengths::new(own, state.lengths.get(), start, now),
        }
    }
}

impl Model for SlidingWindowCounter {
    type State = Periods;

    const PROPERTIES: Properties = Properties {
        has_own_key: false,
        ..Properties::USUAL
    };

    fn validate(&self) -> Result<()> {
        at_least_one(self.limit, "limit")?;
        let window = whole_millis(self.window, "window")?;
        let period = whole_millis(self.period, "period")?;
        require(
            window <= LONGEST_WINDOW,
            "window",
            "must be at most 2^50 ms",
        )?;
        require(
            window % period == 0,
            "window",
            "must be a whole number of periods",
        )?;
        require(
            window / period <= MOST_PERIODS,
            "period",
            "must be longer: a window has at most 500 periods",
        )?;
        self.starts.validate(window, "window")
    }

    fn example(limit: u32, window: Duration) -> Self {
        let policy = Self::new(limit, window);
        match window.as_millis() % 10 {
            0 => policy,
            _ => policy.with_period(window),
        }
    }

    fn limit(&self) -> i64 {
        i64::from(self.limit)
    }

    fn window(&self) -> i64 {
        in_millis(self.window)
    }

    fn touches(&self, _cost: u32) -> u32 {
        let (window, period) = (in_millis(self.window), in_millis(self.period));
        // The window was validated, so that it has few periods.
        (window / period) as u32
    }

    fn keys(&self, target: &str) -> Vec<String> {
        ["-st", "-periods", "-"]
            .map(|suffix| sibling(target, suffix))
            .to_vec()
    }

    fn numbers(&self) -> Vec<i64> {
        let (window, period) = (in_millis(self.window), in_millis(self.period));
        let unit = self.starts.unit(window);
        vec![i64::from(self.limit), window, period, unit]
    }

    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<Periods> {
        let (&start, counters) = numbers.split_first()?;
        let mut state = Periods {
            is_found: true,
            ..Periods::default()
        };
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
    fn evaluate(&self, state: &Periods, at: At, cost: i64) -> Answer {
        self.open(state, at.now).evaluate(state, cost)
    }

    #[inline]
    fn charge(&self, state: &mut Periods, at: At, cost: i64) {
        self.open(state, at.now).charge(state, at.server, cost);
    }

    fn keep(&self, state: &mut Periods, at: At) {
        self.open(state, at.now).keep(state, at.server);
    }

    /// The mark is the end of the period.
    fn give_back(&self, state: &mut Periods, at: At, charge: &Charge) -> i64 {
        if charge.mark <= self.open(state, at.now).floor {
            return 0;
        }
        let counter = state.counters.of(charge.mark);
        let Some(count) = counter.get_mut() else {
            return 0;
        };
        let back = charge.cost.min(*count).max(0);
        *count -= back;
        back
    }

    // Opens the periods once for both steps.
    #[inline]
    fn check(&self, state: &mut Periods, at: At, cost: i64) -> Answer {
        let open = self.open(state, at.now);
        let answer = open.evaluate(state, cost);
        if answer.is_granted() {
            open.charge(state, at.server, cost);
        } else {
            open.keep(state, at.server);
        }
        answer
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests;
