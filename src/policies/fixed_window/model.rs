//! A counter that starts anew with each window.
//!
//! The counter's key lives as long as its window, so the store's own expiry ends it. Up to twice the limit can pass
//! around the edge of two windows: one limit at the end of the first, another at the start of the second.

use std::mem::take;
use std::time::Duration;

use super::FixedWindow;
use crate::error::{Result, at_least_one};
use crate::keys::sibling;
use crate::permit::CallId;
use crate::policies::algorithm::{Model, State, Unusable};
use crate::policies::answer::{Answer, Outcome};
use crate::policies::target_keys::TargetKeys;
use crate::rate::whole_millis;
use crate::window::{At, Timed};

/// The requests of one window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    count: Timed<i64>,
    /// The length of this window, where the rule was changed.
    length: Timed<i64>,
}

impl State for Counter {
    fn drop_expired(&mut self, server: i64) -> bool {
        self.count.drop_expired(server);
        self.length.drop_expired(server);
        self.count.get().is_some()
    }

    fn has_own_key(&self) -> bool {
        self.count.get().is_some()
    }

    fn open(keys: &mut TargetKeys) -> Option<Self> {
        Some(Self {
            count: keys.take_own()?,
            length: std::mem::take(&mut keys.length),
        })
    }

    fn close(&mut self, keys: &mut TargetKeys) {
        keys.put_own(take(&mut self.count));
        keys.length = take(&mut self.length);
    }
}

struct Open {
    count: i64,
    left: i64,
    is_new: bool,
    /// The counter's time to live is to be written.
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

impl FixedWindow {
    #[inline]
    fn window_millis(&self) -> i64 {
        // It was validated, so that it fits.
        self.window.as_millis() as i64
    }

    /// Milliseconds that a window which begins with a request at `now` lasts from then.
    fn new_left(&self, now: i64) -> i64 {
        self.starts.of(self.window_millis(), now) + self.window_millis() - now
    }

    /// The count, what is left of the window, and whether the counter has that time to live already.
    #[inline]
    fn open(&self, state: &Counter, at: At) -> Open {
        let Some(&count) = state.count.get() else {
            return Open::new(self.new_left(at.now));
        };
        let Some(end) = state.count.expires_at() else {
            // A peer was interrupted between counting and expiring: nobody would ever end this window.
            let left = self.new_left(at.now);
            return Open {
                count,
                left,
                is_new: false,
                expire: true,
            };
        };
        let left = end - at.server;
        if left == 0 {
            // The store still has the key, but the window is over.
            return Open::new(self.new_left(at.now));
        }
        let was = state.length.get().copied().unwrap_or(self.length_before);
        if self.length_before == 0 || was == self.window_millis() {
            return Open {
                count,
                left,
                is_new: false,
                expire: false,
            };
        }
        match left + self.window_millis() - was {
            ..=0 => Open::new(self.new_left(at.now)),
            left => Open {
                count,
                left,
                is_new: false,
                expire: true,
            },
        }
    }

    #[inline]
    fn expire(&self, state: &mut Counter, end: i64) {
        state.count.expire_at(end);
        if self.length_before > 0 {
            state.length.set(self.window_millis());
            state.length.expire_at(end);
        }
    }
}

impl Model for FixedWindow {
    type State = Counter;

    fn validate(&self) -> Result<()> {
        at_least_one(self.limit, "limit")?;
        let window = whole_millis(self.window, "window")?;
        self.starts.validate(window, "window")
    }

    fn limit(&self) -> Option<i64> {
        Some(i64::from(self.limit))
    }

    fn window(&self) -> Option<i64> {
        Some(self.window_millis())
    }

    fn keys(&self, target: &str) -> Vec<String> {
        let mut keys = vec![target.to_owned()];
        if self.length_before > 0 {
            keys.push(sibling(target, "-window"));
        }
        keys
    }

    #[cfg(feature = "redis")]
    fn numbers(&self) -> Vec<i64> {
        vec![
            i64::from(self.limit),
            self.window_millis(),
            self.starts.unit(self.window_millis()),
            self.length_before,
        ]
    }

    fn after(&self, before: &Self) -> (Self, Duration) {
        // Windows that nobody has moved yet have the length of the first rule.
        let length_before = match before.length_before {
            0 => before.window_millis(),
            length => length,
        };
        let moved = Self {
            length_before,
            ..*self
        };
        (moved, before.window)
    }

    #[cfg(feature = "redis")]
    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Counter> {
        let &[count, left] = numbers else {
            return None;
        };
        let mut state = Counter::default();
        if left >= 0 {
            state.count.set(count);
            self.expire(&mut state, at.server + left);
        }
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Counter, at: At, cost: i64) -> Result<Answer, Unusable> {
        let open = self.open(state, at);
        let limit = i64::from(self.limit);
        // A counter that a peer took below 0 gives no more than the limit.
        let remaining = (limit - open.count).min(limit);
        let granted = cost <= remaining;
        let remaining = if granted { remaining - cost } else { remaining }.max(0);
        Ok(Answer {
            outcome: Outcome::of(granted),
            limit,
            window: self.window_millis(),
            remaining,
            retry_after: open.left,
            available_in: if remaining == 0 { open.left } else { 0 },
            reset: if granted || open.count > 0 {
                open.left
            } else {
                0
            },
            delay: 0,
        })
    }

    #[inline]
    fn charge(&self, state: &mut Counter, at: At, _call_id: &CallId, cost: i64) {
        let open = self.open(state, at);
        match state.count.get_mut() {
            Some(count) if !open.is_new => *count += cost,
            _ => state.count.set(cost),
        }
        if open.expire {
            self.expire(state, at.server + open.left);
        }
    }

    fn deny(&self, state: &mut Counter, at: At) {
        let open = self.open(state, at);
        if open.expire {
            self.expire(state, at.server + open.left);
        }
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use proptest::prelude::*;

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
            ]
            .boxed()
        }

        fn states() -> BoxedStrategy<Counter> {
            (-3..20_i64, times_to_live(), prop::option::of(1..9_i64))
                .prop_map(|(count, time_to_live, length)| Counter {
                    count: timed(count, time_to_live),
                    length: length
                        .map_or_else(Timed::default, |n| timed(n * TTL_UNIT, time_to_live)),
                })
                .boxed()
        }

        fn show(state: &Counter, target: &str) -> Keyspace {
            let number = |number: &i64| Content::Text(number.to_string());
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), &state.count, number);
            let length = sibling(target, "-window");
            show_key(&mut keyspace, length, &state.length, number);
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            // A day is a whole number of these too.
            (1..400_i64).prop_map(|n| n * TTL_UNIT).boxed()
        }
    }

    impl WithNumbers for FixedWindow {
        fn with_numbers(numbers: &[i64]) -> Self {
            let policy = Self::new(number(numbers[0]), millis(numbers[1]));
            match numbers[2] {
                0 => policy,
                _ => policy.aligned_to_clock(),
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
