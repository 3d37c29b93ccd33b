//! A thousand waiters of one process, alone on 100 permits a second: how often they have the server asked.

use std::time::{Duration, Instant};

use redisson_rate_limiter::{RRateLimiter, Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;

use super::{NAME, script_calls};
use crate::Server;

pub const WAITERS: usize = 1000;
const RATE: u32 = 100;
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
    if spacing == Spacing::Spread {
        take_one_by_one(&limiter).await;
    }

    let mut redis = server.connection().await;
    let calls_before = script_calls(&mut redis).await;
    let start = Instant::now();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let limiter = limiter.clone();
        waiters.spawn(async move { limiter.acquire(1).await.expect("a permit") });
    }
    waiters.join_all().await;
    Waited {
        elapsed: start.elapsed(),
        script_calls: script_calls(&mut redis).await - calls_before,
    }
}

/// Takes all permits, so that they come back one by one.
async fn take_one_by_one(limiter: &RateLimiter) {
    let mut ticks = tokio::time::interval(INTERVAL / RATE);
    for _ in 0..RATE {
        ticks.tick().await;
        limiter.try_acquire(1).await.expect("a decision");
    }
}
