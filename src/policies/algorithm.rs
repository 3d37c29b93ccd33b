//! What an algorithm is: a policy with its numbers, the state of one target, and the steps that
//! check a request.
//!
//! The steps are pure: state, time and cost in, answer out. The script of the same name takes the
//! same steps, and `differential_tests.rs` compares the two.

mod any_model;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::target_keys::TargetKeys;
use crate::error::Result;
use crate::failure_policy::LocalShare;
use crate::permit::CallId;
use crate::quota::Quota;
#[cfg(feature = "redis")]
use crate::window::Settings;
use crate::window::{At, SetUp};
pub(crate) use any_model::AnyModel;

/// The numbers that a limiter decides by. The policies are those of this crate; for an algorithm of
/// your own, implement [`Limiter`](crate::Limiter).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # fn main() -> Result<()> {
/// fn limiter<P: Policy>(client: &RedissonClient, policy: P) -> Result<PolicyLimiter<P>> {
///     Ok(client.policy_limiter(policy)?.with_prefix("login:"))
/// }
///
/// let client = RedissonClient::in_memory();
/// let logins = limiter(&client, FixedWindow::new(5, Duration::from_secs(60)))?;
/// assert_eq!(logins.prefix(), "login:");
/// # Ok(()) }
/// ```
///
/// The trait is sealed, and what it needs of a policy cannot be called outside this crate:
///
/// ```compile_fail,E0061
/// # use redisson_rate_limiter::*;
/// fn check<P: Policy>(policy: &P) -> bool {
///     policy.model("client").is_ok()
/// }
/// ```
pub trait Policy: Sealed {
    /// How much a target has, and in which time all of it comes back.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    /// assert_eq!(SlidingWindowLog::new(100, minute).quota(), Quota::new(100, minute));
    /// assert_eq!(TokenBucket::per_second(10).with_capacity(50).quota(), Quota::new(50, 5 * second));
    /// // 100 that flow out, and 100 that wait.
    /// assert_eq!(LeakyBucket::new(100, minute).quota(), Quota::new(200, 2 * minute));
    /// # Ok(()) }
    /// ```
    fn quota(&self) -> Quota;
}

impl<M: Model> Policy for M {
    fn quota(&self) -> Quota {
        Model::known_quota(self)
    }
}

/// What a limiter needs to know about its policy. Cannot be named outside the crate.
pub trait Sealed: fmt::Debug + Clone + Send + Sync + 'static {
    /// Refuses to replace a policy of another algorithm while requests come in.
    fn check_replaces(&self, before: &Self, _: Internal) -> Result<()>;

    /// The algorithm with these numbers, for the client of this id. Refuses numbers that the
    /// algorithm cannot work with.
    fn model(&self, client_id: &str, _: Internal) -> Result<Algorithm>;
}

/// The argument of methods that only this crate may call: a generic function elsewhere has the
/// methods of [`Sealed`] in scope.
#[derive(Debug, Clone, Copy)]
pub struct Internal(());

pub(crate) const INTERNAL: Internal = Internal(());

impl<M: Model> Sealed for M {
    fn check_replaces(&self, _before: &Self, _: Internal) -> Result<()> {
        Ok(())
    }

    fn model(&self, _: &str, _: Internal) -> Result<Algorithm> {
        self.validate()?;
        Ok(Algorithm(Arc::new(self.clone())))
    }
}

/// An algorithm with its numbers.
pub struct Algorithm(pub(crate) Arc<dyn AnyModel>);

