//! The limiters: each grants ten requests per second, in its own way.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{
    Chargeable, FixedWindow, LeakyBucket, PenaltyTokenBucket, Policy, QuotaBucket, Rate,
    RedissonClient, Result, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};

/// A limiter, and how it is shown.
pub struct Shown {
    pub name: &'static str,
    /// Of the picture.
    pub file: &'static str,
    pub rule: &'static str,
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
    let ten = Rate::overall(10, SECOND);
    let keyed = Arc::new(client.keyed_rate_limiter("which-limiter:rate:", ten)?);
    let period = 250;
    let penalty_unit = 500;
    let strict = PenaltyTokenBucket::new(5, millis(penalty_unit)).with_capacity(10);
    Ok(vec![
        Shown {
            name: "RRateLimiter",
            file: "rrate_limiter",
            rule: "10 permits, each back 1 s after it was taken",
            limiter: keyed.clone(),
            sampler: keyed,
            edges: Edges::Nowhere,
            locks_out: false,
        },
        Shown {
            name: "SlidingWindowLog",
            file: "sliding_window_log",
            rule: "10 in any 1 s",
            ..shown(client, SlidingWindowLog::new(10, SECOND))?
        },
        Shown {
            name: "SlidingWindowCounter",
            file: "sliding_window_counter",
            rule: "10 in a window of 1 s, which slides by 250 ms",
            edges: Edges::Every(period),
            ..shown(
                client,
                SlidingWindowCounter::new(10, SECOND).with_period(millis(period)),
            )?
        },
        Shown {
            name: "FixedWindow",
            file: "fixed_window",
            rule: "10 in each window of 1 s",
            edges: Edges::Reset,
            ..shown(client, FixedWindow::new(10, SECOND))?
        },
        Shown {
            name: "TokenBucket",
            file: "token_bucket",
            rule: "10 tokens, 10 more a second",
            ..shown(client, TokenBucket::per_second(10))?
        },
        Shown {
            name: "QuotaBucket",
            file: "quota_bucket",
            rule: "10 tokens, 10 more in each period of 1 s",
            edges: Edges::OnTheClock(1_000),
            ..shown(client, QuotaBucket::new(10, SECOND))?
        },
        Shown {
            name: "LeakyBucket",
            file: "leaky_bucket",
            rule: "1 goes on in 100 ms, 5 may wait",
            ..shown(client, LeakyBucket::new(1, millis(100)).with_capacity(5))?
        },
        Shown {
            name: "PenaltyTokenBucket",
            file: "penalty_token_bucket",
            rule: "10 tokens, 5 more each 500 ms; a denial locks out for 700 ms",
            limiter: Arc::new(client.limiter(strict)?.with_penalty(millis(700))?),
            edges: Edges::Every(penalty_unit),
            locks_out: true,
            ..shown(client, strict)?
        },
    ])
}

/// One without a name yet.
fn shown(client: &RedissonClient, policy: impl Policy + Send + Sync) -> Result<Shown> {
    let limiter = Arc::new(client.limiter(policy)?);
    Ok(Shown {
        name: "",
        file: "",
        rule: "",
        limiter: limiter.clone(),
        sampler: limiter,
        edges: Edges::Nowhere,
        locks_out: false,
    })
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}
