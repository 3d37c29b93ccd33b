//! Random histories of leases and reservations beside ordinary requests, against an oracle of when
//! permits were really used: no window holds more uses than the rate that was in force.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{Acquire, Ahead, At, Existing, Expiry, Requests, SetUp, Settings, Settlement, Window};
use crate::grant::Grant;
use crate::rate::RateType;
use crate::window::Condition;

const CLIENT: &str = "a";
const INTERVAL: i64 = 20;
const LONGEST_LEASE: i64 = 15;

#[derive(Debug, Clone)]
enum Step {
    Pass(i64),
    /// Permits that are used at once, or not at all.
    Acquire(u32, bool),
    /// All permits that are left, which are used at once.
    AcquireAll,
    Lease(u32, i64),
    /// A reservation that can be used within this time.
    Reserve(u32, i64),
    /// One of the last leases is used for a request, which then uses the permits or not.
    Use(usize, u32, bool),
    /// One of the last leases ends.
    End(usize),
    /// An ended lease is settled, perhaps late, or a second time.
    Settle(usize),
    /// Permits that a request did not use come back.
    Refund(usize),
    /// Unused permits are released by a client without a lease, which names no grant.
    Release(usize),
    ChangeRate(i64),
    AvailablePermits,
}

#[derive(Debug)]
struct Lease {
    grant: Grant,
    made: i64,
    usable_at: i64,
    left: u32,
    last_use: i64,
    settlement: Option<Settlement>,
}

/// Permits that were taken and are not used: those of a request, or of a request to a lease.
#[derive(Debug)]
struct Unused {
    permits: u32,
    taken: i64,
    of: Result<Grant, usize>,
}

/// When permits were used, how many, and when they were taken.
type Use = (i64, u32, i64);

struct History {
    window: Window,
    set_up: SetUp,
    now: i64,
    calls: u8,
    leases: Vec<Lease>,
    unused: Vec<Unused>,
    uses: Vec<Use>,
    /// The rates, and since when each was in force.
    rates: Vec<(i64, i64)>,
}

impl History {
    fn at(&self) -> At {
        At {
            now: self.now,
            server: self.now,
        }
    }

