//! Limiters that their first request created, and limiters in joint decisions, are shared with
//! Redisson too.

use std::time::Duration;

use compat_tests::{Both, Peer, redisson::Version};
use redisson_rate_limiter::{FixedWindow, Rate};

const TEN_SECONDS: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_key_set_up_by_its_first_request_is_a_limiter_for_redisson() {
    Both::each(Version::ALL, async |mut both| {
        let name = "nft:turbo:limit:testLock997";
        let rate = Rate::overall(3, TEN_SECONDS);
        let keyed = both
            .rust
            .keyed_rate_limiter("nft:turbo:limit:", rate)
            .unwrap();
        assert!(keyed.check("testLock997", 1).await.unwrap().is_granted());
        let limiter = both.limiter(name);
        assert_eq!(limiter.available_permits().await, 2);
        // What a service around Redisson does on each request: it finds the limiter set up.
        assert!(!limiter.try_set_rate(Peer::Java, rate).await);
        for (by, expected) in [(Peer::Java, true), (Peer::Rust, true), (Peer::Java, false)] {
            assert_eq!(limiter.try_acquire(by, 1).await, expected, "{by:?}");
        }
        assert!(!keyed.check("testLock997", 1).await.unwrap().is_granted());
        both.age(name, 10_000).await;
        assert!(keyed.check("testLock997", 3).await.unwrap().is_granted());
        assert!(!limiter.try_acquire(Peer::Java, 1).await);
    })
    .await;
}

#[tokio::test]
async fn a_key_of_redisson_is_taken_over_and_a_changed_rate_reaches_redisson() {
    Both::each(Version::ALL, async |both| {
        let limiter = both.limiter("limit:k");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(3, HOUR))
                .await
        );
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        let keyed = both
            .rust
            .keyed_rate_limiter("limit:", Rate::overall(3, HOUR))
            .unwrap();
        assert!(keyed.check("k", 1).await.unwrap().is_granted());
        assert!(!keyed.check("k", 1).await.unwrap().is_granted());
        keyed.set_rate(Rate::overall(5, HOUR)).unwrap();
        assert!(keyed.check("k", 1).await.unwrap().is_granted());
        assert_eq!(limiter.available_permits().await, 1);
        assert!(limiter.try_acquire(Peer::Java, 1).await);
        assert!(!keyed.check("k", 1).await.unwrap().is_granted());
    })
    .await;
}

#[tokio::test]
async fn redisson_sees_exactly_what_a_joint_decision_takes() {
    Both::each(Version::ALL, async |both| {
        let limiter = both.limiter("application");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(5, HOUR))
                .await
        );
        let address = both.rust.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
        let ask = async |permits| {
            let charges = [
                address.charge("address", 1).unwrap(),
                limiter.rust.charge(permits).unwrap(),
            ];
            both.rust.check_all(charges).await.unwrap().is_granted()
        };
        assert!(ask(2).await);
        assert_eq!(limiter.available_permits().await, 3);
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        assert!(!ask(2).await); // by the limiter
        assert!(ask(1).await);
        limiter.set_rate(Peer::Java, Rate::overall(5, HOUR)).await;
        assert!(!ask(1).await); // by the address
        assert_eq!(limiter.available_permits().await, 5);
    })
    .await;
}
