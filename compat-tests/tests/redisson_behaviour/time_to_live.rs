//! Times to live of the keys.

use super::*;

#[tokio::test]
async fn keep_alive_is_renewed_on_all_keys() {
    each(with(Version::has_keep_alive), async |mut on| {
        let limiter = on.java.limiter("n");
        let error = limiter
            .try_set_rate(Rate::overall(5, MINUTE).keep_alive(MINUTE - 1))
            .await
            .unwrap_err();
        assert_eq!(error.class, "IllegalArgumentException");

        limiter
            .try_set_rate(Rate::overall(5, MINUTE).keep_alive(2 * MINUTE))
            .await
            .unwrap();
        assert!(is_about(ttls(&on.dump("n").await)[0], 2 * MINUTE));
        for granted in [true, false] {
            on.redis.pexpire("n", MINUTE).await.unwrap();
            assert_eq!(limiter.try_acquire(3).await.unwrap(), granted);
            let renewed = on.dump("n").await;
            assert!(
                ttls(&renewed).iter().all(|ttl| is_about(*ttl, 2 * MINUTE)),
                "{renewed:#?}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_ttl_of_the_hash_is_copied() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        assert!(limiter.expire(MINUTE).await.unwrap());
        assert!(limiter.try_acquire(3).await.unwrap());
        let [hash, value, permits] = ttls(&on.dump("n").await);
        assert!(is_about(hash, MINUTE));
        // Since 3.17.3.
        let copied = on.version > Version::V3_17_0;
        assert_eq!(is_about(value, MINUTE), copied, "{value:?}");
        assert_eq!(is_about(permits, MINUTE), copied, "{permits:?}");
    })
    .await;
}

#[tokio::test]
async fn expiry_is_of_all_keys_but_read_from_the_hash() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        assert!(!limiter.is_exists().await.unwrap());
        assert!(!limiter.expire(MINUTE).await.unwrap());
        assert_eq!(limiter.remain_time_to_live().await.unwrap(), -2);

        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        limiter.try_acquire(1).await.unwrap();
        assert_eq!(limiter.remain_time_to_live().await.unwrap(), -1);
        assert!(!limiter.clear_expire().await.unwrap());
        assert!(!limiter.expire_if_set(MINUTE).await.unwrap());
        assert!(!limiter.expire_if_greater(MINUTE).await.unwrap());
        assert!(limiter.expire_if_not_set(MINUTE).await.unwrap());
        assert!(limiter.expire_if_greater(3 * MINUTE).await.unwrap());
        assert!(limiter.expire_if_less(2 * MINUTE).await.unwrap());
        assert!(
            ttls(&on.dump("n").await)
                .iter()
                .all(|ttl| is_about(*ttl, 2 * MINUTE))
        );
        assert!(limiter.clear_expire().await.unwrap());
        assert!(limiter.expire_at(epoch_millis(-MINUTE)).await.unwrap());
        assert!(
            ttls(&on.dump("n").await)
                .iter()
                .all(|ttl| is_about(*ttl, MINUTE))
        );
        assert!(limiter.delete().await.unwrap());
        assert!(!limiter.delete().await.unwrap());
        assert!(on.redis.keys("*").await.unwrap().is_empty());
    })
    .await;
}
