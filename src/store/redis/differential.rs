//! The scripts against the pure model: the same random steps through both, and after each the same answer and the same
//! keys, members, scores and times to live.
//!
//! Time is passed in, so nothing sleeps. Times to live are counted by Redis's own clock: each one set here is a
//! multiple of 1000 s that no other step of the case uses, and what is left of it, rounded up, is what was set.
//!
//! `MODEL_STEPS` sets the number of steps, 100,000 by default.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use redis::aio::MultiplexedConnection;

use super::acquire_answer::{AcquireAnswer, Outcome};
use super::acquire_args::{acquire_args, call_key, reclaim_args};
use super::failure::Failure;
use super::multi_acquire::Entered;
use super::retry::Limits;
use super::*;
use crate::grant::{Grant, Origin};
use crate::model::{
    Acquire, At, Condition, Expiry, Pool, Requests, Retry, Run, SetUp, Settings, Share, Timed,
    Window,
};
use crate::permit;
use crate::rate::{LARGEST_RATE, Rate, RateType, ValidRate};
use crate::script;
use crate::store::{IfMissing, PermitsInUse, TimeToLive};
use crate::support::Server;

const STEPS_PER_CASE: usize = 50;
const CLIENTS: [&str; 2] = ["a", "b"];
/// No time to live is shorter than this.
const TTL_UNIT: i64 = 1_000_000;

#[derive(Debug, Clone)]
enum Step {
    Pass(i64),
    Acquire(Request),
    /// The last acquire, sent again.
    SendAgain(Before),
    /// Gives back what the last acquire took.
    Reclaim(Before),
    Release(u32, Option<i64>),
    /// The grant of one of the last acquires, all of it or less.
    Refund(usize, u32, Option<i64>),
    AvailablePermits,
    TrySetRate(ValidRate),
    SetRate(ValidRate),
    UpdateRate(ValidRate, PermitsInUse, IfMissing),
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
struct Request {
    runs: Vec<(u32, u32)>,
    fifo: bool,
    share: Option<Share>,
    newer_than_age: Option<i64>,
    audited_rate: Option<i64>,
    set_up: Option<SetUp>,
}

/// Earlier attempts: whether one may still arrive, and how far the earliest and latest times of their scores lie around
/// the true ones.
#[derive(Debug, Clone)]
struct Before {
    may_arrive: bool,
    earlier: i64,
    later: i64,
}

impl Before {
    fn retry(&self, first: i64, last: i64) -> Retry {
        Retry {
            previous_deadline: if self.may_arrive { NEVER } else { -1 },
            from: first - self.earlier,
            to: last + self.later,
        }
    }
}

/// A deadline that never comes, in ms.
const NEVER: i64 = 1 << 52;

/// What peers, evictions and operators do to the keys.
#[derive(Debug, Clone)]
enum Corrupt {
    Value(Option<i64>),
    LosePermits,
    LoseHash,
    Member { age: i64, member: Vec<u8> },
}

fn a_rate() -> impl Strategy<Value = ValidRate> {
    (
        prop_oneof![8 => 1..20_i64, 1 => Just(LARGEST_RATE as i64)],
        prop_oneof![12 => 1..2000_i64, 1 => TTL_UNIT - 3..TTL_UNIT + 3],
        prop_oneof![3 => Just(RateType::Overall), 1 => Just(RateType::PerClient)],
        prop_oneof![3 => Just(0), 1 => (1..9_i64).prop_map(|n| n * TTL_UNIT)],
    )
        .prop_map(|(permits, interval, rate_type, keep_alive)| ValidRate {
            rate_type,
            permits,
            interval,
            keep_alive,
        })
}

fn a_member() -> impl Strategy<Value = Vec<u8>> {
    let random = prop_oneof![
        prop::collection::vec(any::<u8>(), 16),
        prop::collection::vec(any::<u8>(), 8)
    ];
    prop_oneof![
        8 => (random, 0..6_u32).prop_map(|(random, permits)| permit::encode(&random, permits).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..24),
    ]
}

fn audited_rate() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(1..20_i64)
}

