//! The script against the model, and the bounds of the numbers.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::keys::{share_a_slot, sibling};
use crate::policies::differential_tests::{
    Compared, Content, Keyspace, START, WithNumbers, millis, number, show_key, timed, times_to_live,
};
use crate::policies::history_tests::{Versioned, units};
use crate::policies::lengths::MOST_OTHERS;
use crate::policies::model::MOST_TOUCHED;

fn policy(limit: u32, window: u64, period: u64) -> SlidingWindowCounter {
    let (window, period) = (Duration::from_millis(window), Duration::from_millis(period));
    SlidingWindowCounter::new(limit, window).with_period(period)
}

/// Two of such windows are no whole number of TTL_UNIT, so that 16 ms make no difference once
/// rounded up.
const WINDOWS: [u64; 4] = [50_000, 60_000, 120_000, 150_000];
const PERIODS: [u64; 5] = [1, 2, 5, 10, 50];

impl Compared for SlidingWindowCounter {
    fn policies() -> BoxedStrategy<Self> {
        let (windows, periods) = (
            prop::sample::select(&WINDOWS),
            prop::sample::select(&PERIODS),
        );
        (1..30_u32, windows, periods, any::<bool>())
            .prop_map(|(limit, window, periods, is_aligned)| {
                let policy = policy(limit, window, window / periods);
                if is_aligned {
                    policy.aligned_to_clock()
                } else {
                    policy
                }
            })
            .boxed()
    }

    fn states() -> BoxedStrategy<Periods> {
        let starts = prop_oneof![
            4 => (-300..9_i64).prop_map(|n| n * 1000),
            4 => -300_000..9_000_i64,
            1 => 0..200_000_i64,
        ];
        let counter = (0..300_i64, -3..20_i64, times_to_live());
        let periods = prop::sample::select(&[1_000_i64, 5_000, 6_000, 10_000, 30_000]);
        (
            prop::option::of((starts, times_to_live())),
            periods,
            prop::collection::vec(counter, 0..20),
            prop::option::of((lengths(), times_to_live())),
            prop::collection::vec((any::<prop::sample::Index>(), 1..5_i64), 0..6),
        )
            .prop_map(|(start, period, counters, lengths, of_lengths)| {
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
                let Some((lengths, time_to_live)) = lengths else {
                    return state;
                };
                if let Lengths::Several(all) = &lengths {
                    for (place, count) in of_lengths {
                        let series = place.get(all);
                        let last = series.last - place.index(1_001) as i64 * series.period;
                        *state.counters.of(last) = timed(count, time_to_live);
                    }
                }
                state.lengths = timed(lengths, time_to_live);
                state
            })
            .boxed()
    }

