//! One number for each target: the theoretical arrival time, at which all that was taken has come
//! back. Each unit of cost moves it by the emission interval, from now on at the earliest; a
//! request is granted if it stays within the burst. Times are in microseconds, but for those of
//! answers and times to live, and for the clock, which is read to the millisecond.
//!
//! The key expires at the arrival time, which no policy needs longer, whatever its numbers.

use std::time::Duration;

use super::Gcra;
use crate::error::{Result, at_least_one, require};
use crate::policies::answer::Answer;
use crate::policies::arithmetic::{LONGEST, div_ceil};
use crate::policies::model::{Charge, Model};
use crate::rate::whole_millis;
use crate::window::{At, Timed};

/// The theoretical arrival time.
pub(crate) type Arrival = Timed<i64>;

impl Gcra {
    /// How far the arrival time of a granted request may be ahead.
    #[inline]
    fn tolerance(&self) -> i64 {
        i64::from(self.burst).saturating_mul(self.interval)
    }

    /// The arrival time at `now`, in ms: a target that has everything back has that of now.
    #[inline]
    fn arrival(state: &Arrival, now: i64) -> i64 {
        let now = micros(now);
        state.get().map_or(now, |&stored| stored.max(now))
    }
}

/// The time in which a permit comes back, in us.
pub(super) fn interval_micros(quantity: u32, period: Duration) -> i64 {
    let micros = period.as_micros().div_ceil(u128::from(quantity.max(1)));
    i64::try_from(micros).unwrap_or(i64::MAX) // refused where it does not fit
}

#[inline]
fn micros(millis: i64) -> i64 {
    millis * 1_000
}

impl Model for Gcra {
    type State = Arrival;

    fn validate(&self) -> Result<()> {
        at_least_one(self.quantity, "quantity")?;
        at_least_one(self.burst, "burst")?;
        whole_millis(self.period, "period")?;
        require(
            u128::from(self.quantity) <= self.period.as_micros(),
            "quantity",
            "must be less: at most one for each microsecond of the period",
        )?;
        require(
            self.tolerance() <= LONGEST,
            "burst",
            "must be less: all of it would be back only after 2^52 us",
        )
    }

    fn example(limit: u32, window: Duration) -> Self {
        Self::new(limit, window)
    }

    fn limit(&self) -> i64 {
        i64::from(self.burst)
    }

    fn window(&self) -> i64 {
        div_ceil(self.tolerance(), 1_000)
    }

    fn numbers(&self) -> Vec<i64> {
        vec![i64::from(self.burst), self.interval]
    }

    fn state_from_reply(&self, _at: At, numbers: &[i64]) -> Option<Arrival> {
        let &[arrival] = numbers else {
            return None;
        };
        let mut state = Arrival::default();
        state.set(arrival);
        Some(state)
    }

    #[inline]
    fn evaluate(&self, state: &Arrival, at: At, cost: i64) -> Answer {
        let (interval, tolerance) = (self.interval, self.tolerance());
        let room = micros(at.now) + tolerance - Self::arrival(state, at.now);
        let until_there_are = |wanted: i64| {
            let missing = wanted.saturating_mul(interval).saturating_sub(room);
            div_ceil(missing, 1_000).max(0)
        };
        Answer::of_tokens(
            i64::from(self.burst),
            div_ceil(tolerance, 1_000),
            room.div_euclid(interval),
            cost,
            at.now,
            until_there_are,
        )
    }

    #[inline]
    fn charge(&self, state: &mut Arrival, at: At, cost: i64) {
        let arrival = Self::arrival(state, at.now) + cost * self.interval;
        state.set(arrival);
        state.expire_at(at.server + div_ceil(arrival - micros(at.now), 1_000));
    }