    fn acquire(&mut self, permits: u32, ahead: Option<Ahead>) -> Option<(Grant, i64)> {
        self.calls += 1;
        let call = Acquire {
            id: [self.calls; 16],
            // No member is written by hand.
            audited_rate: Some(self.set_up.settings.rate),
            requests: Requests::one(permits),
            newer_than: None,
            set_up: Some(self.set_up),
            ahead,
        };
        let answer = self.window.acquire(self.at(), CLIENT, &call).unwrap();
        let is_granted = call.requests.taken(&answer) > 0;
        assert_eq!(answer.score, self.now + answer.until_score);
        is_granted.then(|| (answer.grant(call.id, permits), answer.until_score))
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Pass(millis) => self.now += millis,
            Step::Acquire(permits, is_used) => {
                let Some((grant, _)) = self.acquire(permits, None) else {
                    return;
                };
                match is_used {
                    true => self.uses.push((self.now, permits, self.now)),
                    false => self.unused.push(Unused {
                        permits,
                        taken: self.now,
                        of: Ok(grant),
                    }),
                }
            }
            Step::AcquireAll => {
                let left = self.window.available_permits(self.at(), CLIENT);
                let left = left.map_or(self.set_up.settings.rate, |left| left);
                if left > 0 {
                    self.take(&Step::Acquire(left as u32, true));
                }
            }
            Step::Lease(permits, millis) => {
                if let Some((grant, _)) = self.acquire(permits, Some(Ahead::Lease(millis))) {
                    self.begin(grant, self.now);
                }
            }
            Step::Reserve(permits, within) => {
                let ahead = Some(Ahead::Reservation { within });
                if let Some((grant, until_score)) = self.acquire(permits, ahead) {
                    let until_usable = until_score - INTERVAL;
                    assert!(until_usable <= within);
                    self.begin(grant.with_span(INTERVAL), self.now + until_usable);
                }
            }
            Step::Use(back, permits, is_used) => {
                let Some(of) = self.leases.len().checked_sub(back + 1) else {
                    return;
                };
                let (now, lease) = (self.now, &mut self.leases[of]);
                let is_over = lease.settlement.is_some() || now > lease.grant.score;
                let permits = permits.min(lease.left);
                if is_over || now < lease.usable_at || permits == 0 {
                    return;
                }
                lease.left -= permits;
                lease.last_use = now;
                match is_used {
                    true => self.uses.push((now, permits, lease.made)),
                    false => self.unused.push(Unused {
                        permits,
                        taken: now,
                        of: Err(of),
                    }),
                }
            }
            Step::End(back) => {
                let Some(of) = self.leases.len().checked_sub(back + 1) else {
                    return;
                };
                let lease = &mut self.leases[of];
                lease.settlement.get_or_insert(Settlement {
                    used: lease.grant.permits - lease.left,
                    early: lease.grant.score - lease.last_use,
                });
            }
            Step::Settle(back) => {
                self.take(&Step::End(back));
                let Some(of) = self.leases.len().checked_sub(back + 1) else {
                    return;
                };
                let (at, rate) = (self.at(), Some(self.set_up.settings.rate));
                let lease = &self.leases[of];
                if let Some(settlement) = lease.settlement {
                    let _ = self
                        .window
                        .settle(at, CLIENT, &lease.grant, settlement, rate);
                }
            }
            Step::Refund(back) => {
                let Some(unused) = self.take_unused(back) else {
                    return;
                };
                let grant = match unused.of {
                    Ok(grant) => grant,
                    Err(of) => {
                        let lease = &mut self.leases[of];
                        if lease.settlement.is_none() {
                            lease.left += unused.permits; // it is given back within the lease
                            return;
                        }
                        let Grant {
                            score,
                            span,
                            call_id,
                            ..
                        } = lease.grant;
                        Grant::new(score, call_id, unused.permits).with_span(span)
                    }
                };
                let (at, rate) = (self.at(), Some(self.set_up.settings.rate));
                let _ = self.window.refund(at, CLIENT, &grant, rate);
            }
            Step::Release(back) => {
                let now = self.now;
                let unused = self.take_unused(back);
                // A release of permits that are back already would free those of others.
                if let Some(unused) = unused.filter(|unused| unused.taken > now - INTERVAL) {
                    let (at, rate) = (self.at(), Some(self.set_up.settings.rate));
                    let _ = self.window.release(at, CLIENT, unused.permits, rate);
                }
            }
            Step::ChangeRate(rate) => {
                self.set_up.settings.rate = rate;
                self.rates.push((self.now, rate));
            }
            Step::AvailablePermits => {
                let _ = self.window.available_permits(self.at(), CLIENT);
            }
        }
    }

    fn begin(&mut self, grant: Grant, usable_at: i64) {
        self.leases.push(Lease {
            left: grant.permits,
            grant,
            made: self.now,
            usable_at,
            last_use: usable_at,
            settlement: None,
        });
    }

    fn take_unused(&mut self, back: usize) -> Option<Unused> {
        let place = self.unused.len().checked_sub(back + 1)?;
        Some(self.unused.remove(place))
    }

    /// Checks the invariant: the permits left and those of all grants are the rate.
    fn check_state(&self) {
        let pool = &self.window.overall;
        if let (Some(settings), Some(value)) = (self.window.settings.get(), pool.value.get()) {
            let held = pool.grants().newer(i64::MIN);
            assert!(pool.grants().len() > 100 || value + held == settings.rate);
        }
    }

    /// Checks that the permits used in the interval up to each use are at most the highest rate at
    /// which they may have been taken.
    fn check_uses(&mut self) {
        self.uses.sort_unstable();
        for &(end, ..) in &self.uses {
            let is_within = |(at, ..): &&Use| (end - INTERVAL + 1..=end).contains(at);
            let in_window = || self.uses.iter().filter(is_within);
            let used: i64 = in_window().map(|(_, permits, _)| i64::from(*permits)).sum();
            let counted_since = in_window().map(|(.., made)| *made).min().unwrap_or(end);
            let ends = self
                .rates
                .iter()
                .skip(1)
                .map(|(at, _)| *at)
                .chain([i64::MAX]);
            let in_force = self.rates.iter().zip(ends);
            let in_force =
                in_force.filter(|((_, rate), until)| *until >= counted_since && *rate > 0);
            let most = in_force.map(|((_, rate), _)| *rate).max().unwrap_or(0);
            assert!(
                used <= most,
                "{used} of {most} up to {end}: {:?}",
                self.uses
            );
        }
    }
}

