//! The limiters: each grants ten requests per second, in its own way.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{AnyPolicy, Chargeable, PenaltyTokenBucket, RedissonClient, Result};

/// A limiter, and how it is shown.
pub struct Shown {
    pub name: String,
    /// Of the picture.
    pub file: &'static str,
    pub rule: String,
    pub limiter: Arc<dyn Chargeable>,
    /// The same for samples: it locks nobody out.
    pub sampler: Arc<dyn Chargeable>,
    pub edges: Edges,
    /// A denial locks the target out.
    pub locks_out: bool,
}

/// Where something begins anew.
pub enum Edges {
    Nowhere,
    /// Where the limiter says that all permits are back.
    Reset,
    /// So many ms apart, since the first request.
    Every(i64),
    /// So many ms apart, by the clock.
    OnTheClock(i64),
}

const SECOND: Duration = Duration::from_secs(1);

pub fn all(client: &RedissonClient) -> Result<Vec<Shown>> {
    let policies = AnyPolicy::examples(10, SECOND);
    policies.map(|policy| shown(client, policy)).collect()
}

fn shown(client: &RedissonClient, policy: AnyPolicy) -> Result<Shown> {
    let (file, period, penalty_unit) = (policy.algorithm(), 250, 500);
    // As it is found in the documentation.
    let policy = match policy {
        AnyPolicy::SlidingWindowCounter(counter) => counter.with_period(millis(period)).into(),
        AnyPolicy::LeakyBucket(bucket) => bucket.with_capacity(5).into(),
        AnyPolicy::PenaltyTokenBucket(_) => {
            let bucket = PenaltyTokenBucket::new(5, millis(penalty_unit));
            bucket.with_capacity(10).into()
        }
        other => other,
    };
    let limiter = Arc::new(client.policy_limiter(policy.clone())?);
    let shown = Shown {
        name: camel_case(file),
        file,
        rule: String::new(),
        limiter: limiter.clone(),
        sampler: limiter,
        edges: Edges::Nowhere,
        locks_out: false,
    };
    let with = |rule: &str, edges| (rule.to_owned(), edges);
    let (rule, edges) = match policy {
        AnyPolicy::SharedRate(rate) => {
            let prefix = "which-limiter:rate:";
            let keyed = Arc::new(client.keyed_rate_limiter(prefix, rate)?);
            return Ok(Shown {
                name: "RRateLimiter".to_owned(),
                file: "rrate_limiter",
                rule: "10 permits, each back 1 s after it was taken".to_owned(),
                limiter: keyed.clone(),
                sampler: keyed,
                ..shown
            });
        }
        AnyPolicy::PenaltyTokenBucket(strict) => {
            let penalty = millis(700);
            return Ok(Shown {
                rule: "10 tokens, 5 more each 500 ms; a denial locks out for 700 ms".to_owned(),
                limiter: Arc::new(client.policy_limiter(strict)?.with_penalty(penalty)?),
                edges: Edges::Every(penalty_unit),
                locks_out: true,
                ..shown
            });
        }
        AnyPolicy::SlidingWindowLog(_) => with("10 in any 1 s", Edges::Nowhere),
        AnyPolicy::SlidingWindowCounter(_) => with(
            "10 in a window of 1 s, which slides by 250 ms",
            Edges::Every(period),
        ),
        AnyPolicy::FixedWindow(_) => with("10 in each window of 1 s", Edges::Reset),
        AnyPolicy::Gcra(_) => with("10 a second, up to 10 at once", Edges::Nowhere),
        AnyPolicy::TokenBucket(_) => with("10 tokens, 10 more a second", Edges::Nowhere),
        AnyPolicy::QuotaBucket(_) => with(
            "10 tokens, 10 more in each period of 1 s",
            Edges::OnTheClock(1_000),
        ),
        AnyPolicy::LeakyBucket(_) => with("1 goes on in 100 ms, 5 may wait", Edges::Nowhere),
        other => panic!("{other}: its rule and edges are missing in limiters.rs"),
    };
    Ok(Shown {
        rule,
        edges,
        ..shown
    })
}

/// The name of the type of a policy.
fn camel_case(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}
