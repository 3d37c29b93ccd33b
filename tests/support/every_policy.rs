//! A policy of each algorithm, for tests of what every policy must do. A test in `tests/scripts`
//! checks that none is missing.

use std::time::Duration;

use redisson_rate_limiter::{AnyPolicy, Limiter, Policy, RedissonClient};

/// A policy of each algorithm that has so many units (2 or more), and what a unit costs. No whole
/// unit flows back before an hour has passed.
pub fn every_policy(units: u32) -> impl Iterator<Item = (AnyPolicy, u32)> {
    let examples = AnyPolicy::examples(units, units * Duration::from_secs(3600));
    let policies = examples.filter(|policy| !matches!(policy, AnyPolicy::SharedRate(_)));
    policies.map(move |policy| {
        let unit = policy.quota().limit / u64::from(units);
        (policy, u32::try_from(unit).unwrap())
    })
}

/// Whether a granted request may have to wait for its turn. Then its charge is not given back,
/// because the requests behind it know their turns already.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn gives_turns(policy: &AnyPolicy) -> bool {
    let limiter = RedissonClient::in_memory().policy_limiter(policy.clone());
    limiter.unwrap().check_now("key", 1).is_none()
}

/// Whether its calls are never shared, because they take the server longer the more state there is.
#[allow(dead_code, reason = "each test file uses what it needs")]
pub fn goes_alone(policy: &AnyPolicy) -> bool {
    matches!(
        policy,
        AnyPolicy::SlidingWindowLog(_) | AnyPolicy::SlidingWindowCounter(_)
    )
}
