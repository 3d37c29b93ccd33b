//! The other limiters' scripts against their pure models: the same random steps through both, and after each the same
//! answers and the same keys, contents and times to live.
//!
//! Time is passed in, so nothing sleeps. Times to live run by Redis's own clock: each one set here is a multiple of
//! [`TTL_UNIT`], and what is left of it, rounded up, is what was set. A state is put on both sides as its `show` says, so
//! that states occur that no step of ours leads to.
//!
//! `MODEL_STEPS` sets how many steps are taken over all, 100,000 where it is not set.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use redis::aio::MultiplexedConnection;
use redis::{Value, from_redis_value};

use super::algorithm::{Model, State};
use super::call::{Answer, Call, Opened, Outcome, Target, decide};
use super::shared_rate::SharedRate;
use super::{
    FixedWindow, LeakyBucket, PenaltyTokenBucket, QuotaBucket, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket,
};
use crate::keys::beside;
use crate::model::{At, Timed};
use crate::permit::Random;
use crate::rate::Rate;
use crate::script;
use crate::store::redis::connection::Connection;
use crate::store::redis::decide::{Reply, joint_args, read_reply, script_and_args};
use crate::store::redis::failure::Failure;
use crate::store::redis::retry::Limits;
use crate::support::Server;

/// What no time to live comes below, in ms.
pub(super) const TTL_UNIT: i64 = 200_000;

/// On the average.
const STEPS_PER_CASE: usize = 40;
/// So many share the steps: the algorithms, and all of them together.
const ALGORITHMS: usize = 9;

/// An algorithm whose script is held against it.
pub(super) trait Compared: Model<State: Clone> {
    /// Whether its answers' times follow from times to live, which Redis counts.
    const ANSWERS_BY_TIMES_TO_LIVE: bool = false;

    /// Policies whose times to live are multiples of [`TTL_UNIT`].
    fn policies() -> BoxedStrategy<Self>;

    /// States as calls, peers and operators leave them, around the time [`START`].
    fn states() -> BoxedStrategy<Self::State>;

    /// The keys that hold a state. Only what is there.
    fn show(state: &Self::State, target: &str) -> Keyspace;

    /// How much time passes between steps, in ms.
    fn pauses() -> BoxedStrategy<i64> {
        (1..2_000_i64).boxed()
    }
}

/// When a case starts, in ms.
pub(super) const START: i64 = 5_000 * TTL_UNIT;

/// Each key's content and time to live.
pub(super) type Keyspace = BTreeMap<String, (Content, Option<i64>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    Text(String),
    Hash(BTreeMap<String, String>),
    Zset(Vec<(i64, Vec<u8>)>),
}

/// Adds a key where the state has it.
pub(super) fn show_key<T>(
    keyspace: &mut Keyspace,
    key: String,
    held: &Timed<T>,
    content: impl FnOnce(&T) -> Content,
) {
    if let Some(value) = held.get() {
        keyspace.insert(key, (content(value), held.expires_at()));
    }
}

/// A key with a value and a time to live that Redis holds, for a strategy of states.
pub(super) fn timed<T>(value: T, time_to_live: Option<i64>) -> Timed<T> {
    let mut timed = Timed::default();
    timed.set(value);
    if let Some(at) = time_to_live {
        timed.expire_at(at);
    }
    timed
}

/// Times to live as a peer might have set them.
pub(super) fn times_to_live() -> BoxedStrategy<Option<i64>> {
    prop_oneof![4 => (1..9_i64).prop_map(|n| Some(n * TTL_UNIT)), 1 => Just(None)].boxed()
}

#[derive(Debug, Clone)]
enum Step<P, S> {
    Pass(i64),
    /// A list of requests.
    Ask(Vec<u32>),
    /// One request, by the script that decides by several limiters.
    AskJointly(u32),
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
        7 => costs.prop_map(Step::Ask),
        3 => prop_oneof![9 => 1..6_u32, 1 => 1..300_u32].prop_map(Step::AskJointly),
        1 => M::policies().prop_map(Step::ChangePolicy),
        1 => M::states().prop_map(Step::Put),
        1 => prop::option::of(times_to_live()).prop_map(Step::PutLock),
    ]
}

