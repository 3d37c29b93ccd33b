//! A counter that starts anew with each window.
//!
//! The counter's key lives as long as its window, so the store's own expiry ends it. Up to twice
//! the limit can pass around the edge of two windows: one limit at the end of the first, another at
//! the start of the second.

use std::time::Duration;

use super::FixedWindow;
use crate::error::{Result, at_least_one};
use crate::policies::answer::{Answer, Outcome};
use crate::policies::arithmetic::in_millis;
use crate::policies::model::{Charge, Model};
use crate::rate::whole_millis;
use crate::window::{At, Timed};

/// The count of one window, which is over when its key expires.
pub(crate) type Counter = Timed<i64>;

struct Open {
    count: i64,
    left: i64,
    is_new: bool,
    /// Whether the counter's time to live must be written.
    expire: bool,
}

impl Open {
    fn new(left: i64) -> Self {
        Self {
            count: 0,
            left,
            is_new: true,
            expire: true,
        }
    }
}

/// By how many ms two readings of the end of one window may differ.
const TOLERANCE: i64 = 100;

/// When the window ends: by the server's clock, as its key does, if the server's clock was read.
#[inline]
fn end(at: At, open: &Open) -> i64 {
    let now = if at.server > 0 { at.server } else { at.now };
    now + open.left
}

impl FixedWindow {
    /// Milliseconds that a window which begins with a request at `now` lasts from then.
    fn new_left(&self, now: i64) -> i64 {
        match self.calendar {
            Some(calendar) => calendar.window_at(now).end - now,
            None => self.starts.of(in_millis(self.window), now) + in_millis(self.window) - now,
        }
    }

    /// The length of a window at this time, in ms.
    #[inline]
    fn length_at(&self, now: i64) -> i64 {
        match self.calendar {
            Some(calendar) => {
                let window = calendar.window_at(now);
                window.end - window.start
            }
            None => in_millis(self.window),
        }
    }

    /// The window at this time.
    #[inline]
    fn open(&self, state: &Counter, at: At) -> Open {
        let Some(&count) = state.get() else {
            return Open::new(self.new_left(at.now));
        };
        match state.expires_at().map(|end| end - at.server) {
            // The store still has the key, but the window is over.
            Some(0) => Open::new(self.new_left(at.now)),
            Some(left) => Open {
                count,
                left,
                is_new: false,
                expire: false,
            },
            // A peer was interrupted before it set the time to live: the window would never end.
            None => Open {
                count,
                left: self.new_left(at.now),
                is_new: false,
                expire: true,
            },
        }
    }
}

impl Model for FixedWindow {
    type State = Counter;

    fn validate(&self) -> Result<()> {
        at_least_one(self.limit, "limit")?;
        if let Some(calendar) = self.calendar {
            return calendar.validate();
        }
        let window = whole_millis(self.window, "window")?;
        self.starts.validate(window, "window")
    }

    fn example(limit: u32, window: Duration) -> Self {
        Self::new(limit, window)
    }

    fn limit(&self) -> i64 {
        i64::from(self.limit)
    }

    fn window(&self) -> i64 {
        in_millis(self.window)
    }

    fn numbers(&self) -> Vec<i64> {
        let (limit, window) = (i64::from(self.limit), in_millis(self.window));
        match self.calendar {
            Some(calendar) => vec![limit, window, calendar.unit.number(), calendar.offset()],
            None => vec![limit, window, self.starts.unit(window)],
        }
    }

    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Counter> {
        let &[count, left] = numbers else {
            return None;
        };
        let mut state = Counter::default();
        if left >= 0 {
            state.set(count);
            state.expire_at(at.server + left);
        }
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Counter, at: At, cost: i64) -> Answer {
        let open = self.open(state, at);
        let limit = i64::from(self.limit);
        // A counter that a peer took below 0 gives no more than the limit.
        let remaining = (limit - open.count).min(limit);
        let granted = cost <= remaining;
        let remaining = if granted { remaining - cost } else { remaining }.max(0);
        Answer {
            outcome: Outcome::of(granted),
            limit,
            window: self.length_at(at.now),
            remaining,
            retry_after: open.left,
            available_in: if remaining == 0 { open.left } else { 0 },
            reset: if granted || open.count > 0 {
                open.left
            } else {
                0
            },
            delay: 0,
            mark: end(at, &open),
        }
    }

