//! A thousand waiters of one process, alone on 100 permits per interval: how many calls they make.

use std::time::{Duration, Instant};

use redis::aio::ConnectionLike;
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;

use super::{NAME, script_calls};
use crate::Server;

pub const WAITERS: usize = 1000;
pub const RATE: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(1);

/// How the permits come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// All at once.
    Bunched,
    /// One by one.
    Spread,
}

impl Spacing {
    pub const ALL: [Self; 2] = [Self::Bunched, Self::Spread];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bunched => "waiters-bunched",
            Self::Spread => "waiters-spread",
        }
    }

    /// How many calls the waiters may cost.
    pub fn most_calls(self) -> u64 {
        match self {
            Self::Bunched => 40,
            Self::Spread => 1_100,
        }
    }

    /// Has the permits of a fresh limiter come back so: one by one, where all were taken one by
    /// one.
    pub async fn prepare(self, limiter: &RateLimiter, interval: Duration) {
        if self == Self::Bunched {
            return;
        }
        let mut ticks = tokio::time::interval(interval / RATE);
        for _ in 0..RATE {
            ticks.tick().await;
            limiter.try_acquire(1).await.expect("a decision");
        }
    }
}

/// What it took until each waiter had its permit.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    pub script_calls: u64,
    pub elapsed: Duration,
}

/// Lets the waiters wait on a server of their own.
pub async fn measure(spacing: Spacing) -> Waited {
    let server = Server::start();
    let client = RedissonClient::connect(&server.url())
        .await
        .expect("the server");
    let limiter = client.rate_limiter(NAME);
    let rate = Rate::overall(RATE.into(), INTERVAL);
    limiter.set_rate(rate).await.expect("the server");
    spacing.prepare(&limiter, INTERVAL).await;
    let mut redis = server.connection().await;
    waited(&mut redis, wait(&limiter)).await
}

/// Lets each waiter have a permit.
pub async fn wait(limiter: &RateLimiter) {
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let limiter = limiter.clone();
        waiters.spawn(async move { limiter.acquire(1).await.expect("a permit") });
    }
    waiters.join_all().await;
}

/// What the waiting took, of which `redis` tells the script calls.
pub async fn waited(redis: &mut impl ConnectionLike, waiting: impl Future) -> Waited {
    let calls_before = script_calls(redis).await;
    let start = Instant::now();
    waiting.await;
    Waited {
        elapsed: start.elapsed(),
        script_calls: script_calls(redis).await - calls_before,
    }
}
