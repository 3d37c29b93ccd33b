//! A limiter that is held here grants Java nothing either, and Java's calls meanwhile leave it as
//! it should be.

use std::time::Duration;

use compat_tests::{Both, Peer, redisson::Version};
use redisson_rate_limiter::Rate;

const HOUR: Duration = Duration::from_secs(3_600);
const HOUR_MS: i64 = 3_600_000;

#[tokio::test]
async fn redisson_is_granted_nothing_while_a_limiter_is_held() {
    Both::each(Version::ALL, async |mut both| {
        for hours in [1, 3] {
            let limiter = both.limiter("n");
            limiter.rust.delete().await.unwrap();
            assert!(
                limiter
                    .try_set_rate(Peer::Java, Rate::overall(10, 2 * HOUR))
                    .await
            );
            assert!(limiter.java.try_acquire(4).await.unwrap());
            limiter.rust.hold(hours * HOUR).await.unwrap();
            for _ in 0..3 {
                assert!(!limiter.java.try_acquire(1).await.unwrap());
                assert!(!limiter.java.try_acquire_timeout(1, 1).await.unwrap());
                assert!(limiter.java.available_permits().await.unwrap() <= 0);
            }
            both.age("n", i64::from(hours) * HOUR_MS).await;
            let left = if hours == 1 { 6 } else { 10 };
            assert!(limiter.java.try_acquire(left).await.unwrap());
            assert!(!limiter.java.try_acquire(1).await.unwrap());
            assert_eq!(limiter.rust.available_permits().await.unwrap(), 0);
            both.age("n", 2 * HOUR_MS).await;
            assert!(limiter.java.try_acquire(10).await.unwrap());
            assert!(!limiter.rust.try_acquire(1).await.unwrap());
        }
    })
    .await;
}
