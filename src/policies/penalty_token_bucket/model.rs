//! Tokens that come in at the end of each period; a request takes its cost out of them, and a
//! target may be locked out.
//!
//! The key with the time of the last inflow outlives the time that an empty bucket takes to fill,
//! so a bucket without that key is full.

use std::time::Duration;

use super::PenaltyTokenBucket;
use crate::error::{Result, at_least_one, require};
use crate::keys::sibling;
use crate::policies::answer::Answer;
use crate::policies::arithmetic::{LONGEST, div_ceil, in_millis, pace};
use crate::policies::bucket::{Bucket, Flow, Open};
use crate::policies::model::{Charge, Model, Properties};
use crate::rate::whole_millis;
use crate::window::At;

/// How much longer the tokens live than the time of their last inflow, in ms.
const TOKENS_LIVE_LONGER: i64 = 10;

impl PenaltyTokenBucket {
    /// The time to live of the last inflow's time, in ms; too large to be used where the policy is
    /// refused.
    #[inline]
    fn time_to_live(&self) -> i64 {
        let period = self.period.as_millis();
        let fill = u128::from(self.capacity)
            .saturating_mul(period)
            .div_ceil(u128::from(self.quantity.max(1)));
        // Tokens come in with whole periods: a small bucket is not full before the period is over.
        let time = fill.saturating_mul(2).max(period);
        i64::try_from(time).unwrap_or(i64::MAX)
    }

    #[inline]
    fn flow(&self) -> Flow {
        Flow {
            quantity: i64::from(self.quantity),
            period: in_millis(self.period),
            whole: i64::from(self.capacity),
            starts: self.starts,
            level_lives_longer: TOKENS_LIVE_LONGER,
        }
    }

    /// The bucket at `now`; its level is how many tokens it has. If it is lost, there are as many
    /// as there can be.
    #[inline]
    fn open(&self, state: &Bucket, now: i64) -> Open {
        let capacity = i64::from(self.capacity);
        let used = |tokens: i64| capacity - tokens.clamp(0, capacity);
        self.flow().open(state, now, used)
    }
}

impl Model for PenaltyTokenBucket {
    type State = Bucket;

    const PROPERTIES: Properties = Properties {
        honours_foreign_locks: true,
        ..Properties::USUAL
    };

    fn validate(&self) -> Result<()> {
        at_least_one(self.quantity, "quantity")?;
        at_least_one(self.capacity, "capacity")?;
        let period = whole_millis(self.period, "period")?;
        self.starts.validate(period, "period")?;
        require(
            self.time_to_live() <= LONGEST,
            "period",
            "must be shorter: an empty bucket would take longer than 2^51 ms to fill",
        )
    }

    fn example(limit: u32, window: Duration) -> Self {
        let (quantity, period) = pace(limit, window);
        Self::new(quantity, period).with_capacity(limit)
    }

    fn limit(&self) -> i64 {
        i64::from(self.capacity)
    }

    fn window(&self) -> i64 {
        self.flow().time_for(i64::from(self.capacity))
    }

    fn keys(&self, target: &str) -> Vec<String> {
        vec![target.to_owned(), sibling(target, "-st")]
    }

    fn numbers(&self) -> Vec<i64> {
        vec![
            i64::from(self.capacity),
            i64::from(self.quantity),
            in_millis(self.period),
            self.starts.unit(in_millis(self.period)),
            self.time_to_live(),
        ]
    }

    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<Bucket> {
        let &[tokens, start] = numbers else {
            return None;
        };
        let mut state = Bucket::default();
        state.level.set(tokens);
        state.start.set(start);
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Bucket, at: At, cost: i64) -> Answer {
        let open = self.open(state, at.now);
        let limit = i64::from(self.capacity);
        let tokens = limit - open.used;
        let window = self.flow().time_for(limit);
        let until_there_are = |wanted| self.flow().until(wanted - tokens, &open, at.now);
        Answer::of_tokens(limit, window, tokens, cost, at.now, until_there_are)
    }

    #[inline]
    fn charge(&self, state: &mut Bucket, at: At, cost: i64) {
        let open = self.open(state, at.now);
        let used = open.used + cost;
        let tokens = i64::from(self.capacity) - used;
        let time_to_live = self.time_to_live();
        self.flow()
            .set(state, at, &open, [used, tokens], time_to_live);
    }

    /// The mark is the time of the charge.
    fn give_back(&self, state: &mut Bucket, at: At, charge: &Charge) -> i64 {
        let open = self.open(state, at.now);
        let Some(level) = state.level.get_mut().filter(|_| !open.is_first) else {
            return 0;
        };
        let periods = div_ceil((at.now - charge.mark).max(0), in_millis(self.period));
        let came_in = periods.saturating_mul(i64::from(self.quantity));
        let back = (charge.cost - came_in).min(open.used).max(0);
        if back > 0 {
            // Added to the stored tokens: each call counts the periods since their start itself.
            *level = (*level).max(0) + back;
        }
        back
    }

