//! One decision without a server, compared with governor's keyed limiter, on one key and on each of 10,000 in turn.

use std::{hint::black_box, num::NonZero};

use governor::{Quota, RateLimiter as Governor};
use redisson_rate_limiter::RedissonClient;
use rustix::time::{ClockId, clock_gettime};

use crate::{median, subject::Subject};

const ROUNDS: usize = 7;
const DECISIONS: usize = 200_000;
const LIMIT: u32 = 1_000_000_000;
pub const MANY: usize = 10_000;

/// Nanoseconds of a decision on one key, and on one of many.
pub struct Nanos {
    pub one: f64,
    pub many: f64,
}

pub async fn ours(subject: &Subject) -> Nanos {
    let client = RedissonClient::in_memory();
    // A log keeps each request.
    let limit = if subject.name == "SlidingWindowLog" {
        1_000_000
    } else {
        LIMIT
    };
    let limiter = subject.limiter(&client, limit);
    let keys = keys();
    let mut nanos = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (keys, nanos) in [&keys[..1], &keys[..]].into_iter().zip(&mut nanos) {
            let start = cpu_nanos();
            for key in keys.iter().cycle().take(DECISIONS) {
                let _ = black_box(limiter.check(key, 1).await.expect("a decision"));
            }
            nanos.push((cpu_nanos() - start) as f64 / DECISIONS as f64);
        }
    }
    let [mut one, mut many] = nanos;
    Nanos {
        one: median(&mut one),
        many: median(&mut many),
    }
}

pub fn governors() -> Nanos {
    let burst = NonZero::new(LIMIT).expect("more than 0");
    let limiter = Governor::keyed(Quota::per_second(burst));
    let keys = keys();
    let mut nanos = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (keys, nanos) in [&keys[..1], &keys[..]].into_iter().zip(&mut nanos) {
            let start = cpu_nanos();
            for key in keys.iter().cycle().take(DECISIONS) {
                black_box(limiter.check_key(key).is_ok());
            }
            nanos.push((cpu_nanos() - start) as f64 / DECISIONS as f64);
        }
    }
    let [mut one, mut many] = nanos;
    Nanos {
        one: median(&mut one),
        many: median(&mut many),
    }
}

fn keys() -> Vec<String> {
    (0..MANY).map(|key| format!("user:{key}")).collect()
}

/// What this thread has had of a processor: another process on the machine does not change it much.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