fn set_up() -> impl Strategy<Value = SetUp> {
    (a_rate(), any::<bool>()).prop_map(|(rate, keep_alive_counts)| SetUp {
        settings: rate.into(),
        keep_alive_counts,
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
        prop::option::weighted(0.2, -300..1_500_i64),
        audited_rate(),
        prop::option::weighted(0.1, set_up()),
    )
        .prop_map(
            |(runs, fifo, share, newer_than_age, audited_rate, set_up)| Request {
                runs,
                fifo,
                share,
                newer_than_age,
                audited_rate,
                set_up,
            },
        )
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..800_i64).prop_map(Step::Pass),
        16 => a_request().prop_map(Step::Acquire),
        2 => before().prop_map(Step::SendAgain),
        1 => before().prop_map(Step::Reclaim),
        3 => (1..12_u32, audited_rate()).prop_map(|(permits, summed)| Step::Release(permits, summed)),
        3 => (0..4_usize, 1..12_u32, audited_rate())
            .prop_map(|(which, permits, summed)| Step::Refund(which, permits, summed)),
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

/// One key: what it holds and its time to live.
type Held<T> = Option<(T, Option<i64>)>;

/// One pool's value and members.
type PoolState = (Held<i64>, Held<Vec<(i64, Vec<u8>)>>);

/// All keys, in a form that both sides have.
#[derive(Debug, PartialEq)]
struct Keyspace {
    hash: Held<BTreeMap<String, String>>,
    overall: PoolState,
    clients: [PoolState; 2],
}

fn of_model(window: &Window) -> Keyspace {
    let hash = held(&window.settings).map(|(settings, ttl)| {
        let Settings {
            rate,
            interval,
            rate_type,
            keep_alive,
        } = settings;
        let fields = [
            ("rate", rate),
            ("interval", interval),
            ("type", rate_type.code()),
            ("keepAliveTime", keep_alive),
        ];
        let fields = fields.map(|(field, number)| (field.to_owned(), number.to_string()));
        (BTreeMap::from(fields), ttl)
    });
    let pool = |pool: &Pool| {
        let grants = held(&pool.grants).map(|(grants, ttl)| {
            let members = grants
                .iter()
                .map(|(score, member)| (score, member.to_vec()));
            (members.collect(), ttl)
        });
        (held(&pool.value), grants)
    };
    let nothing = Pool::default();
    Keyspace {
        hash,
        overall: pool(&window.overall),
        clients: CLIENTS.map(|client| pool(window.clients.get(client).unwrap_or(&nothing))),
    }
}

fn held<T: Clone>(key: &Timed<T>) -> Held<T> {
    key.get().map(|value| (value.clone(), key.expires_at()))
}

const READ_ALL: &str = r"
local function ttl(key) return redis.call('pttl', key) end
local answer = { redis.call('hgetall', KEYS[1]), ttl(KEYS[1]) }
for i = 2, #KEYS, 2 do
  table.insert(answer, redis.call('get', KEYS[i]))
  table.insert(answer, ttl(KEYS[i]))
  table.insert(answer, redis.call('zrange', KEYS[i + 1], 0, -1, 'withscores'))
  table.insert(answer, ttl(KEYS[i + 1]))
end
return answer
";

type Members = Vec<(Vec<u8>, i64)>;
type RawPool = (Option<i64>, i64, Members, i64);

async fn of_redis(connection: &mut MultiplexedConnection, keys: &[Keys; 2]) -> Keyspace {
    let [a, b] = keys;
    let mut command = redis::cmd("EVAL");
    command.arg(READ_ALL).arg(7).arg(&[
        &a.name,
        &a.value,
        &a.permits,
        &a.client_value,
        &a.client_permits,
        &b.client_value,
        &b.client_permits,
    ]);
    let answer: Vec<Value> = command.query_async(connection).await.unwrap();
    let hash: BTreeMap<String, String> = from_redis_value(answer[0].clone()).unwrap();
    let ttl: i64 = from_redis_value(answer[1].clone()).unwrap();
    let pool = |at: usize| {
        let raw = Value::Array(answer[at..at + 4].to_vec());
        let (value, value_ttl, members, ttl): RawPool = from_redis_value(raw).unwrap();
        let members: Vec<_> = members.into_iter().map(|(m, score)| (score, m)).collect();
        (
            value.map(|value| (value, as_set(value_ttl))),
            (!members.is_empty()).then(|| (members, as_set(ttl))),
        )
    };
    Keyspace {
        hash: (!hash.is_empty()).then(|| (hash, as_set(ttl))),
        overall: pool(2),
        clients: [pool(6), pool(10)],
    }
}

/// The time to live that was set, computed from what is left of it.
fn as_set(left: i64) -> Option<i64> {
    (left >= 0).then(|| (left + TTL_UNIT - 1) / TTL_UNIT * TTL_UNIT)
}

/// Both sides of the comparison, and what later steps refer to.
struct Sides {
    redis: RedisStore,
    connection: MultiplexedConnection,
    model: Window,
    limiters: [Arc<RedisLimiter>; 2],
    now: Arc<AtomicI64>,
    calls: u64,
    last_call: Option<Acquire>,
    first_attempt: i64,
    last_attempt: i64,
    grants: Vec<Grant>,
    next_ttl: i64,
}

impl Sides {
    fn keys(&self) -> [Keys; 2] {
        [0, 1].map(|client| Keys::clone(&self.limiters[client].keys))
    }

    /// Takes a step on both sides and compares the answers.
    async fn take(&mut self, step: &Step, client: usize) {
        let limiter = Arc::clone(&self.limiters[client]);
        let client = CLIENTS[client];
        let at = At {
            now: self.now.load(Ordering::Relaxed),
            server: 0,
        };
        match step {
            Step::Pass(millis) => {
                self.now.fetch_add(*millis, Ordering::Relaxed);
            }
            Step::Acquire(request) => {
                self.calls += 1;
                // No member of a corrupting step has these bytes.
                let mut random = [0xa5; 16];
                // Not in ascending order, so that equal scores are ordered by what follows the length byte.
                random[..8].copy_from_slice(&self.calls.wrapping_mul(0x9e37_79b9).to_le_bytes());
                let runs = request.runs.iter();
                let runs = runs.map(|&(permits, count)| Run { permits, count });
                let requests = Requests {
                    runs: runs.collect(),
                    fifo: request.fifo,
                    share: request.share,
                };
                let call = Acquire {
                    random,
                    audited_rate: request.audited_rate,
                    requests,
                    newer_than: request.newer_than_age.map(|age| at.now - age),
                    set_up: request.set_up,
                };
                self.acquire(&limiter, at, client, call, None).await;
            }
            Step::SendAgain(before) => {
                if let Some(call) = self.last_call.clone() {
                    let retry = before.retry(self.first_attempt, self.last_attempt);
                    self.acquire(&limiter, at, client, call, Some(retry)).await;
                }
            }
            Step::Reclaim(before) => {
                if let Some(call) = self.last_call.clone() {
                    let made = before.retry(self.first_attempt, self.last_attempt);
                    self.reclaim(&limiter, at, client, &call, &made).await;
                }
            }
            Step::Release(permits, audited_rate) => {
                let redis = limiter.release_audited(*permits, *audited_rate).await;
                let model = self.model.release(at, client, *permits, *audited_rate);
                assert_eq!(initialized(redis), model.ok().map(|_left| ()));
            }
            Step::Refund(which, permits, audited_rate) => {
                let Some(last) = self.grants.len().checked_sub(which + 1) else {
                    return;
                };
                let grant = Grant {
                    permits: *permits,
                    ..self.grants[last]
                };
                let redis = limiter.refund_audited(&grant, *audited_rate).await;
                let model = self.model.refund(at, client, &grant, *audited_rate);
                assert_eq!(initialized(redis), model.ok());
            }
            Step::AvailablePermits => {
                let redis = limiter.available_permits().await;
                assert_eq!(
                    initialized(redis),
                    self.model.available_permits(at, client).ok()
                );
            }
            Step::TrySetRate(rate) => {
                let redis = limiter.try_set_rate(*rate).await.unwrap();
                assert_eq!(redis, self.model.try_set_rate(at, client, *rate));
            }
            Step::SetRate(rate) => {
                limiter.set_rate(*rate).await.unwrap();
                self.model.set_rate(at, client, *rate);
            }
            Step::UpdateRate(rate, state, if_missing) => {
                let redis = limiter.update_rate(*rate, *state, *if_missing);
                let keep = *state == PermitsInUse::Keep;
                let only_existing = *if_missing == IfMissing::DoNothing;
                let model = self
                    .model
                    .update_rate(at, client, *rate, keep, only_existing);
                assert_eq!(redis.await.unwrap(), model);
            }
            Step::Config => {
                let redis = limiter.config().await.unwrap();
                let model = self.model.config(at.server).map(|settings| {
                    let Settings {
                        rate,
                        interval,
                        rate_type,
                        keep_alive,
                    } = settings;
                    let [rate, interval, keep_alive] =
                        [rate, interval, keep_alive].map(i64::unsigned_abs);
                    Rate::from_stored(rate_type, rate, interval, keep_alive)
                });
                assert_eq!(redis, model);
            }
            Step::Exists => {
                let redis = limiter.exists().await.unwrap();
                assert_eq!(redis, self.model.exists(at.server));
            }
            Step::Delete => {
                let redis = limiter.delete().await.unwrap();
                assert_eq!(redis, self.model.delete(client, at.server));
            }
            Step::Expire(condition) => {
                let expiry = Expiry::In(self.new_ttl());
                let redis = limiter.expire(expiry, *condition).await.unwrap();
                assert_eq!(
                    redis,
                    self.model.expire(client, at.server, expiry, *condition)
                );
            }
            Step::ExpireAt => {
                // A time in the past, so that the keys are removed.
                let expiry = Expiry::At(-1);
                let always = Condition::Always;
                let redis = limiter.expire(Expiry::At(1), always).await.unwrap();
                assert_eq!(redis, self.model.expire(client, at.server, expiry, always));
            }
            Step::ClearExpire => {
                let redis = limiter.clear_expire().await.unwrap();
                assert_eq!(redis, self.model.clear_expire(client, at.server));
            }
            Step::RemainTimeToLive => {
                let redis = match limiter.remain_time_to_live().await.unwrap() {
                    TimeToLive::Missing => None,
                    TimeToLive::Unlimited => Some(None),
                    TimeToLive::Remaining(left) => Some(as_set(left.as_millis() as i64)),
                };
                assert_eq!(redis, self.model.remain_time_to_live(at.server));
            }
            Step::Corrupt(corrupt) => self.corrupt(corrupt, &limiter.keys, at).await,
        }
    }

    async fn acquire(
        &mut self,
        limiter: &RedisLimiter,
        at: At,
        client: &str,
        call: Acquire,
        retry: Option<Retry>,
    ) {
        let keys = &limiter.keys;
        let of_call = call_key(keys, &call);
        let mut sent_retry = retry;
        let redis = loop {
            let rate_type = limiter.rate_type_for(&call);
            let is_plain = retry.is_none() && call.set_up.is_none();
            let answer = match is_plain && self.calls.is_multiple_of(8) {
                true => self.ask_in_company(keys, rate_type, &call).await,
                false => None,
            };
            let answer = match answer {
                Some(answer) => Ok(answer),
                None => {
                    let deadline = retry.map(|_| NEVER);
                    let now = Some(at.now);
                    let args = acquire_args(&call, sent_retry.as_ref(), rate_type, now, deadline);
                    let sets_up = call.set_up.is_some();
                    let keys = keys.of_acquire(rate_type, sets_up, of_call.as_deref());
                    script::ACQUIRE
                        .run(&self.redis.connection, &keys, &args, Limits::for_test())
                        .await
                }
            };
            // No copy of it arrives any more.
            if let Some(key) = &of_call {
                let mut delete = redis::cmd("DEL");
                let deleting = delete.arg(key).exec_async(&mut self.connection);
                deleting.await.unwrap();
            }
            let answer = match answer {
                Ok(answer) => {
                    AcquireAnswer::read(&keys.name, answer, Some(at.now), call.audited_rate)
                        .unwrap()
                }
                Err(Failure::Refused(error)) => {
                    break initialized(Err(failure::of_answer(&keys.name, error)));
                }
                Err(failure) => panic!("{failure:?}"),
            };
            match answer.outcome {
                Outcome::Decided(answer) => break Some(Ok(answer)),
                Outcome::Early(_) => break Some(Err(())),
                Outcome::OtherType(rate_type) => limiter.learn_type(rate_type),
                Outcome::Again => {}
                Outcome::More(from) => sent_retry = retry.map(|retry| Retry { from, ..retry }),
                other => panic!("{other:?}"),
            }
        };
        let model = match retry {
            Some(retry) => self.model.acquire_again(at, client, &call, &retry).ok(),
            None => self.model.acquire(at, client, &call).ok().map(Ok),
        };
        let model = model.map(|answer| answer.map_err(drop));
        assert_eq!(redis, model);
        if let Some(Ok(answer)) = model {
            let taken = call.requests.taken(&answer);
            if taken > 0 {
                self.grants.push(Grant {
                    score: answer.score,
                    random: call.random,
                    permits: taken as u32,
                    origin: Origin::Store,
                });
            }
        }
        self.last_call = Some(call);
        self.last_attempt = at.now;
        if retry.is_none() {
            self.first_attempt = at.now;
        }
    }

    async fn reclaim(
        &mut self,
        limiter: &RedisLimiter,
        at: At,
        client: &str,
        call: &Acquire,
        made: &Retry,
    ) {
        let name = &limiter.keys.name;
        let all_keys = limiter.keys.of_refund();
        let mut sent = *made;
        let redis = loop {
            let (random, requests) = (&call.random, &call.requests);
            let now = Some(at.now);
            let args = reclaim_args(random, requests, &sent, now, call.audited_rate, None);
            let answer =
                script::RECLAIM.run(&self.redis.connection, &all_keys, &args, Limits::for_test());
            match answer.await {
                Ok(answer) => match AcquireAnswer::read_reclaim(name, answer).unwrap().outcome {
                    Outcome::Decided(permits) => break Some(Ok(permits)),
                    Outcome::Early(_) => break Some(Err(())),
                    Outcome::More(from) => sent.from = from,
                    other => panic!("{other:?}"),
                },
                Err(Failure::Refused(error)) => {
                    break initialized(Err(failure::of_answer(name, error)));
                }
                Err(failure) => panic!("{failure:?}"),
            }
        };
        let model = self.model.reclaim(at, client, call, made).ok();
        assert_eq!(redis, model.map(|answer| answer.map_err(drop)));
    }

    /// Sends the call with others before and after it that fail.
    async fn ask_in_company(
        &self,
        keys: &Keys,
        rate_type: RateType,
        call: &Acquire,
    ) -> Option<Value> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let multi_acquires = &self.redis.multi_acquires;
        let in_flight = multi_acquires.enter().unwrap();
        let ask = |keys| multi_acquires.acquire(&in_flight, keys, rate_type, call, deadline, NEVER);
        let missing = Keys::new("missing", "client");
        // In place of its settings there is another limiter's value, or nothing.
        let wrong = Keys::new(&keys.value, "client");
        let (before, answer, behind) = tokio::join!(ask(&missing), ask(keys), ask(&wrong));
        assert!(matches!(before, Some(Entered::Refused)));
        assert!(matches!(behind, Some(Entered::Refused)));
        let Some(Entered::Answered(sent)) = answer else {
            return None;
        };
        let sent = sent.expect("the call was made");
        assert_eq!(sent.now, self.redis.clock.now());
        Some(sent.answer)
    }

    async fn corrupt(&mut self, corrupt: &Corrupt, keys: &Keys, at: At) {
        let connection = &mut self.connection;
        let mut command = redis::Cmd::new();
        match corrupt {
            Corrupt::Value(Some(value)) => {
                command.arg("SET").arg(&keys.value).arg(value);
                self.model.overall.value.set(*value);
            }
            Corrupt::Value(None) => {
                command.arg("DEL").arg(&keys.value);
                self.model.overall.value.remove();
            }
            Corrupt::LosePermits => {
                command.arg("DEL").arg(&keys.permits);
                self.model.overall.grants.remove();
            }
            Corrupt::LoseHash => {
                command.arg("DEL").arg(&keys.name);
                self.model.settings.remove();
            }
            Corrupt::Member { age, member } => {
                let score = at.now - age;
                command
                    .arg("ZADD")
                    .arg(&keys.permits)
                    .arg(score)
                    .arg(member);
                let grants = &mut self.model.overall.grants;
                grants
                    .get_or_set(crate::model::Grants::new)
                    .insert_member(score, member);
            }
        }
        command.exec_async(connection).await.unwrap();
    }

    fn new_ttl(&mut self) -> i64 {
        self.next_ttl += TTL_UNIT;
        self.next_ttl
    }
}

