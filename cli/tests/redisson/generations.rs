//! Grants of several versions on one limiter, those before 3.17 among them.

use compat_tests::redisson::{Rate, Version};
use redis::AsyncCommands;

use crate::spoilt::{MINUTE, NAME, Spoilt, each};

/// Permits that a client of an older version takes.
async fn take(on: &Spoilt, version: Version, permits: i64) {
    let peer = on.client(version).await.limiter(NAME);
    assert_eq!(peer.try_acquire(permits).await, Ok(true), "{version}");
    let mut redis = on.redis.clone();
    let key = format!("{{{NAME}}}:permits");
    let members: Vec<(Vec<u8>, f64)> = redis.zrange_withscores(&key, 0, -1).await.unwrap();
    for (member, score) in members {
        // One in 256 random members of 3.13.3 begins like a current member with three random bytes,
        // and all versions read it.
        if member.len() == 8 && member[0] == 3 {
            let other = [&[4], &member[1..]].concat();
            let () = redis.zrem(&key, member).await.unwrap();
            let () = redis.zadd(&key, other, score).await.unwrap();
        }
    }
}

/// Two permits each by Redisson 3.16.3, 3.16.8, 3.17.0, 3.21.3 and 4.7.0, of 12; a client of 4.7.0
/// reads what is left of them.
async fn mixed() -> Spoilt {
    let on = Spoilt::start(Version::V4_7_0).await;
    let limiter = on.java.limiter(NAME);
    limiter
        .try_set_rate(Rate::overall(12, MINUTE))
        .await
        .unwrap();
    let old = Version::LEGACY
        .into_iter()
        .chain([Version::V3_17_0, Version::V3_21_3]);
    for version in old {
        take(&on, version, 2).await;
    }
    assert_eq!(limiter.try_acquire(2).await, Ok(true));
    on
}

#[tokio::test]
async fn grants_of_every_generation_are_told_apart() {
    let on = mixed().await;
    let shown = on.cli.json("show orders");
    let generations = &shown["permits"][0]["generations"];
    let grants = |name: &str| generations[name].as_u64();
    for name in ["redisson_3_13_3", "redisson_3_16_4", "redisson_3_17"] {
        assert_eq!(grants(name), Some(1), "{name}: {shown}");
    }
    assert_eq!(grants("current"), Some(2), "{shown}");
    on.cannot_mend(&["legacy-members", "legacy-members"]);
}

#[tokio::test]
async fn grants_before_3_17_are_migrated_and_come_back_to_later_versions() {
    let mut on = mixed().await;
    let limiter = on.java.limiter(NAME);
    on.mends_with("--legacy migrate", &["legacy-members", "legacy-members"]);
    assert_eq!(on.state(false).await, (2, vec![2; 5]));
    on.goes_on(&limiter, 2, 12).await;
}

#[tokio::test]
async fn grants_before_3_17_are_removed_and_their_permits_come_back_at_once() {
    let mut on = mixed().await;
    let limiter = on.java.limiter(NAME);
    let expected = ["legacy-members", "legacy-members", "permits-lost"];
    on.mends_with("--legacy remove", &expected);
    assert_eq!(on.state(false).await, (6, vec![2; 3]));
    on.goes_on(&limiter, 6, 12).await;
}

/// Without `doctor`, each call of a later version fails once such a grant has expired.
#[tokio::test]
async fn a_limiter_that_an_expired_grant_of_an_old_version_broke_works_again() {
    for old in Version::LEGACY {
        each(Version::ALL, async |on, limiter| {
            take(on, old, 3).await;
            on.age(MINUTE).await;
            on.mends_with("--legacy remove", &["legacy-members", "permits-lost"]);
            on.goes_on(limiter, 10, 10).await;
        })
        .await;
    }
}
