//! The test's own server, clients whose clock the test moves, and direct access to the keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{
    Clock, Decision, Denied, Error, Limiter, Policy, PolicyLimiter, Rate, RateLimiter,
    RedissonClient, RedissonClientBuilder,
};

use crate::keys::{self, Everything};
use crate::proxy::Command;
use crate::support::Server;

/// Where a limiter of this name has its state.
pub const NAME: &str = "limiter";
pub const VALUE: &str = "{limiter}:value";
pub const PERMITS: &str = "{limiter}:permits";
pub const AUDIT: &str = "{limiter}:audit";

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3600);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub struct Fixture {
    pub server: Server,
    /// Reads the keys, and corrupts them.
    pub raw: MultiplexedConnection,
    now: Arc<AtomicI64>,
}

impl Fixture {
    /// The clock shows 1000 ms.
    pub async fn start() -> Self {
        Self::with_arguments(&[]).await
    }

    /// With more arguments for the server.
    pub async fn with_arguments(arguments: &[&str]) -> Self {
        let server = Server::start_with(arguments);
        let raw = server.connection().await;
        Self {
            server,
            raw,
            now: Arc::new(AtomicI64::new(1_000)),
        }
    }

    /// Sets the clock.
    pub fn at(&self, millis: i64) {
        self.now.store(millis, Ordering::SeqCst);
    }

    /// Settings with the client id `client` and the clock.
    pub fn builder(&self) -> RedissonClientBuilder {
        let now = Arc::clone(&self.now);
        let clock = Clock::from_fn(move || now.load(Ordering::SeqCst));
        RedissonClient::builder()
            .client_id("client")
            .clock(clock)
            // An answer may be late on a busy machine.
            .response_timeout(Duration::from_secs(60))
    }

    /// A client with these settings.
    pub async fn client(&self) -> RedissonClient {
        self.builder().connect(&self.server.url()).await.unwrap()
    }

    /// The limiter, of a new client that knows nothing of earlier calls.
    pub async fn limiter(&self) -> RateLimiter {
        self.client().await.rate_limiter(NAME)
    }

    /// The limiter with this rate, of a new client.
    pub async fn with(&self, rate: Rate) -> RateLimiter {
        let limiter = self.limiter().await;
        assert!(limiter.try_set_rate(rate).await.unwrap());
        limiter
    }

    /// A limiter with a policy, of a client of its own.
    pub async fn by<P: Policy>(&self, policy: P) -> PolicyLimiter<P> {
        let client = self.client().await;
        client.policy_limiter(policy).unwrap()
    }

    /// What the key holds, a string.
    pub async fn text(&mut self, key: &str) -> Option<String> {
        redis::cmd("GET")
            .arg(key)
            .query_async(&mut self.raw)
            .await
            .unwrap()
    }

    /// Until when the key lives by the server's clock; -1 for ever.
    pub async fn expires(&mut self, key: &str) -> i64 {
        redis::cmd("PEXPIRETIME")
            .arg(key)
            .query_async(&mut self.raw)
            .await
            .unwrap()
    }

    /// Asserts that the limiter reports the state of the target NAME as bad, and changes nothing.
    pub async fn assert_is_bad_for(&mut self, limiter: &impl Limiter, what: &str) {
        let before = self.everything().await;
        let error = limiter.check(NAME, 1).await;
        assert!(
            matches!(&error, Err(Error::BadState { name, .. }) if name == NAME),
            "{what}: {error:?}"
        );
        assert_eq!(self.everything().await, before, "{what}");
    }

    /// What VALUE holds.
    pub async fn value(&mut self) -> Option<String> {
        redis::cmd("GET")
            .arg(VALUE)
            .query_async(&mut self.raw)
            .await
            .unwrap()
    }

    /// Scores and permits of what PERMITS holds.
    pub async fn grants(&mut self) -> Vec<(i64, u32)> {
        keys::grants(&mut self.raw, PERMITS).await
    }

    pub async fn everything(&mut self) -> Everything {
        keys::everything(&mut self.raw).await
    }

    /// Runs a command as an operator or a peer would.
    pub async fn run(&mut self, command: &[&str]) {
        self.run_bytes(
            &command
                .iter()
                .map(|part| part.as_bytes())
                .collect::<Vec<_>>(),
        )
        .await;
    }

    /// Runs a command as an operator or a peer would, and returns the answer.
    pub async fn ask<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        let mut all = redis::Cmd::new();
        all.arg(command).query_async(&mut self.raw).await.unwrap()
    }

    pub async fn run_bytes(&mut self, command: &[&[u8]]) {
        let mut all = redis::Cmd::new();
        for part in command {
            all.arg(*part);
        }
        let _: redis::Value = all.query_async(&mut self.raw).await.unwrap();
    }

    /// Sends the server a command once more, as if a network delivered it late.
    pub async fn deliver(&mut self, command: &Command) {
        let parts: Vec<&[u8]> = command.0.iter().map(Vec::as_slice).collect();
        self.run_bytes(&parts).await;
    }

    /// Makes this many grants of one permit each at the server's time, and leaves `left` permits.
    pub async fn fill(&mut self, value: &str, permits: &str, grants: u32, left: u32) {
        let script = "for i = 1, tonumber(ARGV[2]) do
            redis.call('zadd', KEYS[2], ARGV[1], struct.pack('<Bc0I', 16, string.format('%016d', i), 1))
        end
        redis.call('set', KEYS[1], ARGV[3])";
        let now = keys::time(&mut self.raw).await;
        let args = [now.to_string(), grants.to_string(), left.to_string()];
        let [now, grants, left] = &args;
        self.run(&["EVAL", script, "2", value, permits, now, grants, left])
            .await;
    }

    /// Keeps clients from auditing a limiter with many grants: their first call for it fails.
    pub async fn prevent_audits(&mut self) {
        self.run(&["SET", AUDIT, "no list"]).await;
    }

    /// Waits until a client has tried to audit the limiter.
    pub async fn audit_prevented(&mut self) {
        while keys::calls(&mut self.raw, "lindex").await == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Adds a member to PERMITS.
    pub async fn add(&mut self, score: i64, member: &[u8]) {
        self.run_bytes(&[
            b"ZADD",
            PERMITS.as_bytes(),
            score.to_string().as_bytes(),
            member,
        ])
        .await;
    }
}

/// Asks a limiter with a policy for the target NAME, and returns whether it granted.
pub async fn passed(limiter: &impl Limiter, cost: u32) -> bool {
    limiter.check(NAME, cost).await.unwrap().is_granted()
}

/// Makes a request for the target NAME that has to be denied, and returns what remains and the
/// retry time in ms.
pub async fn denied(limiter: &impl Limiter, cost: u32) -> (u64, u128) {
    match limiter.check(NAME, cost).await.unwrap() {
        Decision::Denied(Denied {
            remaining,
            retry_after,
            ..
        }) => (remaining, retry_after.as_millis()),
        granted @ Decision::Granted(_) => panic!("{granted:?}"),
    }
}
