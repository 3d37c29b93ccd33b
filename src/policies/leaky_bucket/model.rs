//! Requests that flow out at a constant pace; what does not fit into the bucket is refused.
//!
//! The bucket holds the requests of the current period and those that wait for a later one. Both
//! keys live as long as a full bucket takes to flow out, so a bucket without keys is empty.

use std::time::Duration;

use super::LeakyBucket;
use crate::error::{Result, at_least_one, require};
use crate::keys::sibling;
use crate::policies::answer::{Answer, Outcome};
use crate::policies::arithmetic::{LONGEST, div_ceil, in_millis, pace};
use crate::policies::bucket::{Bucket, Flow, Open};
use crate::policies::model::{Model, Properties};
use crate::rate::whole_millis;
use crate::window::At;

impl LeakyBucket {
    #[inline]
    fn largest_cost(&self) -> i64 {
        i64::from(self.capacity) + i64::from(self.quantity)
    }

    /// The number of periods in which a full bucket flows out.
    #[inline]
    fn periods_to_live(&self) -> i64 {
        div_ceil(i64::from(self.capacity), i64::from(self.quantity)) + 1
    }

    #[inline]
    fn flow(&self) -> Flow {
        Flow {
            quantity: i64::from(self.quantity),
            period: in_millis(self.period),
            whole: self.largest_cost(),
            starts: self.starts,
            level_lives_longer: 0,
        }
    }

    /// The bucket at `now`; its level is how many requests it holds.
    #[inline]
    fn open(&self, state: &Bucket, now: i64) -> Open {
        self.flow().open(state, now, |level| level.max(0))
    }

    /// Milliseconds for which a request that fills the bucket up to `filled` waits for its turn.
    #[inline]
    fn delay(&self, filled: i64, open: &Open, now: i64) -> i64 {
        let batch = div_ceil(filled, i64::from(self.quantity)) - 1;
        if open.is_first || batch <= 0 {
            return 0;
        }
        (batch - 1) * in_millis(self.period) + self.flow().until_next(open, now)
    }
}

impl Model for LeakyBucket {
    type State = Bucket;

    const PROPERTIES: Properties = Properties {
        gives_turns: true,
        ..Properties::USUAL
    };

    fn validate(&self) -> Result<()> {
        at_least_one(self.quantity, "quantity")?;
        at_least_one(self.capacity, "capacity")?;
        let period = whole_millis(self.period, "period")?;
        self.starts.validate(period, "period")?;
        require(
            i128::from(self.periods_to_live()) * i128::from(period) <= i128::from(LONGEST),
            "period",
            "must be shorter: a full bucket would take longer than 2^52 ms to flow out",
        )
    }

    /// A request that waits has its turn within `capacity / quantity` periods, rounded up.
    fn with_longest_turn(&self, longest: Duration) -> Option<Self> {
        let periods = longest.as_millis() / self.period.as_millis().max(1);
        let waiting = periods.saturating_mul(self.quantity.into());
        let capacity = u32::try_from(waiting)
            .ok()
            .filter(|it| *it < self.capacity)?;
        Some(self.clone().with_capacity(capacity))
    }

    fn example(limit: u32, window: Duration) -> Self {
        let (quantity, period) = pace(limit, window);
        let waiting = limit.saturating_sub(quantity);
        Self::new(quantity, period).with_capacity(waiting.max(1))
    }

    fn limit(&self) -> i64 {
        self.largest_cost()
    }

