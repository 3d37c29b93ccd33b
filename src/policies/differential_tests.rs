//! Compares the scripts of the policies, and of joint decisions, with their pure models. Both take
//! the same random steps, and after each step have the same answers and the same keys, contents and
//! times to live.
//!
//! Time is passed in, so nothing sleeps. Redis counts times to live by its own clock. They are so
//! long that none ends, and each differs from the model's by at most the time that the case has
//! taken. A case ends where this difference would change a decision of the model. Some steps write
//! a state to both sides as its `show` returns it, so that states occur to which no step of this
//! crate leads.
//!
//! `MODEL_STEPS` sets the number of steps over all algorithms.

mod keyspace;
mod sides;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::shared_rate::SharedRate;
use crate::random_cases::{cases_of, run_on_a_server};
use crate::rate::Rate;
use crate::window::Timed;
pub(super) use crate::window::timed;
pub(super) use keyspace::{Content, Keyspace, START, TTL_UNIT, show_key, times_to_live};
pub(super) use sides::{Fixture, Form, OfState, Sides, StateOf, TestState};

/// On average.
const STEPS_PER_CASE: usize = 40;
/// The steps are divided by this number: the policies, RRateLimiter, several of these, and all of
/// them together.
const ALGORITHMS: usize = POLICIES + 3;

/// An algorithm that is compared with its script.
pub(super) trait Compared: OfState + std::fmt::Debug + Clone + 'static {
    /// Whether the times of its answers follow from times to live, which Redis counts.
    const ANSWERS_BY_TIMES_TO_LIVE: bool = false;

    /// Policies whose times to live are [`TTL_UNIT`] or longer.
    fn policies() -> BoxedStrategy<Self>;

    /// States as calls, peers and operators leave them, around the time [`START`].
    fn states() -> BoxedStrategy<Self::State>;

    /// The existing keys that hold a state.
    fn show(state: &Self::State, target: &str) -> Keyspace;

    /// How much time passes between steps, in ms.
    fn pauses() -> BoxedStrategy<i64> {
        (1..2_000_i64).boxed()
    }
}

/// A policy that can be created from the numbers of its script.
pub(super) trait WithNumbers {
    fn with_numbers(numbers: &[i64]) -> Self;
}

/// Converts a number of a script to the type that a policy's constructor takes.
pub(super) fn number(number: i64) -> u32 {
    u32::try_from(number).unwrap()
}

pub(super) fn millis(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

macro_rules! tests {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(mod $name {
            #[test]
            fn script_and_model_agree() {
                super::compare::<crate::policies::$Policy>();
            }
        })*

        /// How many policies there are.
        pub(super) const POLICIES: usize = [$(stringify!($name)),*].len();

        /// A limiter of each policy.
        fn of_each_policy() -> [BoxedStrategy<One>; POLICIES] {
            [$(One::any::<super::$Policy>(stringify!($name)),)*]
        }
    };
}
policies!(tests! {});

#[derive(Debug, Clone)]
enum Step<P, S> {
    Pass(i64),
    /// A list of requests, in a call of its own or in one that others may share.
    Ask(Vec<u32>, bool),
    /// One request, by the script that decides by several limiters.
    AskJointly(u32),
    /// What the decision on one request would be.
    Peek(u32),
    /// Gives back a granted request, at most this much of it.
    GiveBack(usize, u32),
    Reset,
    ChangePolicy(P),
    Put(S),
    PutLock(Option<Option<i64>>),
}

fn a_step<M: Compared>() -> impl Strategy<Value = Step<M, M::State>> {
    let costs = prop_oneof![
        4 => prop::collection::vec(1..6_u32, 1),
        2 => prop::collection::vec(1..6_u32, 1..6),
        1 => prop::collection::vec(prop_oneof![1..300_u32, Just(u32::MAX)], 1..3),
    ];
    prop_oneof![
        4 => M::pauses().prop_map(Step::Pass),
        7 => (costs, any::<bool>()).prop_map(|(costs, is_shared)| Step::Ask(costs, is_shared)),
        3 => prop_oneof![9 => 1..6_u32, 1 => 1..300_u32].prop_map(Step::AskJointly),
        3 => prop_oneof![9 => 1..6_u32, 1 => 1..300_u32].prop_map(Step::Peek),
        3 => (any::<usize>(), 1..6_u32).prop_map(|(place, cost)| Step::GiveBack(place, cost)),
        1 => Just(Step::Reset),
        1 => M::policies().prop_map(Step::ChangePolicy),
        1 => M::states().prop_map(Step::Put),
        1 => prop::option::of(times_to_live()).prop_map(Step::PutLock),
    ]
}