/// An algorithm.
pub(crate) trait Model: Named + fmt::Debug + Clone + Send + Sync + 'static {
    /// What the keys of one target hold, as far as this algorithm uses them.
    type State: State + Default;

    /// What sets it apart from most others.
    const PROPERTIES: Properties = Properties::USUAL;

    /// Refuses numbers that it cannot work with.
    fn validate(&self) -> Result<()>;

    /// The settings that a request gives an RRateLimiter.
    fn set_up(&self) -> Option<SetUp> {
        None
    }

    /// This policy for a request that waits for its turn no longer than this; `None` if it never
    /// has to wait longer.
    fn with_longest_turn(&self, _longest: Duration) -> Option<Self> {
        None
    }

    /// The largest cost that can be granted; `None` if it depends on the state.
    fn limit(&self) -> Option<i64>;

    /// The ms in which all of that comes back; `None` if it depends on the state.
    fn window(&self) -> Option<i64>;

    /// Both, as far as they are known.
    fn known_quota(&self) -> Quota {
        let limit = self.limit().map_or(0, i64::unsigned_abs);
        let window = self.window().map_or(0, i64::unsigned_abs);
        Quota::new(limit, Duration::from_millis(window))
    }

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
    #[cfg(feature = "redis")]
    fn numbers(&self) -> Vec<i64>;

    /// A state that answers like the one that the script found and returned.
    #[cfg(feature = "redis")]
    fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<Self::State>;

    /// What one request of `cost` gets from the state that the script returned.
    #[cfg(feature = "redis")]
    fn evaluate_reply(&self, at: At, numbers: &[i64], cost: i64) -> Option<Answer> {
        let state = self.state_from_reply(at, numbers)?;
        self.evaluate(&state, at, cost).ok()
    }

    /// The settings that the limiter of this reply keeps, if they are not those that the request
    /// would have created it with.
    #[cfg(feature = "redis")]
    fn left_settings(&self, _numbers: &[i64]) -> Option<Settings> {
        None
    }

    /// Updates the state until requests of `cost` together can be evaluated; `most` is how many
    /// grants it may remove. Returns whether it must be called again.
    fn prepare(
        &self,
        _state: &mut Self::State,
        _at: At,
        _cost: i64,
        _most: &mut usize,
    ) -> Result<bool, Unusable> {
        Ok(false)
    }

    /// What decides a client's share of this limit.
    fn share_of(&self, _share: LocalShare) -> ShareOf {
        ShareOf::Costs
    }

    /// What a request of `cost` gets. Changes nothing. `cost` is at most [`Answer::limit`].
    fn evaluate(&self, state: &Self::State, at: At, cost: i64) -> Result<Answer, Unusable>;

    /// As `evaluate`, where `prepare` does not come before it.
    fn peek(&self, state: &Self::State, at: At, cost: i64) -> Result<Answer, Unusable> {
        self.evaluate(state, at, cost)
    }

    /// Takes the cost of a request that was granted.
    fn charge(&self, state: &mut Self::State, at: At, call_id: &CallId, cost: i64);

    /// Checks one request by this algorithm alone: evaluates it, and charges or denies. An
    /// algorithm whose steps begin with the same work does that work once.
    fn check(
        &self,
        state: &mut Self::State,
        at: At,
        call_id: &CallId,
        cost: i64,
    ) -> Result<Answer, Unusable> {
        let answer = self.evaluate(state, at, cost)?;
        if cost > answer.limit {
            self.keep(state, at);
        } else if answer.is_granted() {
            self.charge(state, at, call_id, cost);
        } else {
            self.deny(state, at);
        }
        Ok(answer)
    }

    /// Gives back as much of a charge as is exact, and returns how much: never more than what the
    /// target would have if it had not been charged.
    fn give_back(&self, _state: &mut Self::State, _at: At, _charge: &Charge) -> i64 {
        0
    }

    /// Deletes what the target has used, and returns whether there was anything.
    fn reset(&self, state: &mut Self::State, at: At) -> Result<bool, Unusable> {
        Ok(std::mem::take(state).drop_expired(at.server))
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

/// The name of an algorithm's script, and of its function in `lua/joint.lua`.
pub(crate) trait Named {
    const NAME: &'static str;
}

macro_rules! names {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(impl Named for super::$Policy {
            const NAME: &'static str = stringify!($name);
        })*
    };
}
policies!(names! {});

/// What is the same for all numbers of an algorithm.
#[derive(Debug)]
pub(crate) struct Properties {
    /// Whether its state is RRateLimiter's window, where a grant is found by its random bytes.
    pub(crate) is_on_the_window: bool,
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
        is_on_the_window: false,
        has_own_key: true,
        logs_requests: false,
        largest_cost: u32::MAX,
        honours_foreign_locks: false,
        gives_turns: false,
    };

    /// Whether a target's state keeps the ids of calls.
    pub(crate) fn names_calls(&self) -> bool {
        self.is_on_the_window || self.logs_requests
    }
}

/// How many members and counters a call may touch. A server does nothing else meanwhile.
pub(crate) const MOST_TOUCHED: u32 = 2_000;

/// What decides a client's share of a limit.
#[derive(Debug)]
pub(crate) enum ShareOf {
    /// The same algorithm with the same numbers: a request costs its cost times the number of
    /// clients.
    Costs,
    /// RRateLimiter's window with these settings.
    Rate { client_id: Arc<str>, set_up: SetUp },
    /// The limit is unknown.
    Unknown,
}

/// What the keys of one target hold.
pub(crate) trait State: Any + fmt::Debug + Send {
    /// Drops what has expired, and returns whether anything is left.
    fn drop_expired(&mut self, server: i64) -> bool;

    /// Whether the key with the target's own name exists.
    fn has_own_key(&self) -> bool;

    /// The state that these keys hold, which are removed; `None` if one holds another kind's state.
    fn open(keys: &mut TargetKeys) -> Option<Self>
    where
        Self: Sized;

    /// Returns its content to the keys, where another kind of limiter may find it.
    fn close(&mut self, keys: &mut TargetKeys);
}

/// Why a state cannot decide a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It belongs to another algorithm.
    OtherKind,
    /// It must be set up first.
    NotInitialized,
}

/// `a / b` rounded up, for a positive `b`.
#[inline]
pub(super) fn div_ceil(a: i64, b: i64) -> i64 {
    -(-a).div_euclid(b)
}

/// The longest time, in ms, that a state's numbers may span: added to a current time it stays an
/// exact Lua number.
pub(super) const LONGEST: i64 = 1 << 52;
