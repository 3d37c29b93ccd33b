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

    /// What sets it apart from most others.
    const PROPERTIES: Properties = Properties::USUAL;

    /// Refuses numbers that it cannot work with.
    fn validate(&self) -> Result<()>;

    /// This policy for a request that waits for its turn no longer than this; `None` if it never
    /// has to wait longer.
    fn with_longest_turn(&self, _longest: Duration) -> Option<Self> {
        None
    }

    /// A policy whose targets have `limit` at first, and all of it back about a `window` after they
    /// took it.
    fn example(limit: u32, window: Duration) -> Self;

    /// The largest cost that can be granted.
    fn limit(&self) -> i64;

    /// The ms in which all of that comes back.
    fn window(&self) -> i64;

    /// How many members or counters, beside a few, a call touches for a request of this cost. At
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

    /// What a request of `cost` gets. Changes nothing. `cost` is at most [`Answer::limit`].
    fn evaluate(&self, state: &Self::State, at: At, cost: i64) -> Answer;

    /// Takes the cost of a request that was granted.
    fn charge(&self, state: &mut Self::State, at: At, cost: i64);

    /// Checks one request by this algorithm alone: evaluates it, and charges or denies. An
    /// algorithm whose steps begin with the same work does that work once.
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

    /// Gives back as much of a charge as is exact, and returns how much: never more than what the
    /// target would have if it had not been charged.
    fn give_back(&self, _state: &mut Self::State, _at: At, _charge: &Charge) -> i64 {
        0
    }

    /// What a denied request leaves.
    fn deny(&self, state: &mut Self::State, at: At) {
        self.keep(state, at);
    }

    /// What a request leaves that takes nothing, though it may not be denied by this algorithm: the
    /// keys live as long as what they hold counts.
    fn keep(&self, _state: &mut Self::State, _at: At) {}
}

/// What a request was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// [`Answer::mark`].
    pub(crate) mark: i64,
    pub(crate) cost: i64,
}

/// What is the same for all numbers of an algorithm.
#[derive(Debug)]
pub(crate) struct Properties {
    /// Whether it has a key with the target's own name.
    pub(crate) has_own_key: bool,
    /// Whether it stores each request, named by its call: then a store takes longer for a call the
    /// more it carries.
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