fn a_step() -> impl Strategy<Value = Step> {
    let back = 0..4_usize;
    prop_oneof![
        6 => (1..9_i64).prop_map(Step::Pass),
        1 => (INTERVAL - 6..INTERVAL + 2).prop_map(Step::Pass),
        4 => (1..5_u32, any::<bool>()).prop_map(|(n, used)| Step::Acquire(n, used)),
        4 => (1..7_u32, 1..=LONGEST_LEASE).prop_map(|(n, ahead)| Step::Lease(n, ahead)),
        3 => (1..7_u32, 0..3 * INTERVAL).prop_map(|(n, within)| Step::Reserve(n, within)),
        8 => (back.clone(), 1..4_u32, prop::bool::weighted(0.6)).prop_map(|(i, n, used)| Step::Use(i, n, used)),
        1 => back.clone().prop_map(Step::End),
        4 => back.clone().prop_map(Step::Settle),
        2 => back.clone().prop_map(Step::Refund),
        4 => back.prop_map(Step::Release),
        1 => (1..12_i64).prop_map(Step::ChangeRate),
        1 => Just(Step::AvailablePermits),
    ]
}

/// Leases of which others release what was not used, settled in time or late. Most random steps
/// deny each other's requests, so these follow the order in which a lost fence matters.
fn steps_with_releases() -> impl Strategy<Value = Vec<Step>> {
    const ORDERS: [&[Next]; 4] = {
        use Next::{Acquire, End, Lease, Refund, Release, Settle, Use};
        [
            &[Lease, Use, Acquire, Release, Acquire, Settle, Acquire],
            &[
                Lease, Use, Lease, Use, Acquire, Release, Acquire, Settle, Acquire, Settle, Acquire,
            ],
            &[
                Lease, Use, Acquire, End, Refund, Release, Acquire, Settle, Acquire,
            ],
            &[
                Lease, Lease, Use, Release, Acquire, Use, Acquire, Settle, Settle, Acquire,
            ],
        ]
    };
    prop::sample::select(&ORDERS[..]).prop_flat_map(|order| {
        let last = [Next::Acquire, Next::Acquire];
        let all = order.iter().chain(&last).map(|next| {
            let pass = prop::sample::select(vec![1, 3, 5, 8, 10, 11, 13]).prop_map(Step::Pass);
            let more = prop::option::weighted(0.2, a_step());
            (next.step(), prop::option::weighted(0.75, pass), more)
        });
        let all: Vec<_> = all.collect();
        all.prop_map(|all| {
            let each = |(step, pass, more)| [Some(step), pass, more];
            all.into_iter().flat_map(each).flatten().collect()
        })
    })
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Lease,
    Use,
    Acquire,
    Release,
    Refund,
    End,
    Settle,
}