/// A target on both sides.
struct Sides {
    target: Target,
    state: Box<dyn State>,
    lock: Timed<()>,
    show: fn(&dyn State, &str) -> Keyspace,
    rounds: bool,
}

impl Sides {
    fn new<M: Compared>(policy: &M, key: &str, penalty: Option<i64>) -> Self {
        Self {
            target: Target {
                model: Arc::new(policy.clone()),
                key: key.into(),
                penalty,
            },
            state: Box::new(M::State::default()),
            lock: Timed::default(),
            show: |state, key| {
                let state: &dyn Any = state;
                M::show(state.downcast_ref().unwrap(), key)
            },
            rounds: M::ANSWERS_BY_TIMES_TO_LIVE,
        }
    }

    fn lock_key(&self) -> String {
        beside(&self.target.key, "-lock")
    }

    fn shown(&self) -> Keyspace {
        let mut keyspace = (self.show)(&*self.state, &self.target.key);
        show_key(&mut keyspace, self.lock_key(), &self.lock, |()| {
            Content::Text("1".to_owned())
        });
        keyspace
    }

    /// What a script may answer by a time to live is what was set, once rounded up.
    fn rounded(&self, mut answer: Answer) -> Answer {
        if self.rounds || answer.outcome == Outcome::LockedOut {
            for time in [&mut answer.retry_after, &mut answer.reset] {
                *time = as_set(*time).unwrap_or(*time);
            }
        }
        answer
    }
}

/// The time to live that was set, from what is left of it.
pub(super) fn as_set(left: i64) -> Option<i64> {
    (left >= 0).then(|| (left + TTL_UNIT - 1) / TTL_UNIT * TTL_UNIT)
}

/// In which form of the scripts a call is made.
#[derive(Clone, Copy)]
enum Form {
    Alone,
    Joint,
}

/// The keys of one case, and the time.
struct Stage {
    connection: MultiplexedConnection,
    now: i64,
    calls: u64,
}