    fn give_back(&self, state: &mut Arrival, at: At, charge: &Charge) -> i64 {
        let (interval, now) = (self.interval, micros(at.now));
        let arrival = Self::arrival(state, at.now);
        let charged = charge.cost.saturating_mul(interval) - (now - micros(charge.mark)).max(0);
        let back = charged.min(arrival - now).div_euclid(interval).max(0);
        let earlier = arrival - back * interval;
        if back > 0 && earlier > now {
            state.set(earlier);
            state.expire_at(at.server + div_ceil(earlier - now, 1_000));
        } else if back > 0 {
            state.remove();
        }
        back
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;
    use crate::policies::differential_tests::{
        Compared, Content, Keyspace, START, TTL_UNIT, WithNumbers, millis, number, show_key, timed,
        times_to_live,
    };
    use crate::policies::history_tests::{Versioned, units};

    impl Compared for Gcra {
        fn policies() -> BoxedStrategy<Self> {
            // Some have an emission interval that is no whole number of microseconds, but at least
            // TTL_UNIT.
            (1..20_u32, 1..4_u32, 1..4_i64, 0..3_i64)
                .prop_map(|(burst, quantity, n, more)| {
                    let period = n * i64::from(quantity) * TTL_UNIT + more;
                    Gcra::new(quantity, millis(period)).with_burst(burst)
                })
                .boxed()
        }

        fn states() -> BoxedStrategy<Arrival> {
            let ahead = prop_oneof![
                4 => -9_000_000..40_000 * TTL_UNIT,
                1 => (-2..9_i64).prop_map(|n| n * 1_000 * TTL_UNIT),
            ];
            (ahead, times_to_live())
                .prop_map(|(ahead, time_to_live)| timed(micros(START) + ahead, time_to_live))
                .boxed()
        }

        fn show(state: &Arrival, target: &str) -> Keyspace {
            let mut keyspace = Keyspace::new();
            show_key(&mut keyspace, target.to_owned(), state, |arrival| {
                Content::Text(arrival.to_string())
            });
            keyspace
        }

        fn pauses() -> BoxedStrategy<i64> {
            prop_oneof![3 => 1..TTL_UNIT / 2, 1 => 1..6 * TTL_UNIT].boxed()
        }
    }

    impl WithNumbers for Gcra {
        fn with_numbers(numbers: &[i64]) -> Self {
            // A thousand in `n` ms are one in `n` microseconds.
            Self::new(1_000, millis(numbers[1])).with_burst(number(numbers[0]))
        }
    }

    impl Versioned for Gcra {
        fn versions() -> BoxedStrategy<Self> {
            (1..12_u32, 1..6_u32, 1..6_u32)
                .prop_map(|(burst, quantity, n)| Self::new(quantity, units(n)).with_burst(burst))
                .boxed()
        }
    }

    #[test]
    fn each_number_out_of_its_range_is_named() {
        let refused = |policy: Gcra| match Model::validate(&policy) {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(Gcra::per_second(0)), "quantity");
        assert_eq!(refused(Gcra::per_second(1_000_001)), "quantity");
        assert_eq!(
            refused(Gcra::new(1_001, Duration::from_millis(1))),
            "quantity"
        );
        assert_eq!(refused(Gcra::per_second(1).with_burst(0)), "burst");
        for period in [Duration::ZERO, Duration::from_micros(1_500), Duration::MAX] {
            assert_eq!(refused(Gcra::new(1, period)), "period");
        }
        let slow = Gcra::new(1, Duration::from_millis(1 << 20));
        assert_eq!(refused(slow.clone().with_burst(u32::MAX)), "burst");
        for policy in [
            Gcra::per_second(1_000_000).with_burst(u32::MAX),
            Gcra::new(u32::MAX, Duration::from_millis(4_294_968)),
            slow.with_burst(1 << 22),
        ] {
            Model::validate(&policy).unwrap();
        }
    }

    #[test]
    fn the_emission_interval_is_rounded_up_by_less_than_a_microsecond() {
        for (policy, micros) in [
            (Gcra::per_second(1_000_000), 1),
            (Gcra::per_second(999_999), 2),
            (Gcra::per_second(7), 142_858),
            (Gcra::per_minute(7), 8_571_429),
            (Gcra::per_hour(1), 3_600_000_000),
        ] {
            assert_eq!(policy.interval, micros, "{policy}");
        }
    }
}