    fn keep(&self, state: &mut Bucket, at: At) {
        let open = self.open(state, at.now);
        self.flow().keep(state, at, &open);
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, TTL_UNIT, WithNumbers, millis, number, show_key, timed,
        times_to_live,
    };
    use crate::policies::history_tests::{Versioned, units};
    use crate::policies::starts::DAY;
    use crate::window::Timed;

    impl Compared for PenaltyTokenBucket {
        fn policies() -> BoxedStrategy<Self> {
            let policy = |(capacity, quantity): (u32, u32), period: i64| {
                let period = Duration::from_millis(period.unsigned_abs());
                PenaltyTokenBucket::new(quantity, period).with_capacity(capacity)
            };
            let numbers = (1..20_u32, 1..30_u32);
            prop_oneof![
                3 => (numbers.clone(), 1_000..3 * TTL_UNIT)
                    .prop_map(move |(numbers, period)| policy(numbers, period)),
                1 => (numbers, prop_oneof![1..400_i64, Just(DAY / 1000)])
                    .prop_map(move |(numbers, n)| policy(numbers, n * 1000).aligned_to_clock()),
            ]
            // Both times to live are the same multiple of the period, once rounded up, also after
            // some seconds.
            .prop_filter(
                "the times to live must lie apart from their period's",
                |policy| {
                    (TTL_UNIT / 2..TTL_UNIT - TOKENS_LIVE_LONGER)
                        .contains(&(policy.time_to_live() % TTL_UNIT))
                },
            )
            .boxed()
        }

        fn states() -> BoxedStrategy<Bucket> {
            let tokens = prop::option::of((-3..40_i64, times_to_live()));
            let starts = prop_oneof![8 => -9 * TTL_UNIT..TTL_UNIT, 1 => TTL_UNIT..40 * TTL_UNIT];
            let start = prop::option::of((starts, times_to_live()));
            (tokens, start)
                .prop_map(|(tokens, start)| Bucket {
                    level: tokens.map_or_else(Timed::default, |(tokens, ttl)| timed(tokens, ttl)),
                    start: start.map_or_else(Timed::default, |(at, ttl)| timed(START + at, ttl)),
                })
                .boxed()
        }

        fn show(state: &Bucket, target: &str) -> Keyspace {
            let number = |number: &i64| Content::Text(number.to_string());
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), &state.level, number);
            show_key(&mut keyspace, sibling(target, "-st"), &state.start, number);
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            prop_oneof![3 => 1..TTL_UNIT / 2, 1 => 1..6 * TTL_UNIT].boxed()
        }
    }

    impl WithNumbers for PenaltyTokenBucket {
        fn with_numbers(numbers: &[i64]) -> Self {
            Self::new(number(numbers[1]), millis(numbers[2])).with_capacity(number(numbers[0]))
        }
    }

    impl Versioned for PenaltyTokenBucket {
        fn versions() -> BoxedStrategy<Self> {
            (1..12_u32, 1..6_u32, 1..6_u32)
                .prop_map(|(capacity, quantity, n)| {
                    Self::new(quantity, units(n)).with_capacity(capacity)
                })
                .boxed()
        }
    }

    fn refused(policy: PenaltyTokenBucket) -> &'static str {
        match Model::validate(&policy) {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_number_out_of_its_range_is_named() {
        let second = Duration::from_secs(1);
        let new = |capacity, quantity, period| {
            PenaltyTokenBucket::new(quantity, period).with_capacity(capacity)
        };
        assert_eq!(refused(new(0, 1, second)), "capacity");
        assert_eq!(refused(new(1, 0, second)), "quantity");
        for period in [Duration::ZERO, Duration::from_micros(1_500), Duration::MAX] {
            assert_eq!(refused(new(1, 1, period)), "period");
        }
        let period = Duration::from_millis(1_500);
        assert_eq!(refused(new(1, 1, period).aligned_to_clock()), "period");
        let period = Duration::from_millis(1 << 19);
        assert_eq!(refused(new(u32::MAX, 1, period + second)), "period");
        assert!(Model::validate(&new(u32::MAX, 1, period)).is_ok());
        assert!(Model::validate(&new(1, u32::MAX, Duration::from_millis(1))).is_ok());
    }

    #[test]
    fn the_times_to_live_are_twice_the_time_to_fill_and_at_least_a_unit() {
        let lives = |capacity, quantity, millis| {
            PenaltyTokenBucket::new(quantity, Duration::from_millis(millis))
                .with_capacity(capacity)
                .time_to_live()
        };
        assert_eq!(lives(10, 2, 1_000), 10_000);
        assert_eq!(lives(10, 3, 1_000), 6_668);
        assert_eq!(lives(1, 10, 1_000), 1_000);
    }
}