/// The answer, or `None` if the limiter has no rate. Any other error is unexpected here.
fn initialized<T>(answer: Result<T>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(Error::NotInitialized { .. }) => None,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn the_scripts_and_the_model_give_the_same_answers_and_the_same_state() {
    let steps = std::env::var("MODEL_STEPS").map_or(100_000, |steps| steps.parse().unwrap());
    let cases = u32::try_from(steps / STEPS_PER_CASE).unwrap().max(2);
    // Two at a time, each with its own server: client and server take turns.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| compare(cases / 2));
        }
    });
}

/// Runs this many cases and panics with the fewest steps that show a difference.
fn compare(cases: u32) {
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
    let step = (a_step(), prop_oneof![3 => Just(0_usize), 1 => Just(1)]);
    let case = (a_rate(), prop::collection::vec(step, STEPS_PER_CASE));
    let names = AtomicI64::new(0);
    let run = |(rate, steps): (ValidRate, Vec<(Step, usize)>)| {
        let name = names.fetch_add(1, Ordering::Relaxed).to_string();
        runtime.block_on(compare_case(&connection, &name, rate, &steps));
        Ok(())
    };
    match TestRunner::new(config).run(&case, run) {
        Ok(()) => {}
        Err(TestError::Fail(why, (rate, steps))) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
            panic!("{why}\nThe fewest steps: {rate:?}\n{}", steps.join("\n"));
        }
        Err(aborted) => panic!("{aborted}"),
    }
}

