//! The algorithms of this crate as one type: an enum of the policies, made from their registry, and
//! of RRateLimiter. What each of them does is a `match` of the macro [`each`].

use std::time::Duration;

use super::answer::Answer;
use super::model::{Charge, Model, Properties};
use super::shared_rate::{ShareOf, SharedRate};
use super::state::{SharedKeys, State};
use crate::failure_policy::LocalShare;
use crate::permit::CallId;
use crate::quota::Quota;
use crate::window::{At, Expired, NotInitialized, SetUp, Settings, Window};

/// A `match` over one of the enums: what each policy does, and what RRateLimiter does.
macro_rules! each {
    ($on:expr, |$($part:ident),+| $policy:expr $(, |$($of_rate:pat_param),+| $rate:expr)?) => {
        policies!(arms! { $on, ($($part),+), $policy $(, ($($of_rate),+), $rate)? })
    };
}

macro_rules! arms {
    (
        [$on:expr, $part:tt, $policy:expr $(, $of_rate:tt, $rate:expr)?]
        $($name:ident: $Policy:ident,)*
    ) => {
        match $on {
            $(Self::$Policy $part => $policy,)*
            $(Self::SharedRate $of_rate => $rate,)?
        }
    };
}

macro_rules! enums {
    ([] $($name:ident: $Policy:ident,)*) => {
        /// An algorithm with its numbers.
        #[derive(Debug)]
        pub(crate) enum Algorithm {
            $($Policy(super::$Policy),)*
            SharedRate(SharedRate),
        }

        /// The state of one target of a policy, in one allocation with its owner's header.
        #[derive(Debug)]
        pub(crate) enum AnyState<H = ()> {
            $($Policy(Box<Headed<H, <super::$Policy as Model>::State>>),)*
        }

        /// An algorithm and the state of one of its targets.
        #[derive(Debug)]
        pub(crate) enum Paired<'a> {
            $($Policy(&'a super::$Policy, &'a mut <super::$Policy as Model>::State),)*
            SharedRate(&'a SharedRate, &'a mut Window),
        }

        $(impl From<super::$Policy> for Algorithm {
            fn from(policy: super::$Policy) -> Self {
                Self::$Policy(policy)
            }
        })*

        impl Algorithm {
            /// The name of its script, and of its function in `lua/joint.lua`.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$Policy(_) => stringify!($name),)*
                    Self::SharedRate(_) => SharedRate::NAME,
                }
            }

            /// See [`Model::with_longest_turn`].
            pub(crate) fn with_longest_turn(&self, longest: Duration) -> Option<Self> {
                match self {
                    $(Self::$Policy(policy) => {
                        policy.with_longest_turn(longest).map(Self::$Policy)
                    })*
                    Self::SharedRate(_) => None,
                }
            }

            /// Takes a state out of these keys, and returns it with the header `head`. `None` if
            /// one of them holds another kind's state, and for an RRateLimiter, whose state is a
            /// [`Window`].
            pub(super) fn open<H>(&self, head: H, keys: &mut SharedKeys) -> Option<AnyState<H>> {
                match self {
                    $(Self::$Policy(_) => {
                        let state = State::open(keys)?;
                        Some(AnyState::$Policy(Box::new(Headed { head, state })))
                    })*
                    Self::SharedRate(_) => None,
                }
            }

            /// A state that answers like the one that the script found and returned.
            pub(crate) fn state_from_reply(&self, at: At, numbers: &[i64]) -> Option<AnyState> {
                match self {
                    $(Self::$Policy(policy) => {
                        let (head, state) = ((), policy.state_from_reply(at, numbers)?);
                        Some(AnyState::$Policy(Box::new(Headed { head, state })))
                    })*
                    Self::SharedRate(_) => None,
                }
            }
        }

        impl<H> AnyState<H> {
            /// Pairs this state with its algorithm, and returns the header too; `None` if the state
            /// belongs to another algorithm.
            pub(crate) fn with<'a>(
                &'a mut self,
                algorithm: &'a Algorithm,
            ) -> Option<(Paired<'a>, &'a mut H)> {
                match (self, algorithm) {
                    $((Self::$Policy(held), Algorithm::$Policy(policy)) => {
                        Some((Paired::$Policy(policy, &mut held.state), &mut held.head))
                    })*
                    _ => None,
                }
            }

            /// Takes the content out of the state. Returns it to the keys, or as a state if only
            /// its own kind can read it. Also returns the header.
            pub(super) fn close(&mut self, keys: &mut SharedKeys) -> (&mut H, Option<AnyState>) {
                match self {
                    $(Self::$Policy(held) => {
                        let own = std::mem::take(&mut held.state).close(keys);
                        let own = own.map(|state| Box::new(Headed { head: (), state }));
                        (&mut held.head, own.map(AnyState::$Policy))
                    })*
                }
            }
        }
    };
}
policies!(enums! {});

