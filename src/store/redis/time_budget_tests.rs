//! The time of a call, over a server with a round trip of any length, with tokio's time paused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{Arg, Cmd, RedisError, RedisResult, make_extension_error};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{MOST_SETTLED, RedisStore};
use super::limiter::RedisLimiter;
use crate::FixedWindow;
use crate::box_future::BoxFuture;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::keys::Keys;
use crate::link::SendsCommands;
use crate::link::limits::Repeat;
use crate::link::server_time::ServerTime;
use crate::link::{Connection, failure};
use crate::rate::{Rate, RateType};
use crate::store::{AcquireCall, LimiterChange, LimiterStore};
use crate::window::{Requests, Settings, Settlement};
use redis::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const NAME: &str = "limiter";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server that needs half of its round trip to receive a command, and as long to answer.
#[derive(Clone)]
pub(super) struct Distant(Arc<Server>);

struct Server {
    started: Instant,
    round_trip: AtomicU64,
    /// What each command but TIME is answered with; without one, acquires are decided.
    refusal: Option<RedisError>,
    /// How many of the next commands are lost with their connection.
    losses: AtomicU64,
    scripts: AtomicU64,
    /// Whether it knows the script; it learns it from its text.
    knows_script: AtomicBool,
    /// How many texts of scripts it got.
    texts: AtomicU64,
    /// Members and scores of grants.
    grants: Mutex<Vec<(Vec<u8>, i64)>>,
}

impl Distant {
    pub(super) fn new(round_trip: u64, refusal: Option<RedisError>) -> Self {
        Self(Arc::new(Server {
            started: Instant::now(),
            round_trip: AtomicU64::new(round_trip),
            refusal,
            losses: AtomicU64::new(0),
            scripts: AtomicU64::new(0),
            knows_script: AtomicBool::new(true),
            texts: AtomicU64::new(0),
            grants: Mutex::default(),
        }))
    }

    fn limiter(&self, response_timeout: u64) -> Arc<RedisLimiter> {
        let connection = Connection::over(self.clone(), ms(response_timeout), Arc::default());
        let server_time = Arc::new(ServerTime::unknown());
        let timeout = ms(response_timeout);
        let store = RedisStore::new(connection, server_time, Clock::server(), timeout);
        Arc::new(RedisLimiter::new(
            store,
            Arc::new(Keys::new(NAME, "client")),
        ))
    }

    fn set_round_trip(&self, millis: u64) {
        self.0.round_trip.store(millis, Ordering::Relaxed);
    }

    fn forget_script(&self) {
        self.0.knows_script.store(false, Ordering::Relaxed);
    }

    fn take_scripts(&self) -> u64 {
        self.0.scripts.swap(0, Ordering::Relaxed)
    }
}

impl Server {
    fn now(&self) -> i64 {
        1_700_000_000_000 + self.started.elapsed().as_millis() as i64
    }

    fn execute(&self, command: &Cmd) -> RedisResult<Value> {
        let words: Vec<&[u8]> = command
            .args_iter()
            .map(|arg| match arg {
                Arg::Simple(word) => word,
                _ => b"",
            })
            .collect();
        if words[0] == b"TIME" {
            let part = |number: i64| Value::BulkString(number.to_string().into_bytes());
            let now = self.now();
            return Ok(Value::Array(vec![
                part(now / 1000),
                part(now % 1000 * 1000),
            ]));
        }
        if words[0] == b"EVAL" {
            self.texts.fetch_add(1, Ordering::Relaxed);
            self.knows_script.store(true, Ordering::Relaxed);
        } else if !self.knows_script.load(Ordering::Relaxed) {
            return redis::parse_redis_value(b"-NOSCRIPT No matching script.\r\n");
        }
        self.scripts.fetch_add(1, Ordering::Relaxed);
        match &self.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(self.acquire(&words)),
        }
    }

    /// Decides as `lua/acquire.lua` does, on a limiter that has permits for all.
    fn acquire(&self, words: &[&[u8]]) -> Value {
        let number = |word: &[u8]| -> i64 { std::str::from_utf8(word).unwrap().parse().unwrap() };
        let args = &words[3 + number(words[2]) as usize..];
        let (deadline, member, now) = (number(args[0]), args[1], self.now());
        let reply = |numbers: &[i64], end: &str| {
            let doubles = numbers.iter().flat_map(|&it| (it as f64).to_le_bytes());
            Value::BulkString(doubles.chain(end.bytes()).collect())
        };
        if now > deadline {
            return reply(&[now], "");
        }
        let mut grants = self.grants.lock().unwrap();
        let retry = args.iter().position(|&word| word == b"retry");
        let found = grants.iter().find(|(granted, _)| granted == member);
        if let (Some(retry), None) = (retry, found) {
            let wait = number(args[retry + 1]) - now + 1;
            if wait > 0 {
                return reply(&[now, wait], "early");
            }
        }
        if let Some((_, score)) = found {
            return reply(
                &[now, 1, 1_000, 1_000, 1_000, 10, 0, 0, 1, *score, -1, -1, 9],
                "",
            );
        }
        grants.push((member.to_vec(), now));
        reply(&[now, 10, 1_000, 1_000, 1_000, 10, 0, 0], "")
    }
}