async fn compare_case(
    connection: &MultiplexedConnection,
    name: &str,
    rate: ValidRate,
    steps: &[(Step, usize)],
) {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Clock::from_fn({
        let now = Arc::clone(&now);
        move || now.load(Ordering::Relaxed)
    });
    let redis = RedisStore::over(connection.clone(), clock, Duration::from_secs(30));
    let limiter = |client| {
        Arc::new(RedisLimiter::new(
            redis.clone(),
            Arc::new(Keys::new(name, client)),
        ))
    };
    let mut sides = Sides {
        limiters: CLIENTS.map(limiter),
        redis,
        connection: connection.clone(),
        model: Window::default(),
        now,
        calls: 0,
        last_call: None,
        first_attempt: 0,
        last_attempt: 0,
        grants: Vec::new(),
        next_ttl: 10 * TTL_UNIT,
    };
    let mut attempts = Attempts::new(sides.redis.deadline(), retry::Repeat::Safe);
    let asked = sides.redis.server_deadline(name, &mut attempts).await;
    asked.unwrap(); // a shared call needs the server's time
    sides.take(&Step::TrySetRate(rate), 0).await;
    for (step, client) in steps {
        sides.take(step, *client).await;
        let keys = sides.keys();
        let redis = of_redis(&mut sides.connection, &keys).await;
        assert_eq!(redis, of_model(&sides.model), "after {step:?}");
    }
    for keys in &sides.keys() {
        let mut delete = redis::cmd("DEL");
        delete.arg(&keys.in_order());
        delete.exec_async(&mut sides.connection).await.unwrap();
    }
}