impl From<SharedRate> for Algorithm {
    fn from(rate: SharedRate) -> Self {
        Self::SharedRate(rate)
    }
}

/// A state behind its owner's header. The header has the same offset for each type of state.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Headed<H, S> {
    head: H,
    state: S,
}

impl Algorithm {
    /// Whether it is RRateLimiter's algorithm. Its state is a [`Window`], in which a grant is found
    /// by its random bytes.
    #[inline]
    pub(crate) fn is_rate(&self) -> bool {
        self.rate().is_some()
    }

    #[inline]
    fn rate(&self) -> Option<&SharedRate> {
        match self {
            Self::SharedRate(rate) => Some(rate),
            _ => None,
        }
    }

    pub(crate) fn properties(&self) -> &'static Properties {
        fn of<M: Model>(_: &M) -> &'static Properties {
            &M::PROPERTIES
        }
        each!(self, |policy| of(policy), |_| &Properties::USUAL)
    }

    /// Whether a target's state keeps the ids of calls.
    pub(crate) fn names_calls(&self) -> bool {
        self.is_rate() || self.properties().logs_requests
    }

    /// The settings that a request brings to an RRateLimiter.
    pub(crate) fn set_up(&self) -> Option<SetUp> {
        self.rate()?.set_up()
    }

    /// The largest cost that can be granted; `None` if it depends on the state.
    pub(crate) fn limit(&self) -> Option<i64> {
        each!(self, |policy| Some(Model::limit(policy)), |rate| rate
            .limit())
    }

    /// The limit and the window of a target; the default if they are not known.
    pub(crate) fn quota(&self) -> Quota {
        each!(self, |policy| quota_of(policy), |rate| rate.quota())
    }

    /// See [`Model::touches`].
    pub(crate) fn touches(&self, cost: u32) -> u32 {
        each!(self, |policy| policy.touches(cost), |_| 0)
    }

    /// The keys of a target, in the script's order.
    pub(crate) fn keys(&self, target: &str) -> Vec<String> {
        each!(self, |policy| policy.keys(target), |rate| rate.keys(target))
    }

    /// The numbers, in the script's order.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        each!(self, |policy| policy.numbers(), |rate| rate.numbers())
    }

    /// What decides a client's share of this limit.
    pub(crate) fn share_of(&self, share: LocalShare) -> ShareOf {
        let rate = self.rate();
        rate.map_or(ShareOf::Costs, |rate| rate.share_of(share))
    }

    /// The state of a target without requests, with the header `head`; `None` for an RRateLimiter.
    pub(crate) fn new_state<H>(&self, head: H) -> Option<AnyState<H>> {
        self.open(head, &mut SharedKeys::default())
    }

    /// The answer to one request of `cost`, from the state that the script returned. Without
    /// `numbers`, the target has no requests.
    pub(crate) fn evaluate_reply(&self, at: At, numbers: &[i64], cost: i64) -> Option<Answer> {
        fn evaluate<M: Model>(policy: &M, at: At, numbers: &[i64], cost: i64) -> Option<Answer> {
            let state = match numbers {
                [] => M::State::default(),
                numbers => policy.state_from_reply(at, numbers)?,
            };
            Some(policy.evaluate(&state, at, cost))
        }
        each!(self, |policy| evaluate(policy, at, numbers, cost), |rate| {
            rate.evaluate_reply(numbers, cost)
        })
    }

    /// The settings that the limiter of this reply keeps, if they are not those that the request
    /// would have created it with.
    pub(crate) fn left_settings(&self, numbers: &[i64]) -> Option<Settings> {
        self.rate()?.left_settings(numbers)
    }
}

impl<H> AnyState<H> {
    pub(crate) fn is_of(&mut self, algorithm: &Algorithm) -> bool {
        self.with(algorithm).is_some()
    }

