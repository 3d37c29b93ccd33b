//! Tokens that come in at a steady rate; a request takes its cost out of them. Times are in ms.

use std::time::Duration;

use super::TokenBucket;
use crate::error::{Result, at_least_one};
use crate::policies::answer::Answer;
use crate::policies::arithmetic::{div_ceil, fitting};
use crate::policies::model::{Charge, Model};
use crate::policies::refill::{Refill, Tokens};
use crate::policies::state::Content;
use crate::window::{At, Timed};

/// What one bucket's hash holds.
pub(crate) type StoredTokens = Timed<Tokens>;

impl Content for Tokens {}

impl TokenBucket {
    #[inline]
    fn refill(&self) -> Refill {
        Refill {
            capacity: i64::from(self.capacity),
            rate: i64::from(self.rate),
            period: 1000,
            unit: 1,
        }
    }

    #[inline]
    fn refilled(&self, state: &StoredTokens, now: i64) -> Tokens {
        self.refill().refilled(state.get().copied(), now)
    }
}

impl Model for TokenBucket {
    type State = StoredTokens;

    fn validate(&self) -> Result<()> {
        at_least_one(self.rate, "rate")?;
        at_least_one(self.capacity, "capacity")
    }

    fn example(limit: u32, window: Duration) -> Self {
        let millis = window.as_millis().max(1);
        match u128::from(limit) * 1000 / millis {
            // A token a second is the slowest pace: the limit is counted in more of them.
            0 => Self::per_second(1).with_capacity(fitting(millis / 1000)),
            rate => Self::per_second(fitting(rate)).with_capacity(limit),
        }
    }

    fn limit(&self) -> i64 {
        i64::from(self.capacity)
    }

    fn window(&self) -> i64 {
        self.refill().time_to_fill()
    }

    fn numbers(&self) -> Vec<i64> {
        vec![i64::from(self.capacity), i64::from(self.rate)]
    }

    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<StoredTokens> {
        let &[left, refilled_at, fraction] = numbers else {
            return None;
        };
        let mut state = StoredTokens::default();
        state.set(Tokens {
            left,
            refilled_at,
            fraction,
        });
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &StoredTokens, at: At, cost: i64) -> Answer {
        let tokens = self.refilled(state, at.now);
        self.refill().evaluate(&tokens, at.now, cost)
    }

    #[inline]
    fn charge(&self, state: &mut StoredTokens, at: At, cost: i64) {
        let mut tokens = self.refilled(state, at.now);
        tokens.left -= cost;
        let needed = self.refill().full_at(&tokens, at);
        let times_to_fill = |times| {
            let time = div_ceil(
                times * i64::from(self.capacity) * 1000,
                i64::from(self.rate),
            );
            at.server + time
        };
        let needed = needed.max(times_to_fill(2));
        let end = state.extended_life(needed, times_to_fill(3));
        state.set(tokens);
        state.expire_at(end);
    }

    /// The mark is the time of the charge.
    fn give_back(&self, state: &mut StoredTokens, at: At, charge: &Charge) -> i64 {
        let stored = state.get().copied();
        let refill = self.refill();
        let (back, tokens) = refill.given_back(stored, at.now, charge.mark, charge.cost);
        if let Some(stored) = state.get_mut().filter(|_| back > 0) {
            *stored = tokens; // which lives on as long
        }
        back
    }

    fn keep(&self, state: &mut StoredTokens, at: At) {
        let tokens = self.refilled(state, at.now);
        state.outlive(self.refill().full_at(&tokens, at));
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, WithNumbers, number, show_key, timed, times_to_live,
    };
    use crate::policies::history_tests::Versioned;

    impl Compared for TokenBucket {
        fn policies() -> BoxedStrategy<Self> {
            // 500 tokens a token a second: twice the time to fill is 1000 s.
            (1..4_u32, prop_oneof![1..9_u32, 500..1_500_u32])
                .prop_map(|(n, rate)| TokenBucket::per_second(rate).with_capacity(500 * n * rate))
                .boxed()
        }

        fn states() -> BoxedStrategy<StoredTokens> {
            let times = prop_oneof![8 => -9_000..1_000_i64, 1 => 400_000..2_000_000_i64];
            (-3..3_000_i64, times, 0..9_i64, times_to_live())
                .prop_map(|(left, at, fraction, time_to_live)| {
                    let refilled_at = START + at;
                    let tokens = Tokens {
                        left,
                        refilled_at,
                        fraction,
                    };
                    timed(tokens, time_to_live)
                })
                .boxed()
        }

        fn show(state: &StoredTokens, target: &str) -> Keyspace {
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), state, |tokens| {
                let field = |name: &str, number: i64| (name.to_owned(), number.to_string());
                let mut fields = BTreeMap::from([
                    field("tokens", tokens.left),
                    field("last_refill_timestamp", tokens.refilled_at),
                ]);
                if tokens.fraction > 0 {
                    fields.extend([field("last_refill_fraction", tokens.fraction)]);
                }
                Content::Hash(fields)
            });
            keyspace
        }
    }

    impl WithNumbers for TokenBucket {
        fn with_numbers(numbers: &[i64]) -> Self {
            Self::per_second(number(numbers[1])).with_capacity(number(numbers[0]))
        }
    }

    impl Versioned for TokenBucket {
        const COST: u32 = 100_000;

        fn versions() -> BoxedStrategy<Self> {
            (1..9_u32, 1..6_u32)
                .prop_map(|(n, rate)| Self::per_second(rate).with_capacity(n * Self::COST))
                .boxed()
        }
    }
}
