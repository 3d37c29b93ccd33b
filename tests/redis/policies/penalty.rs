//! The lock that a penalty sets: its key, its time, and that nothing else is written while it is
//! there.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redisson_rate_limiter::{AnyPolicy, Decision, Denied, Error, PolicyLimiter};

use crate::every_policy::every_policy;
use crate::fixture::{Fixture, HOUR, ms};
use crate::key_expiry::assert_lives_for;

const TARGET: &str = "user:123";
const LOCK: &str = "{user:123}-lock";

async fn limiter(
    fixture: &Fixture,
    policy: AnyPolicy,
    penalty: Duration,
) -> PolicyLimiter<AnyPolicy> {
    let client = fixture.client().await;
    client
        .policy_limiter(policy)
        .unwrap()
        .with_penalty(penalty)
        .unwrap()
}

#[tokio::test]
async fn a_denial_sets_the_lock_to_1_for_the_penalty_and_a_grant_none() {
    for (policy, unit) in every_policy(2) {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, policy, ms(12_345)).await;
        assert!(limiter.check(TARGET, 2 * unit).await.unwrap().is_granted());
        let lock: Option<String> = fixture.raw.get(LOCK).await.unwrap();
        assert_eq!(lock, None);
        let since = Instant::now();
        assert!(!limiter.check(TARGET, unit).await.unwrap().is_granted());
        let lock: String = fixture.raw.get(LOCK).await.unwrap();
        assert_eq!(lock, "1");
        assert_lives_for(&mut fixture, LOCK, 12_345, since).await;
    }
}

#[tokio::test]
async fn while_the_lock_is_there_nothing_is_written() {
    for (policy, unit) in every_policy(2) {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, policy, HOUR).await;
        assert!(limiter.check(TARGET, 2 * unit).await.unwrap().is_granted());
        assert!(!limiter.check(TARGET, unit).await.unwrap().is_granted());
        let before = fixture.everything().await;
        for at in [1_500, 9_000, 10_000_000] {
            fixture.at(at);
            assert!(!limiter.check(TARGET, unit).await.unwrap().is_granted());
            assert_eq!(fixture.everything().await, before);
        }
    }
}

#[tokio::test]
async fn a_lock_without_a_time_to_live_gets_the_penaltys() {
    for (policy, unit) in every_policy(2) {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, policy, ms(12_345)).await;
        fixture.run(&["SET", LOCK, "1"]).await;
        let since = Instant::now();
        let Decision::Denied(Denied { retry_after, .. }) =
            limiter.check(TARGET, unit).await.unwrap()
        else {
            panic!("granted");
        };
        assert_eq!(retry_after, ms(12_345));
        assert_lives_for(&mut fixture, LOCK, 12_345, since).await;
        let names = crate::keys::names(&mut fixture.raw).await;
        assert_eq!(names, [LOCK]);
    }
}

#[tokio::test]
async fn a_peers_lock_keeps_its_time_to_live() {
    for (policy, unit) in every_policy(2) {
        let mut fixture = Fixture::start().await;
        let limiter = limiter(&fixture, policy, HOUR).await;
        fixture.run(&["SET", LOCK, "1", "EX", "600"]).await;
        let expires = fixture.expires(LOCK).await;
        let decision = limiter.check(TARGET, unit).await.unwrap();
        let Decision::Denied(Denied { retry_after, .. }) = decision else {
            panic!("granted");
        };
        assert!(retry_after <= ms(600_000));
        assert_eq!(fixture.expires(LOCK).await, expires);
    }
}

#[tokio::test]
async fn a_lock_of_another_type_is_a_bad_state_and_nothing_changes() {
    for (policy, unit) in every_policy(2) {
        for lock in [
            &["RPUSH", LOCK, "1"][..],
            &["HSET", LOCK, "a", "1"],
            &["ZADD", LOCK, "1", "1"],
        ] {
            let mut fixture = Fixture::start().await;
            let limiter = limiter(&fixture, policy.clone(), HOUR).await;
            fixture.run(lock).await;
            let before = fixture.everything().await;
            let refused = limiter.check(TARGET, unit).await;
            assert!(
                matches!(&refused, Err(Error::BadState { name, .. }) if name == TARGET),
                "{refused:?}"
            );
            assert_eq!(fixture.everything().await, before);
        }
    }
}
