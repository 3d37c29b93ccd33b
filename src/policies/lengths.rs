//! The lengths of the periods for which a target has counters. Clients with different numbers, such
//! as two versions of a service during a deployment, find each other's counters by them. All times
//! are in ms.

use super::arithmetic::div_ceil;

/// The most counters of other lengths that a decision reads.
pub(super) const MOST_OTHERS: i64 = 1_000;
/// The most lengths that are stored.
const MOST_LENGTHS: usize = 16;

/// What the key with `-periods` holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lengths {
    /// All clients have one window and period.
    One { window: i64, period: i64 },
    /// Clients have several, those of the last writer first.
    Several(Vec<Series>),
}

/// Periods of clients with one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) window: i64,
    pub(super) period: i64,
    /// The last millisecond of the newest period.
    pub(super) last: i64,
}

/// The lengths as a policy finds them.
#[derive(Debug)]
pub(super) struct KnownLengths {
    /// The policy's own.
    own: Series,
    /// Whether the stored lengths say that clients with the policy's own length may have a counter
    /// for the current period.
    pub(super) is_known: bool,
    /// Other lengths that may have counters in the window.
    others: Vec<Series>,
    /// How many counters of each other length are read.
    most: i64,
}

/// The last millisecond of the period that `now` is in.
#[inline]
pub(super) fn current_end(start: i64, period: i64, now: i64) -> i64 {
    start + div_ceil(now - start, period).max(1) * period - 1
}

impl KnownLengths {
    /// `own` is the policy's window and period, with the end of the current one.
    #[inline]
    pub(super) fn new(own: Series, lengths: Option<&Lengths>, start: i64, now: i64) -> Self {
        let mut found = Self {
            own,
            is_known: false,
            others: Vec::new(),
            most: 0,
        };
        match lengths {
            None => {}
            Some(&Lengths::One { window, period }) => {
                let last = current_end(start, period, now);
                let one = Series {
                    window,
                    period,
                    last,
                };
                if one == own {
                    found.is_known = true;
                } else {
                    found.add(&[one], now);
                }
            }
            Some(Lengths::Several(all)) => found.add(all, now),
        }
        found
    }

    fn add(&mut self, all: &[Series], now: i64) {
        let Series {
            window,
            period,
            last: current,
        } = self.own;
        for series in all {
            // Only a clock that was wrong can have written a later end.
            let may_be = series.last <= now + 2 * series.window;
            if series.window == window && series.period == period {
                self.is_known = series.last >= current && may_be;
            } else if self.others.len() < MOST_LENGTHS - 1 && may_be {
                self.others.push(*series);
            }
        }
        loop {
            let all = self.others.len();
            let windows = self.others.iter().map(|it| it.window);
            let longest = windows.fold(window, i64::max);
            // A counter that is about to leave that window is extended by two of them, and must not
            // outlive its length.
            self.others.retain(|it| it.last > now - 3 * longest);
            if self.others.len() == all {
                break;
            }
        }
        let floor = current - window;
        let others = self.others.iter().filter(|it| it.period != period);
        let numbers = others.map(|it| div_ceil(it.last - floor, it.period));
        let number: i64 = numbers.map(|number| number.max(0)).sum();
        self.most = match number <= MOST_OTHERS {
            true => number,
            false => MOST_OTHERS / self.others.len() as i64,
        };
    }

    /// Whether a counter that is read, of a period with another length, ends at `last`.
    #[inline]
    pub(super) fn has_other(&self, last: i64) -> bool {
        self.others.iter().any(|it| {
            let back = it.last - last;
            it.period != self.own.period
                && 0 <= back
                && back < self.most * it.period
                && back % it.period == 0
        })
    }

    /// The end of the newest period of any length.
    #[inline]
    pub(super) fn newest(&self) -> i64 {
        let others = self.others.iter().map(|it| it.last);
        others.fold(self.own.last, i64::max)
    }

    /// The lengths that the policy writes.
    pub(super) fn with_own(&self) -> Lengths {
        if self.others.is_empty() {
            let Series { window, period, .. } = self.own;
            return Lengths::One { window, period };
        }
        Lengths::Several([&[self.own], &self.others[..]].concat())
    }
}
