//! Leases of windows: the model of `lua/give_back.lua`, held to the script, and random histories of several processes.
//!
//! The laws: what a lease has left goes back to the window that it was taken of, or to none, however late, however often, and
//! whatever lengths windows get meanwhile. And while their length stays, each window holds at most the limit of real uses.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::aio::MultiplexedConnection;

use super::{Counter, FixedWindow};
use crate::permit::CallId;
use crate::policies::algorithm::Model;
use crate::policies::differential_tests::{TTL_UNIT, times_to_live};
use crate::random_cases::{cases_of, run_on_a_server};
use crate::store::leased_windows::Unused;
use crate::store::redis::leased_windows::{args, keys};
use crate::store::redis::script::include::{assemble, read};
use crate::window::{At, timed};

/// Ends of windows that are closer than this are the same, in ms.
const LONGEST_START: i64 = 250;

/// What `lua/give_back.lua` does, but for its note of what a copy of the call must know.
fn give_back(state: &mut Counter, server: i64, ends: i64, length: i64, permits: i64) -> i64 {
    state.count.drop_expired(server);
    state.length.drop_expired(server);
    let end = state.count.expires_at().filter(|&end| end > server);
    let (Some(end), Some(count)) = (end, state.count.get_mut()) else {
        return 0;
    };
    let apart = (end - ends).abs();
    let is_near = apart < LONGEST_START && apart * 2 < length;
    let is_same = is_near && state.length.get().is_none_or(|&was| was == length);
    let back = if is_same {
        permits.min(*count).max(0)
    } else {
        0
    };
    *count -= back;
    back
}

#[test]
fn what_a_lease_has_left_goes_back_in_redis_as_in_the_model() {
    let near = (-2..3_i64).prop_map(|n| n * TTL_UNIT);
    let length = || (1..4_i64).prop_map(|n| n * TTL_UNIT);
    let case = (
        prop::option::of((-3..20_i64, times_to_live())),
        prop::option::of(length()),
        (near, length(), 1..20_u32),
    );
    run_on_a_server(cases_of(40), &case, async |mut connection, case| {
        let (counter, was, (apart, length, permits)) = case;
        let server = time(&mut connection).await;
        let ends_in = counter.and_then(|(_, left)| left);
        let mut state = Counter::default();
        for (key, content) in [("t", counter.map(|it| it.0)), ("{t}-window", was)] {
            if let Some(number) = content {
                let mut set = redis::pipe();
                set.set(key, number).ignore();
                if let Some(left) = ends_in {
                    set.pexpire_at(key, server + left).ignore();
                }
                set.exec_async(&mut connection).await.unwrap();
            }
        }
        let end = ends_in.map(|left| server + left);
        if let Some((count, _)) = counter {
            state.count = timed(count, end);
        }
        if let Some(was) = was {
            state.length = timed(was, end);
        }
        let unused = Unused {
            id: CallId::default(),
            key: "t".into(),
            ends: end.unwrap_or(server) + apart,
            length,
            permits,
        };
        let expected = give_back(&mut state, server, unused.ends, length, permits.into());
        for deadline in [server - 1, server + 60_000, server + 60_000] {
            let mut call = redis::cmd("EVAL");
            call.arg(assemble("give_back.lua", read).unwrap()).arg(3);
            for key in keys(&unused) {
                call.arg(key);
            }
            for argument in args(&unused, deadline).iter() {
                call.arg(argument);
            }
            let back: i64 = call.query_async(&mut connection).await.unwrap();
            let expected = if deadline < server { 0 } else { expected };
            assert_eq!(back, expected);
        }
        let count: Option<i64> = redis::cmd("GET")
            .arg("t")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(count, state.count.get().copied());
    });
}

async fn time(connection: &mut MultiplexedConnection) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(connection).await.unwrap();
    seconds * 1000 + micros / 1000
}

const LIMIT: u32 = 20;

#[derive(Debug, Clone)]
enum Step {
    Pass(i64),
    /// A request to the store.
    Ask(u32),
    /// A process takes a lease of at most so many ms.
    Lease(u32, i64),
    /// One of the leases is used.
    Use(usize, u32),
    /// One of the leases gives back what it has left. It may be late, and again.
    GiveBack(usize),
    /// One of the leases is never given back.
    Kill(usize),
    /// At all processes.
    ChangeLength(u32),
}

struct Lease {
    ends: i64,
    length: i64,
    /// Until when it may be used.
    until: i64,
    left: u32,
    is_given_back: bool,
    /// The number of the window that it was taken of.
    window: u32,
}

struct History {
    now: i64,
    state: Counter,
    /// The policy, and its form once it need not know of the one before, with the time of that.
    policy: (FixedWindow, FixedWindow, i64),
    leases: Vec<Lease>,
    /// How many windows there were, and what is counted in the last one.
    windows: u32,
    counted: i64,
    /// The real uses in each.
    used: BTreeMap<u32, u32>,
    has_one_length: bool,
}

fn window(units: u32) -> FixedWindow {
    FixedWindow::new(LIMIT, Duration::from_millis(1_000 * u64::from(units)))
}

impl History {
    fn new(is_aligned: bool) -> Self {
        let window = match is_aligned {
            true => FixedWindow::new(LIMIT, Duration::from_secs(10)).aligned_to_clock(),
            false => window(3),
        };
        Self {
            now: 1_000_000,
            state: Counter::default(),
            policy: (window.clone(), window, 0),
            leases: Vec::new(),
            windows: 0,
            counted: 0,
            used: BTreeMap::new(),
            has_one_length: true,
        }
    }

