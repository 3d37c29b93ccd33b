//! Attempts of a call on a server: what an attempt finds of earlier ones, what is given back for a
//! caller that is gone, and the limiter's set-up in the same call.

mod copies;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::acquire::CLOCK_STEP;
use super::acquire_answer::{AcquireAnswer, Meaning};
use super::client::RedisStore;
use super::limiter::RedisLimiter;
use super::multi_acquire::AcquirePart;
use super::shared_calls::SharedReply;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::link::limits::Limits;
use crate::permit;
use crate::rate::RateType;
use crate::store::AcquireCall;
use crate::store::acquire_call::Attempt;
use crate::store::redis::script;
use crate::support::Server;
use crate::window::{Acquire, Acquired, Existing, Requests, Retry, SetUp, Settings};
use redis::{Value, from_redis_value};
use std::sync::Arc;

const HOUR: i64 = 3_600_000;

struct OnServer {
    _server: Server,
    raw: MultiplexedConnection,
    limiter: Arc<RedisLimiter>,
}

impl OnServer {
    /// A limiter of 10,000 per hour.
    async fn start() -> Self {
        let mut on_server = Self::without_limiter().await;
        on_server
            .run(&[
                "HSET", "l", "rate", "10000", "interval", "3600000", "type", "0",
            ])
            .await;
        on_server
    }

    async fn without_limiter() -> Self {
        let server = Server::start();
        let raw = server.connection().await;
        let response_timeout = Duration::from_millis(2_000);
        let store = RedisStore::over(
            raw.clone(),
            Clock::server(),
            response_timeout,
            Arc::default(),
        );
        Self {
            _server: server,
            raw,
            limiter: Arc::new(RedisLimiter::new(store, Arc::new(Keys::new("l", "client")))),
        }
    }

    async fn run(&mut self, command: &[&str]) -> Value {
        let mut all = redis::Cmd::new();
        all.arg(command).query_async(&mut self.raw).await.unwrap()
    }

    async fn number(&mut self, command: &[&str]) -> i64 {
        from_redis_value(self.run(command).await).unwrap()
    }

    async fn now(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = from_redis_value(self.run(&["TIME"]).await).unwrap();
        seconds * 1000 + micros / 1000
    }

    /// Adds this many grants of one permit, the first at `from`, each `step` ms after the one
    /// before.
    async fn fill(&mut self, from: i64, step: i64, grants: i64) {
        let script = "for i = 0, tonumber(ARGV[3]) - 1 do
            local member = struct.pack('<Bc0I', 16, string.format('%016d', i), 1)
            redis.call('zadd', KEYS[1], string.format('%d', ARGV[1] + i * ARGV[2]), member)
        end";
        let args = [from, step, grants].map(|number| number.to_string());
        self.run(&[
            "EVAL",
            script,
            "1",
            "{l}:permits",
            &args[0],
            &args[1],
            &args[2],
        ])
        .await;
    }

    async fn acquire(&self, call: &AcquireCall) -> Result<Acquired> {
        let deadline = Instant::now() + Duration::from_secs(10);
        self.limiter.acquire_call(call, deadline).await
    }
}

/// A list that was granted in part by an attempt with a score of at least `from`.
async fn granted_in_part(on_server: &mut OnServer, from: i64, score: i64) -> AcquireCall {
    let call = AcquireCall::new(Requests::plain([3, 2].into_iter()));
    let mut add = redis::cmd("ZADD");
    add.arg("{l}:permits")
        .arg(score)
        .arg(&permit::encode(&call.id, 3)[..]);
    add.exec_async(&mut on_server.raw).await.unwrap();
    let deadline = on_server.now().await - 1;
    call.note_attempt(Attempt { deadline, from }).unwrap();
    call
}

#[tokio::test]
async fn the_grant_of_an_attempt_is_found_among_more_than_one_call_reads() {
    for (step, last) in [(1, 2_600), (0, 0)] {
        let mut on_server = OnServer::start().await;
        let from = on_server.now().await - 5_000;
        on_server.fill(from, step, 2_600).await;
        let call = granted_in_part(&mut on_server, from, from + last).await;
        let answer = on_server.acquire(&call).await.unwrap();
        assert!(answer.found, "{step}");
        assert_eq!((answer.available, answer.score), (3, from + last), "{step}");
        assert_eq!(on_server.number(&["ZCARD", "{l}:permits"]).await, 2_601);
    }
}

