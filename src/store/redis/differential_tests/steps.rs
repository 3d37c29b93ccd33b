//! The random steps.

use proptest::prelude::*;

use super::TTL_UNIT;
use crate::permit;
use crate::rate::{LARGEST_RATE, RateType};
use crate::store::{IfMissing, PermitsInUse};
use crate::window::{Ahead, Condition, Retry, SetUp, Settings, Settlement, Share, any_existing};

#[derive(Debug, Clone)]
pub(super) enum Step {
    Pass(i64),
    Acquire(Request),
    /// The last acquire, sent again.
    SendAgain(Before),
    /// The same bytes again, as a proxy may send them, if the last acquire was a single request.
    Copy,
    /// Gives back what the last acquire took.
    Reclaim(Before),
    Release(u32, Option<i64>),
    /// For this many ms.
    Hold(i64, Option<i64>),
    /// The grant of one of the last acquires, all of it or less.
    Refund(usize, u32, Option<i64>),
    /// The lease of one of the last acquires.
    Settle(usize, Settlement, Option<i64>),
    AvailablePermits,
    TrySetRate(Settings),
    SetRate(Settings),
    UpdateRate(Settings, PermitsInUse, IfMissing),
    Config,
    Exists,
    Delete,
    Expire(Condition),
    ExpireAt,
    ClearExpire,
    RemainTimeToLive,
    Corrupt(Corrupt),
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) runs: Vec<(u32, u32)>,
    pub(super) fifo: bool,
    pub(super) share: Option<Share>,
    pub(super) debt: bool,
    pub(super) newer_than_age: Option<i64>,
    pub(super) audited_rate: Option<i64>,
    pub(super) set_up: Option<SetUp>,
    /// Of the settings in `set_up` only the keep alive differs from those of the limiter.
    pub(super) only_keep_alive: bool,
    pub(super) ahead: Option<Ahead>,
}

/// Earlier attempts: whether one may still arrive, and how far the earliest and latest times of
/// their scores lie around the true ones.
#[derive(Debug, Clone)]
pub(super) struct Before {
    may_arrive: bool,
    earlier: i64,
    later: i64,
}

impl Before {
    pub(super) fn retry(&self, first: i64, last: i64) -> Retry {
        Retry {
            previous_deadline: if self.may_arrive { NEVER } else { -1 },
            from: first - self.earlier,
            to: last + self.later,
        }
    }
}

/// Less than the largest by more than the debts and reservations of a case: where a limiter of that
/// rate owes these and its rate is lowered, its value is still one that Lua counts exactly.
const LARGE_RATE: i64 = LARGEST_RATE as i64 - (1 << 40);

/// A deadline that never comes, in ms.
pub(super) const NEVER: i64 = 1 << 52;

/// What peers, evictions and operators do to the keys.
#[derive(Debug, Clone)]
pub(super) enum Corrupt {
    Value(Option<i64>),
    LosePermits,
    LoseHash,
    Member { age: i64, member: Vec<u8> },
}

fn a_rate_type() -> impl Strategy<Value = RateType> {
    prop_oneof![3 => Just(RateType::Overall), 1 => Just(RateType::PerClient)]
}

pub(super) fn a_rate() -> impl Strategy<Value = Settings> {
    (
        prop_oneof![8 => 1..20_i64, 1 => Just(LARGE_RATE)],
        // One that is longer than a keep alive becomes a time to live.
        prop_oneof![24 => 1..2000_i64, 1 => TTL_UNIT - 3..=TTL_UNIT, 1 => Just(2 * TTL_UNIT)],
        a_rate_type(),
        prop_oneof![3 => Just(0), 1 => (1..9_i64).prop_map(|n| n * TTL_UNIT)],
    )
        .prop_map(|(rate, interval, rate_type, keep_alive)| Settings {
            rate,
            interval,
            rate_type,
            keep_alive,
        })
}

fn a_member() -> impl Strategy<Value = Vec<u8>> {
    let call_id = prop_oneof![
        prop::collection::vec(any::<u8>(), 16),
        prop::collection::vec(any::<u8>(), 8)
    ];
    prop_oneof![
        8 => (call_id, 0..6_u32).prop_map(|(call_id, permits)| permit::encode(&call_id, permits).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..24),
    ]
}

fn audited_rate() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(1..20_i64)
}

