//! How several processes that always have waiters share one limiter.
//!
//! A [`Scenario`] has sides: processes of this crate and JVMs with Redisson, which wait on one
//! limiter on their own server. [`Scenario::run`] returns what each was granted. [`waiters`]
//! measures what waiting costs a process that is alone.

pub mod process;
mod scenario;
pub mod waiters;

pub use scenario::{Outcome, SCENARIOS, Scenario, Side};

use redis::aio::ConnectionLike;

/// The name of the limiter.
const NAME: &str = "shared";

/// The version of Redisson whose threads wait together with this crate.
const REDISSON: crate::redisson::Version = crate::redisson::Version::V4_7_0;

/// How often the server has run a script for a client.
async fn script_calls(redis: &mut impl ConnectionLike) -> u64 {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(redis)
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
