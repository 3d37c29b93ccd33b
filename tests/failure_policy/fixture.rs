//! Clients, limiters, and a server that goes down.

use std::time::Duration;

use redisson_rate_limiter::{
    Decision, FailurePolicy, LimiterOptions, LocalShare, Rate, RateLimiter, RedissonClient,
    RedissonClientBuilder,
};
use tokio::time::{sleep, timeout};

use crate::support::Server;

pub const HOUR: Duration = Duration::from_secs(3600);

/// The longest time that a test waits for an event before it fails.
pub const AT_LAST: Duration = Duration::from_secs(120);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn one_of(clients: u32) -> FailurePolicy {
    FailurePolicy::Local(LocalShare::one_of(clients.try_into().unwrap()))
}

/// The policies that decide in place of Redis.
pub fn policies() -> [FailurePolicy; 3] {
    [FailurePolicy::Deny, FailurePolicy::Allow, one_of(2)]
}

pub async fn client(url: &str, policy: FailurePolicy) -> RedissonClient {
    connect(
        url,
        RedissonClient::builder().default_options(LimiterOptions::new().failure_policy(policy)),
    )
    .await
}

/// A client with these settings, connected however late the server answers.
pub async fn connect(url: &str, builder: RedissonClientBuilder) -> RedissonClient {
    let far_more = Duration::from_secs(60);
    builder
        .wait_for_server(far_more)
        .connect(url)
        .await
        .unwrap()
}

/// A limiter of this many permits an hour, of which one is taken.
pub async fn limiter(client: &RedissonClient, permits: u64) -> RateLimiter {
    let limiter = client.rate_limiter("limiter");
    let rate = Rate::overall(permits, HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    let decision = limiter.check(1).await.unwrap();
    assert!(decision.is_granted() && !decision.is_by_failure_policy());
    limiter
}

/// Asks until the failure policy decides: then the breaker is open.
pub async fn until_by_policy(limiter: &RateLimiter) -> Decision {
    until(limiter, true).await
}

/// Asks until Redis decides.
pub async fn until_by_redis(limiter: &RateLimiter) -> Decision {
    until(limiter, false).await
}

async fn until(limiter: &RateLimiter, is_by_policy: bool) -> Decision {
    let decided = async {
        loop {
            let decision = limiter.check(1).await.unwrap();
            if decision.is_by_failure_policy() == is_by_policy {
                return decision;
            }
            sleep(ms(5)).await;
        }
    };
    let decided = timeout(AT_LAST, decided).await;
    decided.unwrap_or_else(|_| panic!("by the failure policy: never {is_by_policy}"))
}

/// Kills a server, and returns its port.
pub fn kill(server: Server) -> u16 {
    let port = server.port();
    server.signal("KILL"); // at once, so that nothing more is answered
    drop(server);
    port
}

pub fn restart(port: u16) -> Server {
    Server::start_at(port, &[])
}
