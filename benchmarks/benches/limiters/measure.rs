//! What one limiter takes of the server's time, of the caller's and of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use benchmarks::median;
use benchmarks::scripts::{ScriptsRun, reset};
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Clock, Limiter, RedissonClient};
use tokio::task::JoinSet;

use crate::subject::{MINUTE, Rule, SCARCE, Subject};
use compat_tests::Server;

pub struct Measured {
    /// Of the server, for a decision.
    pub granted_micros: f64,
    pub denied_micros: f64,
    /// Decisions a second on one key.
    pub alone: f64,
    pub combined: f64,
    pub apart: f64,
    pub in_memory_nanos: f64,
    /// Of all keys of a target.
    pub bytes_after_one: u64,
    pub bytes_after_many: u64,
}

pub const CALLERS: usize = 256;
/// Targets whose requests are counted, so many granted and so many denied each.
pub const TARGETS: usize = 10;
pub const ROUNDS: usize = 3;
pub const ROUND: Duration = Duration::from_millis(250);
/// A busy machine may keep the server waiting.
const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "user:123";

pub async fn measure(server: &Server, subject: Subject) -> Measured {
    let mut redis = server.connection().await;
    forget_all(&mut redis).await;
    let client = connect(&redis);
    let (granted_micros, denied_micros) = server_micros(&mut redis, &client, subject).await;

    let limiter = subject.limiter(&client, Rule::Plenty, KEY).await;
    let alone = decisions_a_second(vec![limiter.clone()]).await;
    let combined = decisions_a_second(vec![limiter; CALLERS]).await;
    let mut limiters = Vec::new();
    for _ in 0..CALLERS {
        let client = connect(&redis);
        limiters.push(subject.limiter(&client, Rule::Plenty, KEY).await);
    }
    let apart = decisions_a_second(limiters).await;

    let in_memory = RedissonClient::in_memory();
    let limiter = subject.limiter(&in_memory, Rule::Plenty, KEY).await;
    let in_memory_nanos = 1e9 / decisions_a_second(vec![limiter]).await;

    let (bytes_after_one, bytes_after_many) = bytes(&mut redis, subject).await;
    Measured {
        granted_micros,
        denied_micros,
        alone,
        combined,
        apart,
        in_memory_nanos,
        bytes_after_one,
        bytes_after_many,
    }
}

/// A client of its own, so that nothing is combined with other clients' requests.
fn connect(redis: &MultiplexedConnection) -> RedissonClient {
    RedissonClient::builder()
        .response_timeout(PATIENCE)
        .connection(redis.clone())
        .unwrap()
}

/// The scripts' time for a granted and for a denied request of a single caller.
async fn server_micros(
    redis: &mut MultiplexedConnection,
    client: &RedissonClient,
    subject: Subject,
) -> (f64, f64) {
    let (mut granted, mut denied) = (ScriptsRun::default(), ScriptsRun::default());
    for target in 0..=TARGETS {
        let key = format!("user:{target}");
        let limiter = subject.limiter(client, Rule::Scarce, &key).await;
        let filling = scripts_of(redis, &*limiter, &key, true).await;
        let full = scripts_of(redis, &*limiter, &key, false).await;
        if target > 0 {
            // The first one loaded the scripts.
            granted += filling;
            denied += full;
        }
    }
    (granted.micros_a_call(), denied.micros_a_call())
}

/// The scripts that as many requests run as fill a target.
async fn scripts_of(
    redis: &mut MultiplexedConnection,
    limiter: &dyn Limiter,
    key: &str,
    is_granted: bool,
) -> ScriptsRun {
    reset(redis).await;
    for _ in 0..SCARCE {
        let decision = limiter
            .check_without_waiting(key, 1)
            .await
            .expect("a decision");
        assert_eq!(decision.is_granted(), is_granted, "{limiter:?}");
    }
    ScriptsRun::read(redis).await
}

/// How many decisions a second callers get that ask again as soon as they have an answer, one for
/// each limiter given.
async fn decisions_a_second(callers: Vec<Arc<dyn Limiter>>) -> f64 {
    let mut rounds = Vec::new();
    round(&callers, ROUND / 3).await;
    for _ in 0..ROUNDS {
        rounds.push(round(&callers, ROUND).await);
    }
    median(rounds)
}

pub async fn round(callers: &[Arc<dyn Limiter>], length: Duration) -> f64 {
    let start = Instant::now();
    let mut asking = JoinSet::new();
    for limiter in callers {
        let limiter = Arc::clone(limiter);
        asking.spawn(async move {
            let mut decisions = 0_u64;
            while start.elapsed() < length {
                let decision = limiter
                    .check_without_waiting(KEY, 1)
                    .await
                    .expect("a decision");
                assert!(decision.is_granted(), "{limiter:?}");
                decisions += 1;
            }
            decisions
        });
    }
    let decisions: u64 = asking.join_all().await.into_iter().sum();
    decisions as f64 / start.elapsed().as_secs_f64()
}

/// What a target's keys take after one request, and after as many, spread over the minute, as fill
/// it.
async fn bytes(redis: &mut MultiplexedConnection, subject: Subject) -> (u64, u64) {
    forget_all(redis).await;
    let now = Arc::new(AtomicI64::new(1_700_000_000_000));
    let clock = Clock::from_fn({
        let now = Arc::clone(&now);
        move || now.load(Ordering::Relaxed)
    });
    let client = RedissonClient::builder()
        .clock(clock)
        .connection(redis.clone())
        .unwrap();
    let limiter = subject.limiter(&client, Rule::Scarce, KEY).await;
    let mut after_one = 0;
    for place in 0..SCARCE {
        let decision = limiter
            .check_without_waiting(KEY, 1)
            .await
            .expect("a decision");
        assert!(decision.is_granted(), "{limiter:?}");
        if place == 0 {
            after_one = memory_usage(redis).await;
        }
        let step = (MINUTE / SCARCE).as_millis() as i64;
        now.fetch_add(step, Ordering::Relaxed);
    }
    (after_one, memory_usage(redis).await)
}

async fn forget_all(redis: &mut MultiplexedConnection) {
    let () = redis::cmd("FLUSHALL")
        .query_async(redis)
        .await
        .expect("an empty server");
}

async fn memory_usage(redis: &mut MultiplexedConnection) -> u64 {
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS")
        .arg("*")
        .query_async(redis)
        .await
        .expect("the keys");
    let mut bytes = 0;
    for key in keys {
        let of_key: u64 = redis::cmd("MEMORY")
            .arg("USAGE")
            .arg(key)
            .arg("SAMPLES")
            .arg(0)
            .query_async(redis)
            .await
            .expect("what a key takes");
        bytes += of_key;
    }
    bytes
}
