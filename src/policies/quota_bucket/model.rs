//! A quantity of tokens comes in with each period; a request takes its cost out of them.
//!
//! The state counts in seconds; where the tokens took a fraction of a second, that fraction is kept
//! beside the time, in units of 1 / quantity s.

use std::time::Duration;

use super::QuotaBucket;
use crate::error::{Result, at_least_one, require};
use crate::policies::answer::Answer;
use crate::policies::arithmetic::{LONGEST, fitting};
use crate::policies::model::{Charge, Model};
use crate::policies::refill::{Refill, Tokens};
use crate::policies::state::Content;
use crate::rate::whole_millis;
use crate::window::{At, Timed};

/// What one bucket's hash holds.
pub(crate) type StoredFields = Timed<Fields>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    capacity: i64,
    quota: i64,
    period: i64,
    tokens: Tokens,
}

impl Content for Fields {}

impl QuotaBucket {
    #[inline]
    fn period_seconds(&self) -> i64 {
        // The period was validated, so it fits.
        self.period.as_secs() as i64
    }

    #[inline]
    fn refill(&self) -> Refill {
        Refill {
            capacity: i64::from(self.capacity),
            rate: i64::from(self.quantity),
            period: self.period_seconds(),
            unit: 1000,
        }
    }

    /// The tokens at `now`, which is in seconds.
    #[inline]
    fn refilled(&self, state: &StoredFields, now: i64) -> Tokens {
        self.refill().refilled(Self::stored(state), now)
    }

    fn stored(state: &StoredFields) -> Option<Tokens> {
        state.get().map(|fields| Tokens {
            left: fields.tokens.left.max(0),
            ..fields.tokens
        })
    }

    #[inline]
    fn fields(&self, tokens: Tokens) -> Fields {
        Fields {
            capacity: i64::from(self.capacity),
            quota: i64::from(self.quantity),
            period: self.period_seconds(),
            tokens,
        }
    }

    #[inline]
    fn write(&self, state: &mut StoredFields, at: At, tokens: Tokens) {
        let refill = self.refill();
        let twice = at.server + 2 * refill.time_to_fill();
        let end = state.life(refill.full_at(&tokens, at), twice);
        state.set(self.fields(tokens));
        state.expire_at(end);
    }
}

impl Model for QuotaBucket {
    type State = StoredFields;

    fn validate(&self) -> Result<()> {
        at_least_one(self.quantity, "quantity")?;
        at_least_one(self.capacity, "capacity")?;
        let period = whole_millis(self.period, "period")?;
        require(
            period % 1000 == 0,
            "period",
            "must be a whole number of seconds",
        )?;
        let until_full = i128::from(self.capacity) * i128::from(period) / i128::from(self.quantity);
        let product = i128::from(self.capacity) * i128::from(period / 1000);
        require(
            until_full.max(product) <= i128::from(LONGEST),
            "period",
            "must be shorter: its product with the capacity is above 2^52",
        )
    }

    fn example(limit: u32, window: Duration) -> Self {
        let millis = window.as_millis().max(1);
        let seconds = millis.div_ceil(1000);
        let quantity = u128::from(limit) * 1000 * seconds / millis;
        Self::new(fitting(quantity), Duration::from_secs(seconds as u64)).with_capacity(limit)
    }

    fn limit(&self) -> i64 {
        i64::from(self.capacity)
    }

    fn window(&self) -> i64 {
        self.refill().time_to_fill()
    }

    fn numbers(&self) -> Vec<i64> {
        vec![
            i64::from(self.capacity),
            i64::from(self.quantity),
            self.period_seconds(),
        ]
    }

    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<StoredFields> {
        let &[remain, timestamp, fraction] = numbers else {
            return None;
        };
        let mut state = StoredFields::default();
        state.set(self.fields(Tokens {
            left: remain,
            refilled_at: timestamp,
            fraction,
        }));
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &StoredFields, at: At, cost: i64) -> Answer {
        let tokens = self.refilled(state, at.now);
        self.refill().evaluate(&tokens, at.now, cost)
    }

    #[inline]
    fn charge(&self, state: &mut StoredFields, at: At, cost: i64) {
        let mut tokens = self.refilled(state, at.now);
        tokens.left -= cost;
        self.write(state, at, tokens);
    }

    fn deny(&self, state: &mut StoredFields, at: At) {
        let tokens = self.refilled(state, at.now);
        self.write(state, at, tokens);
    }

    /// The mark is the time of the charge.
    fn give_back(&self, state: &mut StoredFields, at: At, charge: &Charge) -> i64 {
        let stored = Self::stored(state);
        let refill = self.refill();
        let (back, tokens) = refill.given_back(stored, at.now, charge.mark, charge.cost);
        let fields = self.fields(tokens);
        if let Some(stored) = state.get_mut().filter(|_| back > 0) {
            *stored = fields; // which live on as long
        }
        back
    }