    fn show(state: &Periods, target: &str) -> Keyspace {
        let number = |number: &i64| Content::Text(number.to_string());
        let mut keyspace = Keyspace::new();
        show_key(&mut keyspace, sibling(target, "-st"), &state.start, number);
        show_key(
            &mut keyspace,
            sibling(target, "-periods"),
            &state.lengths,
            |lengths| Content::of_bytes(&as_bytes(lengths)),
        );
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

/// As calls of other policies leave them. Some have more periods in a window than a call reads.
fn lengths() -> impl Strategy<Value = Lengths> {
    let windows = prop::sample::select(&WINDOWS);
    let periods = prop::sample::select(&[10_i64, 1_000, 2_500, 6_000, 30_000]);
    let series = (windows, periods, -200..200_i64).prop_map(|(window, period, last)| Series {
        window: window as i64,
        period,
        last: START + last * 1_000,
    });
    prop_oneof![
        series.clone().prop_map(|series| Lengths::One {
            window: series.window,
            period: series.period,
        }),
        prop::collection::vec(series.clone(), 1..4).prop_map(Lengths::Several),
        prop::collection::vec(series, 16).prop_map(Lengths::Several),
    ]
}

fn as_bytes(lengths: &Lengths) -> Vec<u8> {
    let numbers = match lengths {
        Lengths::One { window, period } => vec![*window, *period],
        Lengths::Several(all) => {
            let numbers = all.iter().map(|it| [it.window, it.period, it.last]);
            numbers.flatten().collect()
        }
    };
    let bytes = numbers.into_iter().map(|it| (it as f64).to_le_bytes());
    bytes.flatten().collect()
}

impl WithNumbers for SlidingWindowCounter {
    fn with_numbers(numbers: &[i64]) -> Self {
        Self::new(number(numbers[0]), millis(numbers[1])).with_period(millis(numbers[2]))
    }
}

impl Versioned for SlidingWindowCounter {
    /// Every other one has the default period.
    fn versions() -> BoxedStrategy<Self> {
        let periods = prop_oneof![2 => Just(1_u32), 1 => 2..4_u32];
        (1..8_u32, periods, 1..10_u32, any::<bool>())
            .prop_map(|(limit, period, n, is_default)| match is_default {
                true => Self::new(limit, units(n)),
                false => Self::new(limit, units(period * n)).with_period(units(period)),
            })
            .boxed()
    }

    fn span(&self) -> Option<i64> {
        Some((self.window() - self.period()).as_millis() as i64)
    }
}

#[test]
fn counters_of_any_number_are_summed_exactly() {
    let policy = policy(5, 5_000, 10);
    let most = 1_i64 << 53;
    for (count, is_granted) in [(most, false), (-most, true)] {
        let counters = (-5_000..1_000).flat_map(|last| [last, count]);
        let numbers: Vec<i64> = [-5_000].into_iter().chain(counters).collect();
        let at = At { now: 0, server: 0 };
        let state = policy.state_from_reply(at, &numbers).unwrap();
        let open = policy.open(&state, 0);
        let counts = open.held(&state).map(|(_, count)| i128::from(count.abs()));
        let summed: i128 = counts.sum();
        assert!(summed > i128::from(i64::MAX), "{summed}");
        let answer = policy.evaluate(&state, at, 5);
        assert_eq!((answer.is_granted(), answer.remaining), (is_granted, 0));
    }
}

/// The script extends a life once in a call, before it counts.
#[test]
fn a_further_request_before_the_first_period_extends_no_life() {
    let policy = policy(5, 60_000, 10_000);
    let at = At {
        now: 1_000,
        server: 0,
    };
    let mut state = Periods {
        start: timed(31_000, Some(90_000)),
        ..Periods::default()
    };
    policy.charge(&mut state, at, 1);
    let after_the_first = state.clone();
    assert_eq!(state.start.expires_at(), Some(145_000 - 1));
    policy.charge(&mut state, at, 1);
    *state.counters.of(40_999).get_or_set(|| 0) -= 1;
    assert_eq!(state, after_the_first);
}

/// A client with a longer window may count it, and then it must have been extended.
#[test]
fn a_length_is_known_for_as_long_as_a_counter_of_it_may_live() {
    let at = At {
        now: 1_100_600,
        server: 0,
    };
    let series = |window, period, last| Series {
        window,
        period,
        last,
    };
    let lengths = vec![
        series(600_000, 100_000, 499_999),
        series(100_000, 10_000, 479_999),
    ];
    let mut state = Periods {
        start: timed(0, Some(450_000)),
        lengths: timed(Lengths::Several(lengths), Some(450_000)),
        ..Periods::default()
    };
    *state.counters.of(479_999) = timed(1, Some(450_016));
    policy(1, 100_000, 100_000).charge(&mut state, at, 1);
    let longer = policy(6, 1_400_000, 200_000);
    assert_eq!(longer.evaluate(&state, at, 1).remaining, 3);
    longer.keep(&mut state, at);
    assert!(state.counters.of(479_999).expires_at() > Some(1_880_000 - at.now));
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
    assert_eq!(refused(policy(1, 1_500, 500).aligned_to_clock()), "window");
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
    policy(1, 3_000, 500).aligned_to_clock().validate().unwrap();
}

#[test]
fn no_policy_and_no_other_lengths_have_a_call_read_more_than_it_may() {
    let most = policy(1, 500, 1);
    most.validate().unwrap();
    assert!(i64::from(most.touches(1)) + MOST_OTHERS <= i64::from(MOST_TOUCHED));
}

#[test]
fn the_keys_of_a_target_show_that_its_counters_would_be_in_several_slots() {
    let keys = |target| policy(1, 10, 1).keys(target);
    assert!(share_a_slot(&keys("user:123")));
    assert!(share_a_slot(&keys("a}b")));
    assert!(!share_a_slot(&keys("}b")));
}
