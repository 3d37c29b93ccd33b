//! Times to live of the keys.

use super::*;

#[tokio::test]
async fn a_time_to_live_set_by_one_is_copied_by_the_other() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        assert!(
            limiter
                .try_set_rate(Peer::Java, Rate::overall(9, MINUTE))
                .await
        );
        assert!(limiter.rust.expire(5 * MINUTE).await.unwrap());
        assert!(is_minutes(
            Some(limiter.java.remain_time_to_live().await.unwrap()),
            5
        ));
        assert!(limiter.try_acquire(Peer::Java, 1).await);
        let by_java = ttls(&both.dump("n").await);
        // Since 3.17.3.
        let copies = both.version > Version::V3_17_0;
        assert!(
            by_java[1..].iter().all(|ttl| is_minutes(*ttl, 5) == copies),
            "{by_java:?}"
        );

        assert!(limiter.java.expire(9 * MINUTE_MS).await.unwrap());
        match limiter.rust.remain_time_to_live().await.unwrap() {
            TimeToLive::Remaining(left) => {
                assert!(is_minutes(Some(left.as_millis() as i64), 9), "{left:?}");
            }
            other => panic!("{other:?}"),
        }
        both.redis.del("{n}:value").await.unwrap();
        assert!(limiter.try_acquire(Peer::Rust, 1).await);
        let by_rust = ttls(&both.dump("n").await);
        assert!(by_rust.iter().all(|ttl| is_minutes(*ttl, 9)), "{by_rust:?}");

        assert!(limiter.java.expire_if_less(4 * MINUTE_MS).await.unwrap());
        assert!(!limiter.rust.expire_if_greater(3 * MINUTE).await.unwrap());
        assert!(limiter.rust.expire_if_set(2 * MINUTE).await.unwrap());
        let ttls_now = ttls(&both.dump("n").await);
        assert!(
            ttls_now.iter().all(|ttl| is_minutes(*ttl, 2)),
            "{ttls_now:?}"
        );
        assert!(limiter.java.clear_expire().await.unwrap());
        assert_eq!(
            limiter.rust.remain_time_to_live().await.unwrap(),
            TimeToLive::Unlimited
        );
        assert!(!limiter.rust.clear_expire().await.unwrap());
        assert!(limiter.rust.expire_if_not_set(MINUTE).await.unwrap());
        assert!(limiter.java.clear_expire().await.unwrap());
        assert_eq!(ttls(&both.dump("n").await), [None; 3]);
    })
    .await;
}

#[tokio::test]
async fn both_keep_alive_what_one_asked_to_keep_alive() {
    Both::each(with(Version::has_keep_alive), async |mut both| {
        for by in Peer::ALL {
            let name = format!("{by:?}");
            let limiter = both.limiter(&name);
            let rate = Rate::overall(5, MINUTE).keep_alive(9 * MINUTE);
            assert!(limiter.try_set_rate(by, rate).await);
            assert_eq!(limiter.rust.config().await.unwrap(), Some(rate));
            for (peer, permits, is_granted) in [
                (Peer::Java, 2, true),
                (Peer::Rust, 3, true),
                (Peer::Java, 1, false),
                (Peer::Rust, 1, false),
            ] {
                assert!(limiter.java.expire(2 * MINUTE_MS).await.unwrap());
                assert_eq!(limiter.try_acquire(peer, permits).await, is_granted);
                let renewed = ttls(&both.dump(&name).await);
                assert!(
                    renewed.iter().all(|ttl| is_minutes(*ttl, 9)),
                    "{peer:?}: {renewed:?}"
                );
            }
        }
    })
    .await;
}