/// Takes random steps by one algorithm on both sides, and panics with the fewest that show a
/// difference.
pub(super) fn compare<M: Compared>() {
    let penalty = prop_oneof![2 => Just(None), 1 => (1..5_i64).prop_map(|n| Some(n * TTL_UNIT))];
    let case = (
        M::policies(),
        penalty,
        prop::collection::vec(a_step::<M>(), 1..2 * STEPS_PER_CASE),
    );
    run_on_a_server(
        cases(),
        &case,
        async |connection, (mut policy, penalty, steps)| {
            let mut fixture = Fixture::new(connection);
            let mut sides = [Sides::new(&policy, "target", penalty)];
            for step in steps {
                let [side] = &mut sides;
                let before = side.shown();
                match step {
                    Step::Pass(millis) => fixture.pass_for_grants(millis),
                    // The script of RRateLimiter's limiters decides single requests.
                    Step::Ask(costs, _) if side.target.model.is_rate() => {
                        fixture.ask(&mut sides, Form::Alone, &costs[..1]).await;
                    }
                    Step::Ask(costs, is_shared) => {
                        let form = if is_shared { Form::Shared } else { Form::Alone };
                        fixture.ask(&mut sides, form, &costs).await;
                    }
                    Step::AskJointly(cost) => {
                        fixture.ask(&mut sides, Form::Joint, &[cost]).await;
                    }
                    Step::Peek(cost) => {
                        let is_alike = !side.target.model.is_rate();
                        fixture.peek(&mut sides, &[cost], is_alike).await;
                    }
                    Step::GiveBack(place, cost) => fixture.give_back(side, place, cost).await,
                    Step::Reset => fixture.reset(policy.clone().into(), side).await,
                    Step::ChangePolicy(to) => {
                        policy = to;
                        side.target.model = Arc::new(policy.clone().into());
                    }
                    Step::Put(state) => {
                        side.put(Box::new(StateOf::<M>(state)));
                        fixture.put(side, before).await;
                    }
                    Step::PutLock(lock) => {
                        side.lock = lock
                            .map_or_else(Timed::default, |time_to_live| timed((), time_to_live));
                        fixture.put(side, before).await;
                    }
                }
                if fixture.is_ambiguous {
                    return;
                }
                fixture.compare(&sides).await;
            }
            let all = sides[0].shown();
            sides[0].put(Box::new(StateOf::<M>(M::State::default())));
            sides[0].lock.remove();
            fixture.put(&sides[0], all).await;
        },
    );
}

/// A step of several limiters together: time passes, and one request is decided by all of them.
#[derive(Debug, Clone)]
struct JointStep {
    pause: i64,
    costs: Vec<u32>,
}

/// Makes one of the limiters that decide together, again in each case.
#[derive(Clone)]
struct One(Arc<dyn Fn() -> Sides>);

impl std::fmt::Debug for One {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0().target.fmt(f)
    }
}

impl One {
    fn new<M: Compared>(policy: M, key: &'static str, penalty: Option<i64>) -> Self {
        Self(Arc::new(move || Sides::new(&policy, key, penalty)))
    }

    /// A limiter of one policy, with or without a penalty.
    fn any<M: Compared>(key: &'static str) -> BoxedStrategy<Self> {
        let penalty = prop_oneof![2 => Just(None), 1 => Just(Some(3 * TTL_UNIT))];
        let one = (M::policies(), penalty);
        one.prop_map(move |(policy, penalty)| Self::new(policy, key, penalty))
            .boxed()
    }
}

/// Two rate limiters, and one of each policy.
fn joint() -> impl Strategy<Value = Vec<One>> {
    let overall = Rate::overall(7, Duration::from_millis(1_500));
    let kept = overall.keep_alive(Duration::from_millis(TTL_UNIT.unsigned_abs()));
    let rate = SharedRate::owned("client".into(), kept).unwrap();
    let rates = ["rate", "another rate"].map(|key| One::new(rate.clone(), key, None));
    of_each_policy()
        .to_vec()
        .prop_map(move |policies| [&rates[..], &policies].concat())
}

#[test]
fn several_limiters_decide_together_as_their_models_do() {
    let pause = prop_oneof![3 => Just(0), 1 => 1..2_000_i64];
    let cost = prop_oneof![6 => 1..4_u32, 1 => 1..600_u32];
    let step = (pause, prop::collection::vec(cost, 2 + POLICIES))
        .prop_map(|(pause, costs)| JointStep { pause, costs });
    let case = (joint(), prop::collection::vec(step, 1..2 * STEPS_PER_CASE));
    run_on_a_server(cases(), &case, async |connection, (limiters, steps)| {
        let mut fixture = Fixture::new(connection);
        let mut sides: Vec<_> = limiters.iter().map(|one| one.0()).collect();
        for JointStep { pause, costs } in steps {
            fixture.pass_for_grants(pause);
            fixture.peek(&mut sides, &costs, true).await;
            fixture.ask(&mut sides, Form::Joint, &costs).await;
            if fixture.is_ambiguous {
                return;
            }
            fixture.compare(&sides).await;
        }
    });
}

/// Several rate limiters, as peers may have left them. They share the number of grants that one
/// call may remove.
#[test]
fn rate_limiters_with_expired_grants_decide_together_as_their_models_do() {
    const LIMITERS: usize = 3;
    let states = prop::collection::vec(SharedRate::states(), LIMITERS);
    let costs = prop::collection::vec(1..9_u32, LIMITERS);
    let case = prop::collection::vec((states, costs), 1..STEPS_PER_CASE);
    run_on_a_server(cases(), &case, async |connection, steps| {
        let mut fixture = Fixture::new(connection);
        let rate = Rate::overall(20, Duration::from_millis(1_500));
        let kept = rate.keep_alive(Duration::from_millis(TTL_UNIT.unsigned_abs()));
        let rate = SharedRate::owned("client".into(), kept).unwrap();
        let mut sides = ["one", "two", "three"].map(|key| Sides::new(&rate, key, None));
        for (states, costs) in steps {
            for (side, state) in sides.iter_mut().zip(states) {
                let before = side.shown();
                side.put(Box::new(StateOf::<SharedRate>(state)));
                fixture.put(side, before).await;
            }
            fixture.peek(&mut sides, &costs, false).await;
            fixture.ask(&mut sides, Form::Joint, &costs).await;
            if fixture.is_ambiguous {
                return;
            }
            fixture.compare(&sides).await;
        }
    });
}

/// How many cases each algorithm, and all together, are taken through.
fn cases() -> u32 {
    cases_of(STEPS_PER_CASE * ALGORITHMS)
}