    fn window(&self) -> i64 {
        self.flow().time_for(self.largest_cost())
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
        ]
    }

    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<Bucket> {
        let &[value, start, is_first] = numbers else {
            return None;
        };
        let mut state = Bucket::default();
        if is_first == 0 {
            state.level.set(value);
            state.start.set(start);
        }
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Bucket, at: At, cost: i64) -> Answer {
        let open = self.open(state, at.now);
        let limit = self.largest_cost();
        let filled = open.used + cost;
        let granted = filled <= limit;
        let used = if granted { filled } else { open.used };
        let until = |count| self.flow().until(count, &open, at.now);
        Answer {
            outcome: Outcome::of(granted),
            limit,
            window: self.flow().time_for(limit),
            remaining: (limit - used).max(0),
            retry_after: if granted { 0 } else { until(filled - limit) },
            available_in: match used < limit {
                true => 0,
                false => until(used - limit + 1),
            },
            reset: until(used),
            delay: match granted {
                true => self.delay(filled, &open, at.now),
                false => 0,
            },
            mark: at.now,
        }
    }

    #[inline]
    fn charge(&self, state: &mut Bucket, at: At, cost: i64) {
        let open = self.open(state, at.now);
        let filled = open.used + cost;
        let time_to_live = self.periods_to_live() * in_millis(self.period);
        self.flow().set(state, at, &open, [filled; 2], time_to_live);
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

    impl Compared for LeakyBucket {
        fn policies() -> BoxedStrategy<Self> {
            let policy = |(capacity, quantity): (u32, u32), period: i64| {
                LeakyBucket::new(quantity, Duration::from_millis(period.unsigned_abs()))
                    .with_capacity(capacity)
            };
            let numbers = (1..20_u32, 1..7_u32);
            prop_oneof![
                3 => (numbers.clone(), 1..4_i64)
                    .prop_map(move |(numbers, n)| policy(numbers, n * TTL_UNIT)),
                1 => (numbers, prop_oneof![Just(TTL_UNIT), Just(DAY)])
                    .prop_map(move |(numbers, period)| policy(numbers, period).aligned_to_clock()),
            ]
            .boxed()
        }

        fn states() -> BoxedStrategy<Bucket> {
            let value = prop::option::of((-3..40_i64, times_to_live()));
            let starts = prop_oneof![8 => -9 * TTL_UNIT..TTL_UNIT, 1 => TTL_UNIT..40 * TTL_UNIT];
            let start = prop::option::of((starts, times_to_live()));
            (value, start)
                .prop_map(|(value, start)| Bucket {
                    level: value.map_or_else(Timed::default, |(value, ttl)| timed(value, ttl)),
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

    impl WithNumbers for LeakyBucket {
        fn with_numbers(numbers: &[i64]) -> Self {
            Self::new(number(numbers[1]), millis(numbers[2])).with_capacity(number(numbers[0]))
        }
    }

    impl Versioned for LeakyBucket {
        fn versions() -> BoxedStrategy<Self> {
            (1..12_u32, 1..6_u32, 1..6_u32)
                .prop_map(|(capacity, quantity, n)| {
                    Self::new(quantity, units(n)).with_capacity(capacity)
                })
                .boxed()
        }
    }

    fn refused(policy: LeakyBucket) -> &'static str {
        match Model::validate(&policy) {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_number_out_of_its_range_is_named() {
        let second = Duration::from_secs(1);
        assert_eq!(
            refused(LeakyBucket::new(1, second).with_capacity(0)),
            "capacity"
        );
        assert_eq!(
            refused(LeakyBucket::new(0, second).with_capacity(1)),
            "quantity"
        );
        for period in [Duration::ZERO, Duration::from_micros(1_500), Duration::MAX] {
            assert_eq!(refused(LeakyBucket::new(1, period)), "period");
        }
        let period = Duration::from_millis(1_500);
        let aligned = LeakyBucket::new(1, period).aligned_to_clock();
        assert_eq!(refused(aligned), "period");
        let period = Duration::from_millis(1 << 20);
        assert_eq!(
            refused(LeakyBucket::new(1, period + second).with_capacity(u32::MAX)),
            "period"
        );
        assert!(Model::validate(&LeakyBucket::new(1, period).with_capacity(u32::MAX)).is_ok());
        assert!(
            Model::validate(&LeakyBucket::new(u32::MAX, Duration::from_millis(1)).with_capacity(1))
                .is_ok()
        );
    }
}
