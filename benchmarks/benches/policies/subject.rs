//! The policies, each compared with a minimal script that keeps the same promise on the same state.

use std::{sync::Arc, time::Duration};

use benchmarks::LARGEST_LOG;
use redis::{Cmd, Script, cmd};
use redisson_rate_limiter::{
    FixedWindow, Gcra, LeakyBucket, Limiter, PenaltyTokenBucket, Policy, QuotaBucket,
    RedissonClient, Result, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};

pub struct Subject {
    pub name: &'static str,
    /// With a limit that is soon used up, or one that nobody reaches.
    make: fn(&RedissonClient, limit: u32) -> Result<Arc<dyn Limiter>>,
    by_hand: &'static str,
    /// What follows the target's name in its keys.
    keys: fn(target: &str) -> Vec<String>,
    /// Behind the deadline and the cost.
    numbers: fn(limit: u32) -> Vec<u64>,
    /// Whether the last argument names the call.
    names_calls: bool,
}

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_MILLIS: u64 = 60_000;

/// A log with this limit, or with the largest one, which nobody reaches.
fn log(limit: u32) -> (u32, Duration) {
    match limit > LARGEST_LOG.0 {
        false => (limit, MINUTE),
        true => LARGEST_LOG,
    }
}

pub fn all() -> Vec<Subject> {
    vec![
        Subject {
            name: "FixedWindow",
            make: |client, limit| of(client, FixedWindow::new(limit, MINUTE)),
            by_hand: include_str!("by_hand/fixed_window.lua"),
            keys: |target| vec![target.to_owned()],
            numbers: |limit| vec![limit.into(), MINUTE_MILLIS],
            names_calls: false,
        },
        Subject {
            name: "SlidingWindowLog",
            make: |client, limit| {
                let (limit, window) = log(limit);
                of(client, SlidingWindowLog::new(limit, window))
            },
            by_hand: include_str!("by_hand/sliding_window_log.lua"),
            keys: |target| vec![target.to_owned()],
            numbers: |limit| {
                let (limit, window) = log(limit);
                vec![limit.into(), window.as_millis() as u64]
            },
            names_calls: true,
        },
        Subject {
            name: "SlidingWindowCounter, 10 periods",
            make: |client, limit| {
                of(
                    client,
                    SlidingWindowCounter::new(limit, MINUTE).with_period(MINUTE / 10),
                )
            },
            by_hand: include_str!("by_hand/sliding_window_counter.lua"),
            keys: |target| vec![format!("{{{target}}}-st"), format!("{{{target}}}-")],
            numbers: |limit| vec![limit.into(), MINUTE_MILLIS, MINUTE_MILLIS / 10],
            names_calls: false,
        },
        Subject {
            name: "TokenBucket",
            make: |client, limit| of(client, TokenBucket::per_second(1).with_capacity(limit)),
            by_hand: include_str!("by_hand/token_bucket.lua"),
            keys: |target| vec![target.to_owned()],
            numbers: |limit| vec![limit.into(), 1],
            names_calls: false,
        },
        Subject {
            name: "Gcra",
            make: |client, limit| of(client, Gcra::per_second(1).with_burst(limit)),
            by_hand: include_str!("by_hand/gcra.lua"),
            keys: |target| vec![target.to_owned()],
            numbers: |limit| vec![limit.into(), 1_000_000],
            names_calls: false,
        },
        Subject {
            name: "QuotaBucket",
            make: |client, limit| of(client, QuotaBucket::new(1, MINUTE).with_capacity(limit)),
            by_hand: include_str!("by_hand/quota_bucket.lua"),
            keys: |target| vec![target.to_owned()],
            numbers: |limit| vec![limit.into(), 1, 60],
            names_calls: false,
        },
        Subject {
            name: "LeakyBucket",
            make: |client, limit| of(client, LeakyBucket::new(1, MINUTE).with_capacity(limit - 1)),
            by_hand: include_str!("by_hand/leaky_bucket.lua"),
            keys: |target| vec![target.to_owned(), format!("{{{target}}}-st")],
            numbers: |limit| vec![u64::from(limit) - 1, 1, MINUTE_MILLIS],
            names_calls: false,
        },
        Subject {
            name: "PenaltyTokenBucket",
            make: |client, limit| {
                let limiter = client
                    .policy_limiter(PenaltyTokenBucket::new(1, MINUTE).with_capacity(limit))?;
                Ok(Arc::new(limiter.with_penalty(MINUTE)?))
            },
            by_hand: include_str!("by_hand/penalty_token_bucket.lua"),
            keys: |target| {
                let sibling = |suffix| format!("{{{target}}}-{suffix}");
                vec![target.to_owned(), sibling("st"), sibling("lock")]
            },
            numbers: |limit| {
                let time_to_live = 2 * u64::from(limit) * MINUTE_MILLIS;
                vec![limit.into(), 1, MINUTE_MILLIS, time_to_live, MINUTE_MILLIS]
            },
            names_calls: false,
        },
    ]
}

fn of(client: &RedissonClient, policy: impl Policy) -> Result<Arc<dyn Limiter>> {
    Ok(Arc::new(client.policy_limiter(policy)?))
}

/// The script by hand on one target.
pub struct ByHand {
    hash: String,
    keys: Vec<String>,
    numbers: Vec<u64>,
    names_calls: bool,
}

impl Subject {
    pub fn limiter(&self, client: &RedissonClient, limit: u32) -> Arc<dyn Limiter> {
        (self.make)(client, limit).expect("numbers in their ranges")
    }

    pub fn script(&self) -> Script {
        Script::new(self.by_hand)
    }

    pub fn by_hand(&self, target: &str, limit: u32) -> ByHand {
        ByHand {
            hash: self.script().get_hash().to_owned(),
            keys: (self.keys)(target),
            numbers: (self.numbers)(limit),
            names_calls: self.names_calls,
        }
    }
}

impl ByHand {
    /// A request of 1, which the server knows the script of.
    pub fn request(&self, call: u64) -> Cmd {
        const FAR_AWAY: u64 = 1 << 52;
        let mut command = cmd("EVALSHA");
        command.arg(&self.hash).arg(self.keys.len()).arg(&self.keys);
        command.arg(FAR_AWAY).arg(1).arg(&self.numbers);
        if self.names_calls {
            command.arg(&u128::from(call).to_be_bytes());
        }
        command
    }
}
