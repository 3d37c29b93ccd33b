//! One decision without a server, compared with governor's keyed limiter, on one key and on each of
//! 10,000 in turn. Rounds of both alternate, and the times are ratios of two rounds next to each
//! other: another process on the machine changes both.

use std::{hint::black_box, num::NonZero, time::Duration};

use benchmarks::{LARGEST_LOG, thousands};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter as Governor};
use redisson_rate_limiter::{
    FixedWindow, Gcra, KeyedRateLimiter, LeakyBucket, PenaltyTokenBucket, Policy, PolicyLimiter,
    QuotaBucket, Rate, RedissonClient, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};
use rustix::time::{ClockId, clock_gettime};

use crate::compared::Compared;

const ROUNDS: usize = 8;
const DECISIONS: usize = 100_000;
const LIMIT: u32 = 1_000_000_000;
const MANY: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

pub async fn print_table(only: Option<&str>) {
    println!(
        "| in memory | one key | governor | times | one of {} | governor | times |\n\
         |---|--:|--:|--:|--:|--:|--:|",
        thousands(MANY as u64)
    );
    let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    macro_rules! row {
        ($name:literal, |$client:ident| $limiter:expr) => {
            if is_wanted($name) {
                // Its own store, so that the limiters of others are not in the way.
                let $client = RedissonClient::in_memory();
                print_row($name, $limiter.expect("numbers in their ranges")).await;
            }
        };
    }
    row!("FixedWindow", |client| client
        .policy_limiter(FixedWindow::new(LIMIT, MINUTE)));
    row!("Gcra", |client| client
        .policy_limiter(Gcra::per_minute(1_000).with_burst(LIMIT)));
    let (limit, window) = LARGEST_LOG;
    row!("SlidingWindowLog", |client| client
        .policy_limiter(SlidingWindowLog::new(limit, window)));
    let counter = SlidingWindowCounter::new(LIMIT, MINUTE).with_period(MINUTE / 10);
    row!("SlidingWindowCounter, 10 periods", |client| client
        .policy_limiter(counter));
    let tokens = TokenBucket::per_second(1).with_capacity(LIMIT);
    row!("TokenBucket", |client| client.policy_limiter(tokens));
    let quota = QuotaBucket::new(1, MINUTE).with_capacity(LIMIT);
    row!("QuotaBucket", |client| client.policy_limiter(quota));
    let leaky = LeakyBucket::new(1, MINUTE).with_capacity(LIMIT - 1);
    row!("LeakyBucket", |client| client.policy_limiter(leaky));
    let penalty = PenaltyTokenBucket::new(1, MINUTE).with_capacity(LIMIT);
    row!("PenaltyTokenBucket", |client| client
        .policy_limiter(penalty)
        .and_then(|limiter| limiter.with_penalty(MINUTE)));
    // Its own window: what was granted goes again, as with governor.
    let rate = Rate::overall(LIMIT.into(), Duration::from_secs(1));
    row!("KeyedRateLimiter", |client| client
        .keyed_rate_limiter("", rate));
    println!();
}

/// A limiter as its callers call it: governor's is not behind a trait object either.
trait Ask {
    async fn ask(&self, key: &str);
}

impl<P: Policy> Ask for PolicyLimiter<P> {
    async fn ask(&self, key: &str) {
        let decision = self
            .check_without_waiting(key, 1)
            .await
            .expect("a decision");
        assert!(black_box(decision).is_granted());
    }
}

impl Ask for KeyedRateLimiter {
    async fn ask(&self, key: &str) {
        let decision = self.check(key, 1).await.expect("a decision");
        assert!(black_box(decision).is_granted());
    }
}

async fn print_row(name: &str, limiter: impl Ask) {
    let burst = NonZero::new(LIMIT).expect("more than 0");
    let governor = Governor::keyed(Quota::per_second(burst));
    let keys: Vec<String> = (0..MANY).map(|key| format!("user:{key}")).collect();
    let one = compare(&limiter, &governor, &keys[..1]).await;
    let many = compare(&limiter, &governor, &keys).await;
    println!(
        "| {name} | {:.0} ns | {:.0} ns | {:.2} | {:.0} ns | {:.0} ns | {:.2} |",
        one.ours, one.other, one.times, many.ours, many.other, many.times
    );
}

/// Nanoseconds of a decision.
async fn compare(
    limiter: &impl Ask,
    governor: &DefaultKeyedRateLimiter<String>,
    keys: &[String],
) -> Compared {
    let mut rounds = Vec::new();
    // The first round creates the limiters.
    for round in 0..=ROUNDS {
        let start = cpu_nanos();
        for key in keys.iter().cycle().take(DECISIONS) {
            limiter.ask(key).await;
        }
        let between = cpu_nanos();
        for key in keys.iter().cycle().take(DECISIONS) {
            assert!(black_box(governor.check_key(key)).is_ok());
        }
        let sides = [between - start, cpu_nanos() - between];
        if round > 0 {
            rounds.push(sides.map(|nanos| nanos as f64 / DECISIONS as f64));
        }
    }
    Compared::of(&rounds)
}

/// What this thread has had of a processor: another process on the machine does not change it much.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
