//! Many requests of this crate in one call make one member with the sum of their permits. Redisson
//! works before, between and after such calls.

use std::time::Duration;

use compat_tests::{Both, Peer, dump::Content, redisson::Version};
use redisson_rate_limiter::{Rate, RateLimiter};
use tokio::task::JoinSet;

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_MS: i64 = 60_000;

/// Asks at the same time, and tells how many permits were granted.
async fn ask_together(limiter: &RateLimiter, requests: impl IntoIterator<Item = u32>) -> u32 {
    let mut callers = JoinSet::new();
    for permits in requests {
        let limiter = limiter.clone();
        callers.spawn(async move {
            limiter
                .try_acquire(permits)
                .await
                .unwrap()
                .then_some(permits)
        });
    }
    callers.join_all().await.into_iter().flatten().sum()
}

#[tokio::test]
async fn redisson_works_before_between_and_after_batched_calls() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(100, MINUTE))
                .await
        );
        assert!(limiter.try_acquire(Peer::Java, 7).await);
        assert_eq!(ask_together(&limiter.rust, [1; 30]).await, 30);
        assert_eq!(limiter.available_permits().await, 63);
        assert!(limiter.try_acquire(Peer::Java, 3).await);
        let mixed = [1, 2, 3].into_iter().cycle().take(60); // 120 permits
        assert_eq!(ask_together(&limiter.rust, mixed).await, 60);
        assert_eq!(limiter.available_permits().await, 0);
        assert!(!limiter.try_acquire(Peer::Java, 1).await);

        let dump = both.dump("n").await.normal();
        let members = dump.overall.permits.unwrap().data;
        let mut permits: Vec<u32> = members
            .into_iter()
            .map(|member| match member.content {
                Content::Grant { permits, .. } => permits,
                Content::Malformed(bytes) => panic!("a malformed member: {bytes:?}"),
            })
            .collect();
        // The first request of each crowd finds nobody asking and goes alone. Members of one
        // millisecond are sorted by their random bytes.
        permits.sort_unstable();
        assert_eq!(permits, [1, 1, 3, 7, 29, 59], "they were combined");

        both.age("n", MINUTE_MS).await;
        assert!(
            limiter.try_acquire(Peer::Java, 40).await,
            "it reads the sums back"
        );
        assert_eq!(ask_together(&limiter.rust, [2; 40]).await, 60);
        assert_eq!(limiter.available_permits().await, 0);
    })
    .await;
}