    /// The owner's header.
    #[inline]
    pub(crate) fn head(&self) -> &H {
        each!(self, |held| &held.head)
    }

    #[inline]
    pub(crate) fn head_mut(&mut self) -> &mut H {
        each!(self, |held| &mut held.head)
    }

    /// Drops what has expired, and returns whether anything is left.
    pub(crate) fn drop_expired(&mut self, server: i64) -> bool {
        each!(self, |held| State::drop_expired(&mut held.state, server))
    }

    /// Whether the key with the target's own name exists.
    pub(crate) fn has_own_key(&self) -> bool {
        each!(self, |held| held.state.has_own_key())
    }
}

/// The steps of the algorithm, as [`Model`] has them.
impl Paired<'_> {
    /// Updates a window until requests of `cost` together can be evaluated; `most` is how many
    /// grants it may remove. Returns whether it must be called again.
    pub(crate) fn prepare(
        &mut self,
        at: At,
        cost: i64,
        most: &mut usize,
    ) -> Result<bool, NotInitialized> {
        match self {
            Self::SharedRate(rate, window) => {
                window.prepare(at, &rate.client_id, rate.set_up(), cost, most)
            }
            _ => Ok(false),
        }
    }

    #[inline]
    pub(crate) fn evaluate(&self, at: At, cost: i64) -> Result<Answer, NotInitialized> {
        each!(
            self,
            |policy, state| Ok(policy.evaluate(state, at, cost)),
            |rate, window| rate.evaluate(window, at, cost, Expired::Removed)
        )
    }

    /// What a request of `cost` gets, by a call that has not prepared the state: all expired grants
    /// of a window are counted as free.
    pub(crate) fn peek(&self, at: At, cost: i64) -> Result<Answer, NotInitialized> {
        match self {
            Self::SharedRate(rate, window) => rate.evaluate(window, at, cost, Expired::All),
            policy => policy.evaluate(at, cost),
        }
    }

    /// Drops what has expired.
    pub(crate) fn drop_expired(&mut self, server: i64) {
        each!(
            self,
            |_policy, state| {
                State::drop_expired(*state, server);
            },
            |_, window| {
                window.is_gone(server);
            }
        );
    }

    #[inline(always)] // the answer is then copied once
    pub(crate) fn check(&mut self, at: At, cost: i64) -> Result<Answer, NotInitialized> {
        each!(
            self,
            |policy, state| {
                State::drop_expired(*state, at.server);
                Ok(policy.check(state, at, cost))
            },
            |_, _| unreachable!("`check_jointly` checks requests of an RRateLimiter")
        )
    }

    pub(crate) fn charge(&mut self, at: At, call_id: &CallId, cost: i64) {
        each!(
            self,
            |policy, state| policy.charge(state, at, cost),
            |rate, window| window.take(at, &rate.client_id, rate.set_up(), call_id, cost)
        );
    }

    pub(crate) fn deny(&mut self, at: At) {
        each!(
            self,
            |policy, state| policy.deny(state, at),
            |rate, window| {
                // Nothing is taken, but the times to live are renewed.
                window.take(at, &rate.client_id, rate.set_up(), &CallId::default(), 0);
            }
        );
    }

    pub(crate) fn keep(&mut self, at: At) {
        each!(
            self,
            |policy, state| policy.keep(state, at),
            |rate, window| window.keep(at, &rate.client_id, rate.set_up())
        );
    }

    /// See [`Model::give_back`]. The grants of an RRateLimiter are given back by its store.
    pub(crate) fn give_back(&mut self, at: At, charge: &Charge) -> i64 {
        each!(
            self,
            |policy, state| {
                State::drop_expired(*state, at.server);
                policy.give_back(state, at, charge)
            },
            |_, _| 0
        )
    }

    /// Deletes what the target has used, and returns whether there was anything.
    pub(crate) fn reset(&mut self, at: At) -> Result<bool, NotInitialized> {
        each!(
            self,
            |_policy, state| Ok(State::drop_expired(&mut std::mem::take(*state), at.server)),
            |rate, window| window.reset(at, &rate.client_id)
        )
    }
}

pub(super) fn quota_of(policy: &impl Model) -> Quota {
    let window = Duration::from_millis(policy.window().unsigned_abs());
    Quota::new(policy.limit().unsigned_abs(), window)
}