fn set_up() -> impl Strategy<Value = SetUp> {
    (a_rate(), any_existing()).prop_map(|(rate, existing)| SetUp {
        settings: rate,
        existing,
    })
}

fn before() -> impl Strategy<Value = Before> {
    let age = || prop_oneof![1 => Just(0), 1 => 0..2_000_i64];
    (prop::bool::weighted(0.2), age(), age()).prop_map(|(may_arrive, earlier, later)| Before {
        may_arrive,
        earlier,
        later,
    })
}

fn a_request() -> impl Strategy<Value = Request> {
    let runs = prop::collection::vec((1..8_u32, 1..5_u32), 1..4);
    let one = (1..8_u32).prop_map(|permits| vec![(permits, 1)]);
    let huge = Just(vec![(u32::MAX, 1)]);
    let share = (0..=1_000_i64, -3_000..3_000_i64);
    let share = share.prop_map(|(permille, credit)| Share { permille, credit });
    (
        prop_oneof![4 => one, 2 => runs, 1 => huge],
        any::<bool>(),
        prop::option::weighted(0.2, share),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.2, -300..1_500_i64),
        audited_rate(),
        prop::option::weighted(0.1, set_up()),
        any::<bool>(),
        ahead(),
    )
        .prop_map(
            |(
                runs,
                fifo,
                share,
                debt,
                newer_than_age,
                audited_rate,
                set_up,
                only_keep_alive,
                ahead,
            )| {
                let reserves = matches!(ahead, Some(Ahead::Reservation { .. }));
                let debt = debt && !reserves;
                Request {
                    runs: if debt || reserves {
                        vec![(runs[0].0, 1)]
                    } else {
                        runs
                    },
                    fifo: fifo && !debt && !reserves,
                    share: share.filter(|_| !debt && !reserves),
                    debt,
                    newer_than_age,
                    audited_rate,
                    set_up,
                    only_keep_alive,
                    ahead,
                }
            },
        )
}

/// The length of a lease, in ms. The longest exceed the time to live of a limiter that has one.
fn ahead() -> impl Strategy<Value = Option<Ahead>> {
    let millis = prop_oneof![8 => 1..1_500_i64, 1 => Just(100 * TTL_UNIT)];
    let within = prop_oneof![1 => Just(0), 4 => 0..3_000_i64, 1 => Just(100 * TTL_UNIT)];
    prop::option::weighted(
        0.4,
        prop_oneof![
            2 => millis.prop_map(Ahead::Lease),
            1 => within.prop_map(|within| Ahead::Reservation { within }),
        ],
    )
}

fn a_settling() -> impl Strategy<Value = Step> {
    let settlement = (0..8_u32, prop_oneof![1 => Just(0), 2 => 0..1_500_i64]);
    let settlement = settlement.prop_map(|(used, early)| Settlement { used, early });
    (0..4_usize, settlement, audited_rate())
        .prop_map(|(which, settlement, summed)| Step::Settle(which, settlement, summed))
}

fn a_release() -> impl Strategy<Value = Step> {
    (1..12_u32, audited_rate()).prop_map(|(permits, summed)| Step::Release(permits, summed))
}

fn a_hold() -> impl Strategy<Value = Step> {
    let millis = prop_oneof![8 => 1..4_000_i64, 1 => Just(100 * TTL_UNIT), 1 => Just(NEVER)];
    (millis, audited_rate()).prop_map(|(millis, summed)| Step::Hold(millis, summed))
}

fn a_refund() -> impl Strategy<Value = Step> {
    (0..4_usize, 1..12_u32, audited_rate())
        .prop_map(|(which, permits, summed)| Step::Refund(which, permits, summed))
}

