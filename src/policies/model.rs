//! What the algorithm of a policy is: the steps that check a request.
//!
//! They are pure: state, time and cost in, answer out. The script of the same name takes the
//! same steps, and `differential_tests.rs` compares the two.

use std::fmt;
use std::time::Duration;

use super::answer::Answer;
use super::state::State;
use crate::error::Result;
use crate::window::At;

/// A policy as an algorithm.
pub(crate) trait Model: fmt::Debug + Clone {
    /// What the keys of one target hold, as far as this algorithm uses them.
    type State: State;

    /// What distinguishes this algorithm from most others.
    const PROPERTIES: Properties = Properties::USUAL;

    /// Refuses numbers that the algorithm cannot work with.
    fn validate(&self) -> Result<()>;

    /// This policy with a limit such that no granted request waits for its turn longer than
    /// `longest`; `None` if none waits longer under this policy.
    fn with_longest_turn(&self, _longest: Duration) -> Option<Self> {
        None
    }

    /// A policy whose targets have `limit` at first, and all of it back about a `window` after they
    /// took it.
    fn example(limit: u32, window: Duration) -> Self;

    /// The largest cost that can be granted.
    fn limit(&self) -> i64;

    /// The time, in ms, in which the whole limit comes back.
    fn window(&self) -> i64;

    /// How many members or counters a call touches for a request of this cost, beside a few. At
    /// most [`MOST_TOUCHED`] for each cost up to the [largest](Properties::largest_cost).
    fn touches(&self, _cost: u32) -> u32 {
        0
    }

    /// The keys of a target, in the script's order.
    fn keys(&self, target: &str) -> Vec<String> {
        vec![target.to_owned()]
    }

    /// The numbers, in the script's order.
    fn numbers(&self) -> Vec<i64>;

    /// A state that answers like the one that the script found and returned.
    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Self::State>;

    /// What a request of `cost` gets. Changes nothing. A cost above the limit is not granted; the
    /// caller reports it as [`Outcome::Never`](super::answer::Outcome::Never).
    fn evaluate(&self, state: &Self::State, at: At, cost: i64) -> Answer;

    /// Takes the cost of a request that was granted.
    fn charge(&self, state: &mut Self::State, at: At, cost: i64);

    /// Checks one request by this algorithm alone: evaluates it, and charges or denies. An
    /// algorithm may do once what both steps begin with.
    #[inline]
    fn check(&self, state: &mut Self::State, at: At, cost: i64) -> Answer {
        let answer = self.evaluate(state, at, cost);
        if cost > answer.limit {
            self.keep(state, at);
        } else if answer.is_granted() {
            self.charge(state, at, cost);
        } else {
            self.deny(state, at);
        }
        answer
    }

    /// Gives back a charge, or the part of it that is certain, and returns how much. The target
    /// then has at most what it would have if it had not been charged.
    fn give_back(&self, _state: &mut Self::State, _at: At, _charge: &Charge) -> i64 {
        0
    }

    /// Changes the state as a denied request does.
    fn deny(&self, state: &mut Self::State, at: At) {
        self.keep(state, at);
    }

    /// Changes the state as a request does that takes nothing, though this algorithm may grant it:
    /// extends the times to live of the keys to the time for which their content counts.
    fn keep(&self, _state: &mut Self::State, _at: At) {}
}

/// What a request was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The [`Answer::mark`] of the request.
    pub(crate) mark: i64,
    pub(crate) cost: i64,
}

/// The properties of an algorithm, whatever its numbers are.
#[derive(Debug)]
pub(crate) struct Properties {
    /// Whether one of its keys has the target's own name.
    pub(crate) has_own_key: bool,
    /// Whether it stores each request, named by its call. A store then takes longer for a call with
    /// more requests.
    pub(crate) logs_requests: bool,
    /// The most that the requests of one call may cost together.
    pub(crate) largest_cost: u32,
    /// Whether a foreign lock denies even if this limiter has no penalty.
    pub(crate) honours_foreign_locks: bool,
    /// Whether a granted request may have to wait for its turn.
    pub(crate) gives_turns: bool,
}

impl Properties {
    pub(super) const USUAL: Self = Self {
        has_own_key: true,
        logs_requests: false,
        largest_cost: u32::MAX,
        honours_foreign_locks: false,
        gives_turns: false,
    };
}

/// How many members and counters a call may touch. A server does nothing else meanwhile.
pub(crate) const MOST_TOUCHED: u32 = 2_000;
