//! Histories in which settings change: two versions of a service share a target, each replaces its
//! policy now and then, and time passes in which keys expire.
//!
//! The laws, on both stores:
//!
//! - Nothing expires that a version still counts. The oracle is the state with every grant that
//!   ever came into it, as it is before keys expire. No version whose last request is the latest
//!   one, or was made so recently that what it saw is not all free by its own settings, has more
//!   permits left without the expired keys than with them.
//! - Where a limit holds for every time of some length, no version grants more than its limit of
//!   all grants that were ever made and that it has to know (`grants.rs`).
//! - A lock denies until its penalty is over.
//! - Redis answers and holds what the model does. Times to live in Redis are counted by its own
//!   clock, so where the history's time passes, each key gets as much less of it, and is deleted at
//!   its end.
//!
//! `MODEL_STEPS` sets the number of steps over all algorithms, which take four times as many: as
//! few as the default find a fault of each kind.

mod grants;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use redis::aio::MultiplexedConnection;

use super::algorithm::Algorithm;
use super::answer::Outcome;
use super::differential_tests::{Compared, Fixture, Form, POLICIES, Sides, TestState};
use super::shared_rate::SharedRate;
use crate::random_cases::{cases_of, run_on_a_server};
use crate::window::At;
use grants::Grants;

/// On average.
const STEPS_PER_CASE: usize = 40;
const ALGORITHMS: usize = POLICIES + 1;
const VERSIONS: usize = 2;

/// In ms. A case takes far less time, so that it makes no difference which keys Redis has counted
/// down meanwhile.
const UNIT: i64 = 100_000_000;

pub(super) fn units(count: u32) -> Duration {
    Duration::from_millis(UNIT.unsigned_abs()) * count
}

/// An algorithm whose policies change.
pub(super) trait Versioned: Compared {
    /// The least cost of a request.
    const COST: u32 = 1;
    /// Whether the end of a key's life is the end of what it counts, whatever the policy: it ends
    /// the window.
    const EXPIRES_AS_IT_COUNTS: bool = false;

    fn versions() -> BoxedStrategy<Self>;

    /// The ms in which no more than the limit is ever granted; `None` if there is no such time, or
    /// if a version with a shorter window removes what one with a longer window counts.
    fn span(&self) -> Option<i64> {
        None
    }
}

#[derive(Debug, Clone)]
enum Step<M> {
    Pass(i64),
    /// A list of requests of one version.
    Ask(usize, Vec<u32>),
    /// One request, by the script that decides by several limiters.
    AskJointly(usize, u32),
    Change(usize, M),
    /// A version gets this penalty.
    ChangePenalty(usize, Option<i64>),
    /// One request with numbers of its own, such as one that has its rate with it.
    AskOnce(M, u32),
}

fn a_step<M: Versioned>() -> impl Strategy<Value = Step<M>> {
    let version = || 0..2_usize;
    let cost = || (1..7_u32).prop_map(|n| n * M::COST);
    // No two sums of pauses are a whole number of quarters apart, so that no key expires at the
    // very time of a request.
    let pause = (
        prop_oneof![3 => 0..4_i64, 2 => 0..40_i64],
        100_000..900_000_i64,
    )
        .prop_map(|(quarters, more)| quarters * UNIT / 4 + more);
    prop_oneof![
        4 => pause.prop_map(Step::Pass),
        6 => (version(), prop::collection::vec(cost(), 1..3)).prop_map(|(at, it)| Step::Ask(at, it)),
        2 => (version(), cost()).prop_map(|(at, cost)| Step::AskJointly(at, cost)),
        1 => (version(), M::versions()).prop_map(|(at, to)| Step::Change(at, to)),
        1 => (M::versions(), cost()).prop_map(|(policy, cost)| Step::AskOnce(policy, cost)),
        1 => (version(), prop::option::weighted(0.4, 1..12_i64))
            .prop_map(|(at, quarters)| Step::ChangePenalty(at, quarters.map(|n| n * UNIT / 4))),
    ]
}

/// What a version knows since its last request.
#[derive(Debug, Clone, Default)]
struct Seen {
    model: Option<Arc<Algorithm>>,
    /// When everything that it saw is free again by its settings.
    until: i64,
    is_latest: bool,
    /// Whether its next request comes when all that it saw is free, or with other settings.
    is_back: bool,
}

impl Seen {
    /// What is left for a request, at most the limit; `None` if the limiter is missing.
    fn left(&self, state: &mut dyn TestState, at: At) -> Option<i64> {
        let answer = state.paired(self.model.as_ref()?).evaluate(at, 1).ok()?;
        Some(match answer.is_granted() {
            true => answer.remaining + 1,
            false => 0,
        })
    }
}