pub(super) fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..800_i64).prop_map(Step::Pass),
        16 => a_request().prop_map(Step::Acquire),
        2 => before().prop_map(Step::SendAgain),
        2 => Just(Step::Copy),
        1 => before().prop_map(Step::Reclaim),
        3 => a_release(),
        1 => a_hold(),
        3 => a_refund(),
        3 => a_settling(),
        2 => Just(Step::AvailablePermits),
        1 => a_rate().prop_map(Step::TrySetRate),
        1 => a_rate().prop_map(Step::SetRate),
        2 => (
            a_rate(),
            prop_oneof![Just(PermitsInUse::Keep), Just(PermitsInUse::Reset)],
            prop_oneof![Just(IfMissing::Create), Just(IfMissing::DoNothing)],
        )
            .prop_map(|(rate, state, if_missing)| Step::UpdateRate(rate, state, if_missing)),
        1 => prop_oneof![
            Just(Step::Config),
            Just(Step::Exists),
            Just(Step::Delete),
            Just(Step::ExpireAt),
            Just(Step::ClearExpire),
            Just(Step::RemainTimeToLive),
        ],
        1 => prop_oneof![
            Just(Condition::Always),
            Just(Condition::IfNotSet),
            Just(Condition::IfSet),
            Just(Condition::IfGreater),
            Just(Condition::IfLess),
        ]
        .prop_map(Step::Expire),
        3 => prop_oneof![
            2 => prop::option::of(-5..30_i64).prop_map(Corrupt::Value),
            1 => Just(Corrupt::LosePermits),
            1 => Just(Corrupt::LoseHash),
            2 => (-300..1500_i64, a_member()).prop_map(|(age, member)| Corrupt::Member { age, member }),
        ]
        .prop_map(Step::Corrupt),
    ]
}

/// Has room for more grants than a call sums.
pub(super) fn a_larger_rate() -> impl Strategy<Value = Settings> {
    (15..60_i64, 500..4_000_i64, a_rate_type()).prop_map(|(rate, interval, rate_type)| Settings {
        rate,
        interval,
        rate_type,
        keep_alive: 0,
    })
}

/// Nearly all grants are small, nothing resets the limiter, and peers change the value: so there
/// often are more grants than a call sums, with a value that does not agree with them.
pub(super) fn a_step_among_many_grants() -> impl Strategy<Value = Step> {
    let small = (1..3_u32).prop_map(|permits| vec![(permits, 1)]);
    let request = (a_request(), prop::option::weighted(0.9, small)).prop_map(|(request, small)| {
        let runs = small.unwrap_or_else(|| request.runs.clone());
        Request {
            runs,
            set_up: None,
            ..request
        }
    });
    let permits = prop_oneof![Just(0), Just(1), Just(2), Just(9)];
    let member = (any::<[u8; 16]>(), permits)
        .prop_map(|(call_id, permits)| permit::encode(&call_id, permits).to_vec());
    prop_oneof![
        6 => (1..400_i64).prop_map(Step::Pass),
        16 => request.prop_map(Step::Acquire),
        1 => before().prop_map(Step::SendAgain),
        1 => Just(Step::Copy),
        1 => before().prop_map(Step::Reclaim),
        2 => a_release(),
        2 => a_refund(),
        2 => a_settling(),
        1 => Just(Step::AvailablePermits),
        3 => a_larger_rate()
            .prop_map(|rate| Step::UpdateRate(rate, PermitsInUse::Keep, IfMissing::DoNothing)),
        2 => prop_oneof![
            prop::option::of(-5..60_i64).prop_map(Corrupt::Value),
            (-4_000..1_500_i64, member).prop_map(|(age, member)| Corrupt::Member { age, member }),
        ]
        .prop_map(Step::Corrupt),
    ]
}

/// A few calls that are sent again and again, and whose grants shrink in between: a copy that finds
/// only a part of its grant is granted another one of the same id.
pub(super) fn a_step_among_copies() -> impl Strategy<Value = Step> {
    let request = (a_request(), 2..5_u32).prop_map(|(request, permits)| Request {
        runs: vec![(permits, 1)],
        share: None,
        debt: false,
        set_up: None,
        ..request
    });
    let passed = prop_oneof![3 => 1..100_i64, 1 => 500..2_500_i64]; // an interval: what expired meanwhile stays until a call
    let refund = (0..3_usize, 1..3_u32, audited_rate());
    let refund = refund.prop_map(|(which, permits, summed)| Step::Refund(which, permits, summed));
    let value = (15..60_i64).prop_map(|value| Step::Corrupt(Corrupt::Value(Some(value))));
    prop_oneof![
        4 => passed.prop_map(Step::Pass),
        2 => request.prop_map(Step::Acquire),
        1 => before().prop_map(Step::SendAgain),
        8 => Just(Step::Copy),
        1 => before().prop_map(Step::Reclaim),
        4 => (1..3_u32, audited_rate()).prop_map(|(permits, summed)| Step::Release(permits, summed)),
        8 => refund,
        2 => a_settling(),
        1 => value,
    ]
}