#[tokio::test]
async fn the_grant_of_an_attempt_is_found_on_a_server_whose_clock_is_behind() {
    let mut on_server = OnServer::start().await;
    on_server.limiter.acquire_permits(9_996).await;
    let call = AcquireCall::new(Requests::plain([3, 2].into_iter()));
    // As after the clock was set back, or where another server has taken over.
    let ahead = on_server.now().await + CLOCK_STEP - 200;
    on_server.limiter.store.server_time.learn(ahead);
    let first = on_server.acquire(&call).await.unwrap();
    assert_eq!(call.requests.taken(&first), 3);
    // What was kept of it has expired.
    let of_call = on_server.limiter.keys.of_call(&call.id);
    assert_eq!(on_server.number(&["DEL", &of_call]).await, 1);
    let again = on_server.acquire(&call).await.unwrap();
    assert!(again.found);
    assert_eq!(again.score, first.score);
    assert_eq!(on_server.number(&["GET", "{l}:value"]).await, 1);
}

#[tokio::test]
async fn if_no_attempt_was_granted_among_many_grants_the_next_one_decides() {
    for step in [0, 1] {
        let mut on_server = OnServer::start().await;
        let from = on_server.now().await - 5_000;
        on_server.fill(from, step, 2_600).await;
        on_server.run(&["SET", "{l}:value", "7400"]).await;
        let call = AcquireCall::new(Requests::one(3));
        call.note_attempt(Attempt {
            deadline: from + 3_000,
            from,
        })
        .unwrap();
        let answer = on_server.acquire(&call).await.unwrap();
        assert!(!answer.found);
        assert_eq!(answer.available, 10_000 - 2_600);
        assert_eq!(on_server.number(&["GET", "{l}:value"]).await, 7_397);
    }
}

#[tokio::test]
async fn an_attempt_does_not_decide_before_the_deadline_of_those_before_it() {
    let mut on_server = OnServer::start().await;
    let call = AcquireCall::new(Requests::one(3));
    let deadline = on_server.now().await + 150;
    let from = deadline - 1_000;
    call.note_attempt(Attempt { deadline, from }).unwrap();
    let answer = on_server.acquire(&call).await.unwrap();
    assert!(!answer.found && answer.score > deadline, "{answer:?}");
}

impl RedisLimiter {
    async fn acquire_permits(&self, permits: i64) {
        if permits > 0 {
            let call = AcquireCall::new(Requests::one(u32::try_from(permits).unwrap()));
            let deadline = Instant::now() + Duration::from_secs(10);
            self.acquire_call(&call, deadline).await.unwrap();
        }
    }
}

#[tokio::test]
async fn permits_of_a_call_are_given_back_once_after_all_attempts_have_passed() {
    let mut on_server = OnServer::start().await;
    let call = AcquireCall::new(Requests::plain([3, 2].into_iter()));
    on_server.acquire(&call).await.unwrap();
    assert_eq!(on_server.number(&["GET", "{l}:value"]).await, 9_995);
    on_server.run(&["ZADD", "{l}:permits", "0", "x"]).await; // a malformed member is ignored
    assert_eq!(on_server.limiter.reclaim_call(&call).await.unwrap(), 5);
    assert!(on_server.now().await > call.attempts_made().unwrap().deadline);
    assert_eq!(on_server.number(&["GET", "{l}:value"]).await, 10_000);
    assert_eq!(on_server.limiter.reclaim_call(&call).await.unwrap(), 0);
    assert_eq!(on_server.number(&["GET", "{l}:value"]).await, 10_000);
}

#[tokio::test]
async fn what_somebody_else_has_claimed_is_not_given_back() {
    let mut on_server = OnServer::start().await;
    let call = AcquireCall::new(Requests::one(3));
    on_server.acquire(&call).await.unwrap();
    assert!(call.claim());
    assert_eq!(on_server.limiter.reclaim_call(&call).await.unwrap(), 0);
    assert_eq!(on_server.number(&["GET", "{l}:value"]).await, 9_997);
}