    /// The real time is the server's.
    fn at(&self) -> At {
        At {
            now: self.now,
            server: self.now,
        }
    }

    /// Makes one request by a policy. Returns whether it is granted, and until when the window is.
    fn ask(&mut self, policy: &FixedWindow, cost: u32) -> Option<i64> {
        let (at, cost) = (self.at(), i64::from(cost));
        let is_new = policy.open(&self.state, at).is_new;
        let answer = policy.check(&mut self.state, at, &CallId::default(), cost);
        let answer = answer.unwrap();
        if !answer.is_granted() {
            return None;
        }
        if is_new {
            self.windows += 1;
            self.counted = 0;
        }
        self.counted += cost;
        Some(answer.reset)
    }

    fn policy(&self) -> FixedWindow {
        let (moved, later, until) = &self.policy;
        if self.now < *until { moved } else { later }.clone()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Pass(millis) => {
                self.now += millis;
                self.state.count.drop_expired(self.now);
                self.state.length.drop_expired(self.now);
            }
            Step::Ask(cost) => {
                if self.ask(&self.policy(), cost).is_some() {
                    *self.used.entry(self.windows).or_default() += cost;
                }
            }
            Step::Lease(permits, lasts) => {
                let policy = self.policy();
                let Some(leasing) = policy.leasing(permits) else {
                    return;
                };
                let before = policy.evaluate(&self.state, self.at(), 1).unwrap();
                if let Some(left) = self.ask(&leasing, permits) {
                    let had = before.remaining + i64::from(before.is_granted());
                    assert!(i64::from(permits) * 2 <= had, "more than half of {had}");
                    self.leases.push(Lease {
                        ends: self.now + left,
                        length: policy.window_millis(),
                        until: self.now + lasts.min(left),
                        left: permits,
                        is_given_back: false,
                        window: self.windows,
                    });
                }
            }
            Step::Use(place, permits) => {
                let (now, window, has_one_length) = (self.now, self.windows, self.has_one_length);
                let Some(lease) = self.lease(place) else {
                    return;
                };
                if now < lease.until && permits <= lease.left && !lease.is_given_back {
                    lease.left -= permits;
                    assert!(
                        lease.window == window || !has_one_length,
                        "in another window"
                    );
                    // The window of the time of the use.
                    *self.used.entry(self.windows).or_default() += permits;
                }
            }
            Step::GiveBack(place) => {
                let mut state = std::mem::take(&mut self.state);
                let (now, windows) = (self.now, self.windows);
                let is_there = state.count.get().is_some();
                let mut back = 0;
                if let Some(lease) = self.lease(place)
                    && lease.left > 0
                    && !std::mem::replace(&mut lease.is_given_back, true)
                {
                    let permits = i64::from(lease.left);
                    back = give_back(&mut state, now, lease.ends, lease.length, permits);
                    let is_of_this_window = is_there && lease.window == windows;
                    assert!(back == 0 || is_of_this_window, "{back} to another window");
                }
                self.state = state;
                self.counted -= back;
            }
            Step::Kill(place) => {
                if !self.leases.is_empty() {
                    self.leases.swap_remove(place % self.leases.len());
                }
            }
            Step::ChangeLength(units) => {
                let (to, before) = (window(units), self.policy());
                let (moved, needed_for) = Model::after(&to, &before);
                let needed_for = i64::try_from(needed_for.as_millis()).unwrap();
                let until = self.policy.2.max(self.now + needed_for);
                self.policy = (moved, to, until);
                self.has_one_length = false;
            }
        }
        if let Some(&count) = self.state.count.get() {
            assert_eq!(count, self.counted);
        }
        let most = self.used.values().max().copied().unwrap_or(0);
        assert!(most <= LIMIT || !self.has_one_length, "{most} in a window");
    }

    fn lease(&mut self, place: usize) -> Option<&mut Lease> {
        let place = place.checked_rem(self.leases.len())?;
        self.leases.get_mut(place)
    }
}

fn steps(changes: bool) -> impl Strategy<Value = Vec<Step>> {
    let change = match changes {
        true => (1..9_u32).prop_map(Step::ChangeLength).boxed(),
        false => Just(Step::Pass(350)).boxed(),
    };
    let step = prop_oneof![
        6 => prop_oneof![0..450_i64, 0..4_000_i64].prop_map(Step::Pass),
        3 => (1..5_u32).prop_map(Step::Ask),
        4 => (1..11_u32, 1..5_000_i64).prop_map(|(n, lasts)| Step::Lease(n, lasts)),
        6 => (any::<usize>(), 1..5_u32).prop_map(|(place, n)| Step::Use(place, n)),
        4 => any::<usize>().prop_map(Step::GiveBack),
        1 => any::<usize>().prop_map(Step::Kill),
        1 => change,
    ];
    prop::collection::vec(step, 1..80)
}

fn take(is_aligned: bool, changes: bool) {
    let config = Config {
        cases: cases_of(8),
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&steps(changes), |steps| {
        let mut history = History::new(is_aligned);
        steps.into_iter().for_each(|step| history.step(step));
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn no_window_holds_more_uses_than_its_limit_whoever_leases_it() {
    take(false, false);
    take(true, false);
}

#[test]
fn what_is_left_goes_back_to_its_own_window_while_lengths_change() {
    take(false, true);
}
