//! A clock that was ahead and is right again: what was written by it does not count. `FixedWindow`
//! and `Gcra` are not tested, because what they count ends by the store's own clock, with the time
//! to live that a grant gave it; nor is RRateLimiter, which works as in Redisson.

use std::time::Duration;

use redisson_rate_limiter::AnyPolicy::{FixedWindow, Gcra, SharedRate};
use redisson_rate_limiter::{AnyPolicy, PolicyLimiter};

use crate::fixture::Fixture;

const LIMIT: u32 = 8;
const WINDOW: Duration = Duration::from_secs(4);
/// In ms.
const NOW: i64 = 100_000_000;

/// A limiter of each such policy, with a key of its own.
async fn each(fixture: &Fixture) -> Vec<(PolicyLimiter<AnyPolicy>, String)> {
    let client = fixture.client("client").await;
    let with_times =
        |policy: &AnyPolicy| !matches!(policy, FixedWindow(_) | Gcra(_) | SharedRate(_));
    AnyPolicy::examples(LIMIT, WINDOW)
        .filter(with_times)
        .map(|policy| {
            let key = format!("{}:{}", fixture.name(), policy.algorithm());
            (client.policy_limiter(policy).unwrap(), key)
        })
        .collect()
}

/// How many single requests are granted until one is denied, and when that is worth another try, in
/// ms.
async fn granted(limiter: &PolicyLimiter<AnyPolicy>, key: &str) -> (u32, i64) {
    let mut granted = 0;
    loop {
        let decision = limiter.check_without_waiting(key, 1).await.unwrap();
        if let Some(retry_after) = decision.retry_after() {
            return (granted, retry_after.as_millis() as i64);
        }
        granted += 1;
    }
}

pub async fn what_is_further_ahead_than_the_window_does_not_count(fixture: Fixture) {
    for (limiter, key) in each(&fixture).await {
        for (now, ahead) in [(NOW, 3 * WINDOW), (2 * NOW, 10_000 * WINDOW)] {
            fixture.at(now + ahead.as_millis() as i64);
            granted(&limiter, &key).await;
            fixture.at(now);
            for _ in 0..3 {
                let peeked = limiter.peek(&key, 1).await.unwrap();
                assert!(peeked.is_granted(), "{key} {peeked:?}");
            }
            let (at_once, retry_after) = granted(&limiter, &key).await;
            assert_eq!(at_once, LIMIT, "{key}");
            // From here on it is as exact as ever. A window that slides by periods goes on a ms
            // later.
            let latest = WINDOW.as_millis() as i64 + 1;
            assert!((1..=latest).contains(&retry_after), "{key} {retry_after}");
            fixture.at(now + retry_after - 1);
            assert_eq!(granted(&limiter, &key).await.0, 0, "{key}");
            fixture.at(now + retry_after);
            assert!(granted(&limiter, &key).await.0 > 0, "{key}");
            assert!(limiter.reset(&key).await.unwrap());
        }
    }
}

pub async fn what_is_less_far_ahead_counts(fixture: Fixture) {
    for (limiter, key) in each(&fixture).await {
        fixture.at(NOW + 1_000);
        assert_eq!(granted(&limiter, &key).await.0, LIMIT, "{key}");
        fixture.at(NOW);
        assert_eq!(granted(&limiter, &key).await.0, 0, "{key}");
    }
}