impl Next {
    fn step(self) -> BoxedStrategy<Step> {
        let back = prop_oneof![3 => Just(0), 1 => Just(1_usize)];
        match self {
            Self::Lease => prop_oneof![
                3 => (1..4_u32, 4..=LONGEST_LEASE).prop_map(|(n, ahead)| Step::Lease(n, ahead)),
                1 => (1..4_u32, 0..2 * INTERVAL).prop_map(|(n, within)| Step::Reserve(n, within)),
            ]
            .boxed(),
            Self::Use => (back, 1..6_u32, prop::bool::weighted(0.3))
                .prop_map(|(i, n, used)| Step::Use(i, n, used))
                .boxed(),
            Self::Acquire => prop_oneof![
                3 => Just(Step::AcquireAll),
                1 => (1..3_u32, prop::bool::weighted(0.8)).prop_map(|(n, used)| Step::Acquire(n, used)),
            ]
            .boxed(),
            Self::Release => back.prop_map(Step::Release).boxed(),
            Self::Refund => back.prop_map(Step::Refund).boxed(),
            Self::End => back.prop_map(Step::End).boxed(),
            Self::Settle => back.prop_map(Step::Settle).boxed(),
        }
    }
}

fn history(rate: i64, keep_alive: i64) -> History {
    let settings = Settings {
        rate,
        interval: INTERVAL,
        rate_type: RateType::Overall,
        keep_alive,
    };
    History {
        window: Window::default(),
        set_up: SetUp {
            settings,
            existing: Existing::ReplacedWithKeepAlive,
        },
        now: 0,
        calls: 0,
        leases: Vec::new(),
        unused: Vec::new(),
        uses: Vec::new(),
        rates: vec![(0, rate)],
    }
}

fn no_window_holds_more_than_the_rate<T: std::fmt::Debug>(
    histories: impl Strategy<Value = T>,
    cases: u32,
    begin: impl Fn(T) -> (History, Vec<Step>),
) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let result = TestRunner::new(config).run(&histories, |drawn| {
        let (mut history, steps) = begin(drawn);
        for step in &steps {
            history.take(step);
            history.check_state();
        }
        history.check_uses();
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn no_interval_contains_more_real_uses_than_the_rate() {
    let keep_alive = prop_oneof![
        2 => Just(0),
        2 => INTERVAL..INTERVAL + LONGEST_LEASE + 2,
        2 => INTERVAL..5 * INTERVAL,
    ];
    let expires = prop::option::weighted(0.2, 1..2 * INTERVAL);
    let steps = prop::collection::vec(a_step(), 0..60);
    let histories = (1..12_i64, keep_alive, expires, steps);
    no_window_holds_more_than_the_rate(histories, 5_000, |(rate, keep_alive, expires, steps)| {
        let mut history = history(rate, keep_alive);
        if let Some(millis) = expires {
            history.take(&Step::Acquire(1, true));
            let expiry = Expiry::In(millis.max(INTERVAL));
            history.window.expire(CLIENT, 0, expiry, Condition::Always);
        }
        (history, steps)
    });
}

#[test]
fn no_interval_contains_more_uses_than_the_rate_if_leases_are_released() {
    let histories = (2..7_i64, steps_with_releases());
    no_window_holds_more_than_the_rate(histories, 8_000, |(rate, steps)| (history(rate, 0), steps));
}

/// A lease is used up, and others release as much, which goes out of a later grant. Then these
/// steps follow.
fn check_released_lease(then: [Step; 3]) {
    let mut history = history(10, 0);
    let released = [
        Step::Lease(5, 15),
        Step::Use(0, 5, false),
        Step::Pass(10),
        Step::Acquire(5, true),
        Step::Release(0), // of the lease, but out of the grant
        Step::Acquire(5, true),
    ];
    for step in released.iter().chain(&then) {
        history.take(step);
        history.check_state();
    }
    history.check_uses();
}

#[test]
fn used_permits_of_a_lease_count_from_its_score_if_others_release_them() {
    check_released_lease([Step::Settle(0), Step::Pass(10), Step::Acquire(5, true)]);
}

#[test]
fn used_permits_of_a_lease_count_if_it_is_released_and_settled_late() {
    // The interval since the last use of the lease has passed.
    check_released_lease([Step::Pass(11), Step::Settle(0), Step::Acquire(5, true)]);
}
