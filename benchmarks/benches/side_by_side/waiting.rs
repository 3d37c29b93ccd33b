//! A thousand waiters on 100 permits a window: how often the server is asked until each has its permit.

use std::time::{Duration, Instant};

use redisson_rate_limiter::RRateLimiter;
use tokio::task::JoinSet;

use crate::{
    plan::Plan,
    setup::{NAME, Setup},
};

pub const WAITERS: usize = 1000;
pub const RATE: u64 = 100;

/// How the permits come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// All at once.
    Bunched,
    /// One by one.
    Spread,
}

pub struct Waiting {
    pub spacing: Spacing,
    pub this_crate: Waited,
    pub redisson: Waited,
}

pub struct Waited {
    pub script_calls: u64,
    pub elapsed: Duration,
}

pub async fn measure(setup: &mut Setup, plan: &Plan) -> Vec<Waiting> {
    let mut all = Vec::new();
    for spacing in [Spacing::Bunched, Spacing::Spread] {
        all.push(Waiting {
            spacing,
            this_crate: of_this_crate(setup, spacing, plan).await,
            redisson: of_redisson(setup, spacing, plan).await,
        });
    }
    all
}

async fn of_this_crate(setup: &mut Setup, spacing: Spacing, plan: &Plan) -> Waited {
    prepare(setup, spacing, plan).await;
    let start = Instant::now();
    let limiter = setup.rust.rate_limiter(NAME);
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let limiter = limiter.clone();
        waiters.spawn(async move { limiter.acquire(1).await });
    }
    for granted in waiters.join_all().await {
        granted.expect("a permit");
    }
    Waited {
        elapsed: start.elapsed(),
        script_calls: script_calls(setup).await,
    }
}

async fn of_redisson(setup: &mut Setup, spacing: Spacing, plan: &Plan) -> Waited {
    prepare(setup, spacing, plan).await;
    Waited {
        elapsed: setup.java.wait(NAME, WAITERS),
        script_calls: script_calls(setup).await,
    }
}

/// Where they are to come back one by one, all permits of a window are taken one by one first.
async fn prepare(setup: &mut Setup, spacing: Spacing, plan: &Plan) {
    setup
        .fresh(&[NAME.to_owned()], RATE, plan.waiting_window)
        .await;
    if spacing == Spacing::Spread {
        let limiter = setup.rust.rate_limiter(NAME);
        let mut ticks = tokio::time::interval(plan.waiting_window / RATE as u32);
        for _ in 0..RATE {
            ticks.tick().await;
            limiter.try_acquire(1).await.expect("a decision");
        }
    }
    let () = redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query_async(&mut setup.redis)
        .await
        .expect("counters at 0");
}

async fn script_calls(setup: &mut Setup) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut setup.redis)
        .await
        .expect("the counters");
    let calls = stats.lines().filter_map(|line| {
        // cmdstat_evalsha:calls=21,usec=…
        let counters = line
            .strip_prefix("cmdstat_evalsha:calls=")
            .or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        counters.split(',').next()?.parse::<u64>().ok()
    });
    calls.sum()
}