/// Takes random histories, and panics with the shortest one that breaks a law.
fn take<M: Versioned>() {
    let case = (
        [M::versions(), M::versions()],
        M::versions(),
        prop::collection::vec(a_step::<M>(), 1..2 * STEPS_PER_CASE),
    );
    let cases = 4 * cases_of(STEPS_PER_CASE * ALGORITHMS);
    run_on_a_server(
        cases,
        &case,
        async |connection, (mut policies, mut once, steps)| {
            let mut fixture = Fixture::new(connection.clone());
            let mut sides = [Sides::new(&policies[0], "target", None)];
            let mut versions = [Seen::default(), Seen::default()];
            let mut penalties = [None; VERSIONS];
            let mut grants = Grants::default();
            let mut locked_until = i64::MIN;
            let is_on_the_window = sides[0].target.model.is_rate();
            for step in steps {
                let (form, version, costs) = match step {
                    Step::Pass(millis) => {
                        fixture.pass(millis);
                        age(connection.clone(), millis).await;
                        continue;
                    }
                    Step::Change(version, to) => {
                        policies[version] = to;
                        versions[version].is_back = true;
                        continue;
                    }
                    Step::ChangePenalty(version, penalty) => {
                        penalties[version] = penalty;
                        continue;
                    }
                    Step::Ask(version, costs) if is_on_the_window => {
                        (Form::Alone, Some(version), costs[..1].to_vec())
                    }
                    Step::Ask(0, costs) => (Form::Alone, Some(0), costs),
                    Step::Ask(version, costs) => (Form::Shared, Some(version), costs),
                    Step::AskJointly(version, cost) => (Form::Joint, Some(version), vec![cost]),
                    Step::AskOnce(policy, cost) => {
                        once = policy;
                        (Form::Alone, None, vec![cost])
                    }
                };
                let policy = version.map_or(&once, |version| &policies[version]);
                let penalty = version.and_then(|version| penalties[version]);
                let at = fixture.at();
                let [side] = &mut sides;
                let mut kept = side.state.cloned();
                side.state.drop_expired(at.server);
                side.lock.drop_expired(at.server);
                for seen in &mut versions {
                    let counts = seen.is_latest || at.now < seen.until;
                    seen.is_back |= !counts;
                    if !M::EXPIRES_AS_IT_COUNTS && counts {
                        let limit = seen.model.as_ref().and_then(|model| model.limit());
                        let with_all = seen.left(&mut *kept, at).or(limit);
                        let without = seen.left(&mut *side.state, at).or(limit);
                        assert_eq!(
                            without, with_all,
                            "what {:?} counts has expired",
                            seen.model
                        );
                    }
                }
                let model: Arc<Algorithm> = Arc::new(policy.clone().into());
                side.target.model = Arc::clone(&model);
                side.target.penalty = penalty;
                let answers = fixture.ask(&mut sides, form, &costs).await;
                if fixture.is_ambiguous {
                    return;
                }
                fixture.compare(&sides).await;
                let outcomes = answers.iter().map(|answer| answer.outcome);
                let are_all = |outcome| answers.iter().all(|answer| answer.outcome == outcome);
                if (penalty.is_some() || model.properties().honours_foreign_locks)
                    && at.now < locked_until
                {
                    assert!(are_all(Outcome::LockedOut), "{answers:?}");
                }
                if let Some(penalty) = penalty
                    && outcomes.clone().any(|outcome| outcome == Outcome::Denied)
                {
                    locked_until = locked_until.max(at.now + penalty);
                }
                if are_all(Outcome::LockedOut) || are_all(Outcome::Never) {
                    continue; // the limiter is missing
                }
                let is_back = version.is_none_or(|version| versions[version].is_back);
                if let (Some(span), Some(limit)) = (policy.span(), model.limit()) {
                    let granted = outcomes.zip(&costs);
                    let granted = granted.filter(|(outcome, _)| *outcome == Outcome::Granted);
                    let costs = granted.map(|(_, &cost)| i64::from(cost));
                    let place = version.unwrap_or(VERSIONS);
                    grants.ask(at.now, place, is_back, (limit, span), costs);
                }
                versions.iter_mut().for_each(|seen| seen.is_latest = false);
                let Some(version) = version else { continue };
                let [Sides { state, .. }] = &mut sides;
                let reset = state.paired(&model).evaluate(at, i64::from(u32::MAX));
                versions[version] = Seen {
                    model: Some(model),
                    until: at.now + reset.map_or(0, |evaluation| evaluation.reset),
                    is_latest: true,
                    is_back: false,
                };
            }
        },
    );
}

/// Lets time pass on the clock by which times to live are counted.
async fn age(mut connection: MultiplexedConnection, millis: i64) {
    const AGE: &str = r"
for _, key in ipairs(redis.call('keys', '*')) do
  local left = redis.call('pttl', key)
  if left >= 0 and left <= tonumber(ARGV[1]) then
    redis.call('del', key)
  elseif left >= 0 then
    redis.call('pexpire', key, string.format('%d', left - ARGV[1]))
  end
end
";
    let mut command = redis::cmd("EVAL");
    command.arg(AGE).arg(0).arg(millis);
    command.exec_async(&mut connection).await.unwrap();
}

macro_rules! tests {
    ([] $($name:ident: $Policy:ident,)*) => {
        $(mod $name {
            #[test]
            fn nothing_expires_that_counts() {
                super::take::<crate::policies::$Policy>();
            }
        })*
    };
}
policies!(tests! {});

#[test]
fn nothing_expires_that_a_keyed_rate_limiter_counts() {
    take::<SharedRate>();
}