impl SendsCommands for Distant {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let half = ms(self.0.round_trip.load(Ordering::Relaxed)) / 2;
        Box::pin(async move {
            sleep(half).await;
            let one_less = |losses: u64| losses.checked_sub(1);
            let losses = &self.0.losses;
            if losses
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                .is_ok()
            {
                return Err(failure::closed());
            }
            let answer = self.0.execute(command);
            sleep(half).await;
            answer
        })
    }
}

/// Acquires one permit as a call of its own.
async fn acquire(limiter: &RedisLimiter) -> Result<bool> {
    let call = AcquireCall::new(Requests::one(1));
    let deadline = limiter.store.deadline();
    let answer = limiter.acquire_call(&call, deadline).await?;
    Ok(call.requests.taken(&answer) == 1)
}

async fn learn_the_time(limiter: &RedisLimiter) {
    let store = &limiter.store;
    let attempts = store.attempts(NAME, store.deadline(), Repeat::Safe);
    store.server_now(&attempts).await.unwrap();
}

/// What each kind of call ends with, and how long it takes.
async fn outcomes(limiter: &Arc<RedisLimiter>) -> Vec<(&'static str, Error, Duration)> {
    let grant = Grant::new(0, [0; 16], 1);
    let rate = Settings::of(Rate::overall(5, ms(1_000)));
    let mut outcomes = Vec::new();
    macro_rules! note {
        ($($name:literal: $call:expr,)*) => {$(
            let start = Instant::now();
            let error = $call.await.map(drop).unwrap_err();
            outcomes.push(($name, error, start.elapsed()));
        )*};
    }
    let store = Arc::new(limiter.store.clone());
    let policy = crate::RedissonClient::builder().build((*store).clone());
    let policy = policy
        .policy_limiter(FixedWindow::new(1, ms(1_000)))
        .unwrap();
    note! {
        "acquire": acquire(limiter),
        "check": policy.check("key", 1),
        "release": limiter.release(1),
        "refund": limiter.refund(&grant),
        "set_rate": limiter.change(LimiterChange::SetRate(rate)),
        "available_permits": limiter.available_permits(),
        "config": limiter.config(),
    }
    outcomes
}