impl Stage {
    /// One call on both sides: the same answers, or neither takes it.
    async fn ask(&mut self, sides: &mut [Sides], form: Form, costs: &[u32]) {
        self.calls += 1;
        let mut random: Random = [0xa5; 16];
        random[..8].copy_from_slice(&self.calls.to_be_bytes());
        let limiters = sides.iter().map(|side| side.target.clone()).collect();
        let mut call = Call::new(limiters, costs.to_vec());
        call.random = random;
        let at = At {
            now: self.now,
            server: 0,
        };
        let mut opened: Vec<_> = sides
            .iter_mut()
            .map(|side| Opened {
                target: side.target.by_ref(),
                state: &mut *side.state,
                lock: &mut side.lock,
            })
            .collect();
        let model = decide(&mut opened, at, &random, costs).map(|answers| answers.answers);

        let keys = sides.iter().flat_map(|side| side.target.all_keys());
        let keys: Vec<String> = keys.collect();
        let (script, args) = match form {
            Form::Alone => script_and_args(&call, Some(self.now), None),
            Form::Joint => (&*script::JOINT, joint_args(&call, Some(self.now), None)),
        };
        let connection = Connection::given(self.connection.clone(), Duration::from_secs(60));
        let reply = loop {
            let reply = script.run(&connection, &keys, &args, Limits::for_test());
            match reply.await.map(|reply| read_reply(&call, &reply).unwrap()) {
                Ok(Reply::Unfinished { .. }) => {}
                other => break other,
            }
        };
        let redis = match reply {
            Ok(Reply::Decided { answers, .. }) => Ok(answers.answers),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        match (redis, model) {
            (Ok(redis), Ok(model)) => {
                let rounded = |answers: Vec<Answer>| -> Vec<Answer> {
                    let sides = sides.iter().cycle();
                    answers
                        .into_iter()
                        .zip(sides)
                        .map(|(answer, side)| side.rounded(answer))
                        .collect()
                };
                assert_eq!(rounded(redis), rounded(model));
            }
            (Err(Failure::Refused(error)), Err(_)) if error.code() == Some("UNINITIALIZED") => {}
            (redis, model) => panic!("{redis:?} {model:?}"),
        }
    }

    /// All keys of the server are those that the models show.
    async fn compare(&mut self, sides: &[Sides]) {
        let mut model = Keyspace::new();
        for side in sides {
            model.extend(side.shown());
        }
        assert_eq!(self.keyspace().await, model);
    }

    async fn keyspace(&mut self) -> Keyspace {
        let mut command = redis::cmd("EVAL");
        command.arg(READ_ALL).arg(0);
        let answer: Vec<(String, String, i64, Value)> =
            command.query_async(&mut self.connection).await.unwrap();
        let keys = answer.into_iter().map(|(key, kind, left, value)| {
            let content = match kind.as_str() {
                "string" => Content::Text(from_redis_value(value).unwrap()),
                "hash" => Content::Hash(from_redis_value(value).unwrap()),
                "zset" => {
                    let members: Vec<(Vec<u8>, i64)> = from_redis_value(value).unwrap();
                    Content::Zset(
                        members
                            .into_iter()
                            .map(|(member, score)| (score, member))
                            .collect(),
                    )
                }
                other => panic!("a {other}"),
            };
            (key, (content, as_set(left)))
        });
        keys.collect()
    }

    /// Puts the keys of a target on the server as its model has them.
    async fn put(&mut self, side: &Sides, before: Keyspace) {
        let mut pipe = redis::pipe();
        pipe.ping().ignore(); // there may be nothing to do
        for key in before.keys() {
            pipe.del(key).ignore();
        }
        for (key, (content, time_to_live)) in side.shown() {
            match content {
                Content::Text(text) => pipe.set(&key, text).ignore(),
                Content::Hash(fields) => pipe
                    .hset_multiple(&key, &fields.into_iter().collect::<Vec<_>>())
                    .ignore(),
                Content::Zset(members) => pipe.zadd_multiple(&key, &members).ignore(),
            };
            if let Some(millis) = time_to_live {
                pipe.pexpire(&key, millis).ignore();
            }
        }
        pipe.exec_async(&mut self.connection).await.unwrap();
    }
}

/// Each key, its type, what is left of its time to live and its content. Scripts run alone on this server.
const READ_ALL: &str = r"
local answer = {}
for _, key in ipairs(redis.call('keys', '*')) do
  local kind, value = redis.call('type', key).ok, nil
  if kind == 'string' then
    value = redis.call('get', key)
  elseif kind == 'hash' then
    value = redis.call('hgetall', key)
  else
    value = redis.call('zrange', key, 0, -1, 'withscores')
  end
  table.insert(answer, { key, kind, redis.call('pttl', key), value })
end
return answer
";

/// Takes random steps by one algorithm on both sides, and panics with the fewest that tell them apart.
pub(super) fn compare<M: Compared>() {
    let penalty = prop_oneof![2 => Just(None), 1 => (1..5_i64).prop_map(|n| Some(n * TTL_UNIT))];
    let case = (
        M::policies(),
        penalty,
        prop::collection::vec(a_step::<M>(), 1..2 * STEPS_PER_CASE),
    );
    run(
        cases(),
        &case,
        async |connection, (mut policy, penalty, steps)| {
            let mut stage = Stage {
                connection,
                now: START,
                calls: 0,
            };
            let mut sides = [Sides::new(&policy, "target", penalty)];
            for step in steps {
                let [side] = &mut sides;
                let before = side.shown();
                match step {
                    Step::Pass(millis) => stage.now += millis,
                    // The script of RRateLimiter's limiters decides single requests.
                    Step::Ask(costs) if M::ON_THE_WINDOW => {
                        stage.ask(&mut sides, Form::Alone, &costs[..1]).await;
                    }
                    Step::Ask(costs) => stage.ask(&mut sides, Form::Alone, &costs).await,
                    Step::AskJointly(cost) => {
                        stage.ask(&mut sides, Form::Joint, &[cost]).await;
                    }
                    Step::ChangePolicy(to) => {
                        policy = to.after(&policy).0;
                        side.target.model = Arc::new(policy.clone());
                    }
                    Step::Put(state) => {
                        side.state = Box::new(state);
                        stage.put(side, before).await;
                    }
                    Step::PutLock(lock) => {
                        side.lock = lock
                            .map_or_else(Timed::default, |time_to_live| timed((), time_to_live));
                        stage.put(side, before).await;
                    }
                }
                stage.compare(&sides).await;
            }
            let all = sides[0].shown();
            sides[0].state = Box::new(M::State::default());
            sides[0].lock.remove();
            stage.put(&sides[0], all).await;
        },
    );
}

/// A step of several limiters together: time passes, and one request asks all of them.
#[derive(Debug, Clone)]
struct JointStep {
    pause: i64,
    costs: Vec<u32>,
}

/// The limiters that decide together: each with a name, without and with a penalty.
fn joint_sides() -> Vec<Sides> {
    let overall = Rate::overall(7, Duration::from_millis(1_500));
    let kept = overall.keep_alive(Duration::from_millis(TTL_UNIT.unsigned_abs()));
    let rate = SharedRate::with_rate("client".into(), kept).unwrap();
    let window = Duration::from_millis(TTL_UNIT.unsigned_abs());
    // Twice this is no whole number of them, so that the ms by which some keys outlive others are rounded away.
    let uneven = window * 3 / 4;
    let penalty = Some(3 * TTL_UNIT);
    vec![
        Sides::new(&rate, "rate", None),
        Sides::new(&FixedWindow::new(30, window), "fixed", None),
        Sides::new(
            &TokenBucket::per_second(2).with_capacity(1_000),
            "tokens",
            None,
        ),
        Sides::new(
            &TokenBucket::per_second(1).with_capacity(500),
            "tokens and penalty",
            penalty,
        ),
        Sides::new(&SlidingWindowLog::new(40, window), "log", None),
        Sides::new(
            &SlidingWindowCounter::new(40, uneven).with_period(uneven / 6),
            "periods",
            None,
        ),
        Sides::new(
            &QuotaBucket::new(3, window / 200).with_capacity(600),
            "quota",
            None,
        ),
        Sides::new(
            &LeakyBucket::new(3, window).with_capacity(30),
            "leaky",
            None,
        ),
        Sides::new(
            &PenaltyTokenBucket::new(1, uneven).with_capacity(101),
            "inflow and penalty",
            penalty,
        ),
    ]
}

#[test]
fn several_limiters_decide_together_as_their_models_do() {
    let pause = prop_oneof![3 => Just(0), 1 => 1..2_000_i64];
    let cost = prop_oneof![6 => 1..4_u32, 1 => 1..600_u32];
    let count = joint_sides().len();
    let step = (pause, prop::collection::vec(cost, count))
        .prop_map(|(pause, costs)| JointStep { pause, costs });
    let case = prop::collection::vec(step, 1..2 * STEPS_PER_CASE);
    run(cases(), &case, async |connection, steps| {
        let mut stage = Stage {
            connection,
            now: START,
            calls: 0,
        };
        let mut sides = joint_sides();
        for JointStep { pause, costs } in steps {
            stage.now += pause;
            stage.ask(&mut sides, Form::Joint, &costs).await;
            stage.compare(&sides).await;
        }
    });
}

/// How many cases each algorithm, and all together, are taken through.
fn cases() -> u32 {
    let steps = std::env::var("MODEL_STEPS").map_or(100_000, |steps| steps.parse().unwrap());
    u32::try_from(steps / STEPS_PER_CASE / ALGORITHMS)
        .unwrap()
        .max(1)
}

fn run<C: std::fmt::Debug + Clone>(
    cases: u32,
    case: &impl Strategy<Value = C>,
    take: impl AsyncFn(MultiplexedConnection, C),
) {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connection = runtime.block_on(server.connection());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let taken = AtomicU64::new(0);
    let result = TestRunner::new(config).run(case, |case| {
        taken.fetch_add(1, Ordering::Relaxed);
        // What a failed case left behind is no part of the next.
        runtime.block_on(async {
            let mut connection = connection.clone();
            let () = redis::cmd("FLUSHALL")
                .query_async(&mut connection)
                .await
                .unwrap();
            take(connection, case).await;
        });
        Ok(())
    });
    match result {
        Ok(()) => assert!(taken.into_inner() >= u64::from(cases)),
        Err(TestError::Fail(why, case)) => panic!("{why}\nThe fewest steps: {case:#?}"),
        Err(aborted) => panic!("{aborted}"),
    }
}
