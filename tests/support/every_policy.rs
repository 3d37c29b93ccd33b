//! Each policy: what it must show, a test asks of all of these. `tests/scripts` holds them to the
//! scripts.

use std::time::Duration;

use redisson_rate_limiter::AnyPolicy;

/// A policy of each algorithm that has so many units (2 or more), and what a unit costs. No whole
/// unit flows back before an hour has passed.
pub fn every_policy(units: u32) -> impl Iterator<Item = (AnyPolicy, u32)> {
    let examples = AnyPolicy::examples(units, units * Duration::from_secs(3600));
    examples.filter_map(move |policy| {
        let unit = match &policy {
            AnyPolicy::SharedRate(_) => return None,
            AnyPolicy::TokenBucket(bucket) => bucket.capacity() / units,
            _ => 1,
        };
        Some((policy, unit))
    })
}