fn refusals() -> Vec<RedisError> {
    let of = |code: &str| make_extension_error(code.to_owned(), Some("for now".to_owned()));
    let codes = ["BUSY", "READONLY", "NOREPLICAS", "UNBLOCKED"];
    codes.into_iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_only_ever_refused_ends_with_the_cause() {
    for refusal in refusals() {
        for round_trip in [0, 1, 5, 20, 60, 100, 140] {
            let server = Distant::new(round_trip, Some(refusal.clone()));
            let limiter = server.limiter(300);
            for (call, error, took) in outcomes(&limiter).await {
                let case = format!("{call}, {round_trip} ms: {error:?}");
                let Error::StoreUnavailable { cause, .. } = &error else {
                    panic!("{case}");
                };
                assert!(cause.to_string().contains("for now"), "{case}");
                assert!(took <= ms(300), "{case}: {took:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_refused_is_made_again_for_as_long_as_an_answer_can_come() {
    let refusal = refusals().remove(0);
    let server = Distant::new(5, Some(refusal));
    let limiter = server.limiter(300);
    learn_the_time(&limiter).await;
    acquire(&limiter).await.unwrap_err();
    server.take_scripts();
    let start = Instant::now();
    acquire(&limiter).await.unwrap_err();
    // At 0, 15, 40, 85, 170 ms and, last, when there is just enough time.
    assert_eq!(server.take_scripts(), 6);
    assert!(start.elapsed() >= ms(280), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_acquire_succeeds_where_one_round_trip_fits_in_its_time() {
    for round_trip in [
        1, 100, 240, 260, 330, 350, 490, 510, 600, 740, 760, 900, 990,
    ] {
        let server = Distant::new(round_trip, None);
        let limiter = server.limiter(1_000);
        learn_the_time(&limiter).await;
        for call in 0..6 {
            let start = Instant::now();
            let granted = acquire(&limiter).await;
            assert!(granted.unwrap(), "{round_trip} ms, call {call}");
            assert!(start.elapsed() <= ms(1_000));
        }
        assert_eq!(server.take_scripts(), 6, "{round_trip} ms");
    }
}

/// Acquires of a client whose first one the server does not know the script of.
async fn first_acquires(limiter: &Arc<RedisLimiter>, count: u32) {
    let acquires: JoinSet<_> = (0..count)
        .map(|_| {
            let limiter = Arc::clone(limiter);
            async move { acquire(&limiter).await }
        })
        .collect();
    for granted in acquires.join_all().await {
        assert!(granted.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_script_costs_no_acquire_however_long_the_round_trip_is() {
    for round_trip in [1, 100, 240, 330, 490, 510, 600, 760, 900, 990] {
        for count in [1, 10] {
            let server = Distant::new(round_trip, None);
            let limiter = server.limiter(1_000);
            learn_the_time(&limiter).await;
            server.forget_script();
            let start = Instant::now();
            first_acquires(&limiter, count).await;
            assert!(start.elapsed() <= ms(1_000), "{round_trip} ms");
            assert_eq!(server.0.texts.load(Ordering::Relaxed), 1);
            // From now on the server knows it.
            assert!(acquire(&limiter).await.unwrap());
            assert_eq!(server.0.texts.load(Ordering::Relaxed), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_that_is_forgotten_costs_one_distant_call_and_no_breaker() {
    for round_trip in [1, 100, 300, 510, 600, 900] {
        let server = Distant::new(round_trip, None);
        let limiter = server.limiter(1_000);
        learn_the_time(&limiter).await;
        for forgotten in 0..4 {
            for call in 0..5 {
                let deadline = limiter.store.deadline();
                let granted = limiter.store.noted(NAME, acquire(&limiter).await, deadline);
                if call > 0 || forgotten == 0 || 2 * round_trip < 1_000 {
                    let case = format!("{round_trip} ms, call {call} of {forgotten}");
                    assert!(granted.unwrap_or_else(|error| panic!("{case}: {error:?}")));
                    continue;
                }
                let Err(Error::StoreUnavailable { cause, .. }) = granted else {
                    panic!("{round_trip} ms: {granted:?}");
                };
                assert!(cause.to_string().contains("NoScript"), "{cause}");
                assert!(limiter.store.connection.is_healthy());
            }
            server.forget_script();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_succeeds_if_the_round_trip_grew_to_two_thirds_of_its_time() {
    for round_trip in [100, 240, 260, 330, 350, 490, 510, 600, 660] {
        let server = Distant::new(1, None);
        let limiter = server.limiter(1_000);
        for call in 0..40 {
            if call == 10 {
                server.set_round_trip(round_trip);
            }
            let granted = acquire(&limiter).await;
            assert!(granted.unwrap(), "{round_trip} ms, call {call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acquires_succeed_after_one_fails_as_the_round_trip_nears_their_time() {
    for round_trip in [760, 800, 900, 960] {
        let server = Distant::new(1, None);
        let limiter = server.limiter(1_000);
        assert!(acquire(&limiter).await.unwrap());
        server.set_round_trip(round_trip);
        acquire(&limiter).await.unwrap_err();
        for call in 0..40 {
            let granted = acquire(&limiter).await;
            assert!(granted.unwrap(), "{round_trip} ms, call {call}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_lost_with_its_connection_is_decided_in_a_third_of_its_time() {
    for (response_timeout, round_trip) in [(300, 1), (300, 20), (1_000, 1), (1_000, 40), (3_000, 5)]
    {
        let server = Distant::new(round_trip, None);
        let limiter = server.limiter(response_timeout);
        for _ in 0..20 {
            assert!(acquire(&limiter).await.unwrap());
        }
        server.0.losses.store(1, Ordering::Relaxed);
        let start = Instant::now();
        assert!(acquire(&limiter).await.unwrap());
        let bound = ms(response_timeout / 3 + 2 * round_trip);
        assert!(start.elapsed() <= bound, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_in_the_time_that_is_left_is_not_sent() {
    let server = Distant::new(600, None);
    let limiter = server.limiter(1_000);
    // It takes 600 ms to learn the time.
    let error = acquire(&limiter).await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
    assert_eq!(server.take_scripts(), 0);
    assert!(acquire(&limiter).await.unwrap());
    assert_eq!(limiter.rate_type(), RateType::Overall);
}

#[tokio::test(start_paused = true)]
async fn after_attempts_that_took_too_long_one_that_is_lost_is_still_made_again() {
    for too_long in 0..2 {
        let server = Distant::new(1, None);
        let limiter = server.limiter(3_000);
        assert!(acquire(&limiter).await.unwrap());
        limiter.late_attempts.store(too_long, Ordering::Relaxed);
        server.0.losses.store(1, Ordering::Relaxed);
        assert!(acquire(&limiter).await.unwrap(), "{too_long}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_leases_that_end_together_each_has_its_time_once_it_is_its_turn() {
    let refusal = make_extension_error("BADSTATE".to_owned(), None);
    let server = Distant::new(600, Some(refusal));
    let limiter = server.limiter(1_000);
    let settlement = Settlement { used: 1, early: 0 };
    let settle = || {
        let limiter = Arc::clone(&limiter);
        async move {
            let lease = Grant::new(0, [0; 16], 1);
            limiter.settle(&lease, settlement).await
        }
    };
    let settling: JoinSet<_> = (0..=MOST_SETTLED).map(|_| settle()).collect();
    sleep(ms(599)).await;
    assert_eq!(server.take_scripts(), MOST_SETTLED as u64);
    for answer in settling.join_all().await {
        assert!(matches!(answer, Err(Error::BadState { .. })), "{answer:?}");
    }
    assert_eq!(server.take_scripts(), 1);
}