    fn keep(&self, state: &mut StoredFields, at: At) {
        let tokens = self.refilled(state, at.now);
        state.outlive(self.refill().full_at(&tokens, at));
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, TTL_UNIT, WithNumbers, millis, number, show_key, timed,
        times_to_live,
    };
    use crate::policies::history_tests::{Versioned, units};

    impl Compared for QuotaBucket {
        fn policies() -> BoxedStrategy<Self> {
            // Times to live that are long, and no whole number of TTL_UNIT by less than a second or
            // two.
            let few = (1..40_u32, 1..20_u32);
            let many = (1..4_u32, 500..1_500_u32).prop_map(|(n, half)| (n * half, 2 * half));
            (prop_oneof![few, many], 1..4_i64)
                .prop_map(|((capacity, quota), n)| {
                    let period = Duration::from_millis((n * TTL_UNIT).unsigned_abs());
                    QuotaBucket::new(quota, period).with_capacity(capacity)
                })
                .boxed()
        }

        fn states() -> BoxedStrategy<StoredFields> {
            let times = prop_oneof![8 => -2_000..1_000_i64, 1 => 500..20_000_i64];
            let tokens = (-3..50_i64, times, 0..9_i64);
            let numbers = (1..40_i64, 1..20_i64, 1..900_i64);
            (tokens, numbers, times_to_live())
                .prop_map(|((remain, at, fraction), numbers, time_to_live)| {
                    let (capacity, quota, period) = numbers;
                    let fields = Fields {
                        capacity,
                        quota,
                        period,
                        tokens: Tokens {
                            left: remain,
                            refilled_at: START / 1000 + at,
                            fraction,
                        },
                    };
                    timed(fields, time_to_live)
                })
                .boxed()
        }

        fn show(state: &StoredFields, target: &str) -> Keyspace {
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), state, |fields| {
                let field = |name: &str, number: i64| (name.to_owned(), number.to_string());
                let tokens = &fields.tokens;
                let mut shown = BTreeMap::from([
                    field("capacity", fields.capacity),
                    field("quota", fields.quota),
                    field("period", fields.period),
                    field("remain", tokens.left),
                    field("timestamp", tokens.refilled_at),
                ]);
                if tokens.fraction > 0 {
                    shown.extend([field("timestamp_fraction", tokens.fraction)]);
                }
                Content::Hash(shown)
            });
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            prop_oneof![3 => 1..40_000_i64, 1 => 1..2 * TTL_UNIT].boxed()
        }
    }

    impl WithNumbers for QuotaBucket {
        fn with_numbers(numbers: &[i64]) -> Self {
            Self::new(number(numbers[1]), 1000 * millis(numbers[2]))
                .with_capacity(number(numbers[0]))
        }
    }

    impl Versioned for QuotaBucket {
        fn versions() -> BoxedStrategy<Self> {
            (1..12_u32, 1..6_u32, 1..6_u32)
                .prop_map(|(capacity, quota, n)| Self::new(quota, units(n)).with_capacity(capacity))
                .boxed()
        }
    }

    fn refused(capacity: u32, quota: u32, period: Duration) -> &'static str {
        match Model::validate(&QuotaBucket::new(quota, period).with_capacity(capacity)) {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_number_out_of_its_range_is_named() {
        let minute = Duration::from_secs(60);
        assert_eq!(refused(0, 1, minute), "capacity");
        assert_eq!(refused(1, 0, minute), "quantity");
        for period in [0, 1, 999, 1_001, 1_500] {
            assert_eq!(refused(1, 1, Duration::from_millis(period)), "period");
        }
        assert_eq!(refused(1, 1, Duration::new(1, 1)), "period");
        assert_eq!(refused(1, 1, Duration::MAX), "period");
        let too_long = Duration::from_secs((1 << 20) + 1);
        assert_eq!(refused(u32::MAX, u32::MAX, too_long), "period");
        assert_eq!(refused(u32::MAX, 1, Duration::from_secs(1_049)), "period");
    }

    #[test]
    fn the_largest_cost_is_denied_by_the_smallest_and_slowest_bucket() {
        let policy = QuotaBucket::new(1, Duration::from_secs(1 << 42));
        Model::validate(&policy).unwrap();
        for now in [START, -START] {
            let at = At { now, server: now };
            let answer = policy.evaluate(&StoredFields::default(), at, i64::from(u32::MAX));
            assert!(!answer.is_granted());
            assert_eq!(answer.remaining, 1);
        }
    }

    #[test]
    fn the_ends_of_the_ranges_are_valid() {
        for (capacity, quota, seconds) in [
            (1, 1, 1),
            (1, u32::MAX, 1),
            (u32::MAX, u32::MAX, 1 << 20),
            (u32::MAX, 1, 1_048),
        ] {
            let policy =
                QuotaBucket::new(quota, Duration::from_secs(seconds)).with_capacity(capacity);
            assert!(Model::validate(&policy).is_ok(), "{policy:?}");
        }
    }
}