    #[inline]
    fn charge(&self, state: &mut Counter, at: At, cost: i64) {
        let open = self.open(state, at);
        match state.get_mut() {
            Some(count) if !open.is_new => *count += cost,
            _ => state.set(cost),
        }
        if open.expire {
            state.expire_at(at.server + open.left);
        }
    }

    /// The mark is the end of the window, by the server's clock.
    fn give_back(&self, state: &mut Counter, at: At, charge: &Charge) -> i64 {
        let open = self.open(state, at);
        let apart = (end(at, &open) - charge.mark).abs();
        let can_tell = in_millis(self.window) > 2 * TOLERANCE;
        if open.is_new || apart > TOLERANCE || !can_tell {
            return 0;
        }
        let back = charge.cost.min(open.count).max(0);
        if let Some(count) = state.get_mut() {
            *count -= back;
        }
        back
    }

    fn deny(&self, state: &mut Counter, at: At) {
        let open = self.open(state, at);
        if open.expire {
            state.expire_at(at.server + open.left);
        }
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::calendar::Unit;
    use super::*;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, TTL_UNIT, WithNumbers, millis, number, show_key, timed,
        times_to_live,
    };
    use crate::policies::history_tests::{Versioned, units};
    use crate::policies::starts::DAY;

    impl Compared for FixedWindow {
        const ANSWERS_BY_TIMES_TO_LIVE: bool = true;

        fn policies() -> BoxedStrategy<Self> {
            let policy = |limit, millis: i64| {
                FixedWindow::new(limit, Duration::from_millis(millis.unsigned_abs()))
            };
            prop_oneof![
                3 => (1..20_u32, 1..9_i64).prop_map(move |(limit, n)| policy(limit, n * TTL_UNIT)),
                1 => (1..20_u32, 1..4_i64)
                    .prop_map(move |(limit, n)| policy(limit, n * DAY).aligned_to_clock()),
                2 => by_calendar(),
            ]
            .boxed()
        }

        fn states() -> BoxedStrategy<Counter> {
            (-3..20_i64, times_to_live())
                .prop_map(|(count, time_to_live)| timed(count, time_to_live))
                .boxed()
        }

        fn show(state: &Counter, target: &str) -> Keyspace {
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), state, |count| {
                Content::Text(count.to_string())
            });
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            // A day is a whole number of these too.
            (1..400_i64).prop_map(|n| n * TTL_UNIT).boxed()
        }
    }

    fn by_calendar() -> impl Strategy<Value = FixedWindow> {
        let units = [Unit::Day, Unit::Week, Unit::Month, Unit::Year];
        let unit = prop::sample::select(units.to_vec());
        (1..20_u32, unit, -1_439..1_440_i32).prop_map(|(limit, unit, minutes)| {
            FixedWindow::by_calendar(limit, unit).with_utc_offset_minutes(minutes)
        })
    }

    impl WithNumbers for FixedWindow {
        fn with_numbers(numbers: &[i64]) -> Self {
            let &[limit, window, unit, ref offset @ ..] = numbers else {
                panic!("{numbers:?}");
            };
            let policy = Self::new(number(limit), millis(window));
            match (unit, offset) {
                (0, []) => policy,
                (_, []) => policy.aligned_to_clock(),
                (_, offset) => {
                    let units = [Unit::Hour, Unit::Day, Unit::Week, Unit::Month, Unit::Year];
                    let unit = units.into_iter().find(|it| it.number() == unit).unwrap();
                    let policy = Self::by_calendar(number(limit), unit);
                    let since_monday = policy.calendar.unwrap().offset();
                    let minutes = (offset[0] - since_monday) / 60_000;
                    policy.with_utc_offset_minutes(i32::try_from(minutes).unwrap())
                }
            }
        }
    }

    impl Versioned for FixedWindow {
        const EXPIRES_AS_IT_COUNTS: bool = true;

        fn versions() -> BoxedStrategy<Self> {
            let versions = (1..8_u32, 1..9_u32);
            versions
                .prop_map(|(limit, n)| Self::new(limit, units(n)))
                .boxed()
        }
    }
}