#[tokio::test]
async fn only_the_undelivered_grant_of_a_call_granted_twice_is_given_back() {
    for (offset, given_back, left) in [(0, 0, 9_997), (-1, 3, 10_000)] {
        let mut on_server = OnServer::start().await;
        let call = AcquireCall::new(Requests::one(3));
        let answer = on_server.acquire(&call).await.unwrap();
        call.note_granted(answer.score + offset);
        let reclaimed = on_server.limiter.reclaim_call(&call).await.unwrap();
        assert_eq!(reclaimed, given_back, "{offset}");
        assert_eq!(on_server.number(&["GET", "{l}:value"]).await, left);
    }
}

#[tokio::test]
async fn nothing_is_given_back_of_a_call_that_was_never_sent() {
    let on_server = OnServer::without_limiter().await;
    let call = AcquireCall::new(Requests::one(3));
    assert_eq!(on_server.limiter.reclaim_call(&call).await.unwrap(), 0);
    // It is not sent any more either: its caller is gone, and nobody would look for what it takes.
    let result = on_server.acquire(&call).await;
    assert!(
        matches!(result, Err(Error::StoreUnavailable { .. })),
        "{result:?}"
    );
    // Nothing is given back if the limiter is gone either.
    let call = AcquireCall::new(Requests::one(3));
    call.note_attempt(Attempt {
        deadline: 1,
        from: 0,
    })
    .unwrap();
    assert_eq!(on_server.limiter.reclaim_call(&call).await.unwrap(), 0);
}

fn set_up(rate: i64, rate_type: RateType) -> Option<SetUp> {
    Some(SetUp {
        settings: Settings {
            rate,
            interval: HOUR,
            rate_type,
            keep_alive: HOUR,
        },
        existing: Existing::ReplacedWithKeepAlive,
    })
}

#[tokio::test]
async fn a_call_creates_its_limiter_sets_its_rate_and_resets_it_for_a_new_type() {
    let mut on_server = OnServer::without_limiter().await;
    on_server.run(&["SET", "{l}:value", "77"]).await; // left by an earlier limiter
    let (overall, per_client) = (RateType::Overall, RateType::PerClient);
    for (rate, rate_type, value, left) in [
        (10, overall, "{l}:value", 7),
        (10, overall, "{l}:value", 4),
        (5, overall, "{l}:value", -1),
        (9, per_client, "{l}:value:client", 6),
        (9, overall, "{l}:value", 6),
    ] {
        let call = AcquireCall::new(Requests::one(3)).with_set_up(set_up(rate, rate_type));
        on_server.acquire(&call).await.unwrap();
        assert_eq!(
            on_server.number(&["GET", value]).await,
            left,
            "{rate} {rate_type:?}"
        );
        assert_eq!(on_server.number(&["HGET", "l", "rate"]).await, rate);
        let keys = on_server.number(&["DBSIZE"]).await;
        assert_eq!(keys, 3, "{rate} {rate_type:?}");
        for key in ["l", value] {
            assert!(on_server.number(&["PTTL", key]).await > 0, "{key}");
        }
    }
}

#[tokio::test]
async fn a_denial_states_that_the_limiter_expires_before_permits_come_back() {
    for (permits, lives) in [(vec![5, 5], None), (vec![5, 6], Some(HOUR))] {
        let on_server = OnServer::without_limiter().await;
        let call = AcquireCall::new(Requests::plain(permits.into_iter()));
        let call = call.with_set_up(set_up(10, RateType::Overall));
        assert_eq!(on_server.acquire(&call).await.unwrap().lives, lives);
    }
}

#[tokio::test]
async fn the_next_attempt_need_not_wait_after_a_shared_call_refused_an_acquire() {
    let on_server = OnServer::without_limiter().await;
    let limiter = &on_server.limiter;
    let call = Acquire::first(Requests::one(1));
    let deadline = Instant::now() + Duration::from_secs(10);
    let calls = &limiter.store.multi_acquires;
    let part = AcquirePart::new(&limiter.keys, RateType::Overall, &call);
    let asked = calls.send(part, deadline, 1 << 52);
    assert!(matches!(asked.await, Some(SharedReply::Refused)));
}
