//! Acquire and release.

use super::*;

#[tokio::test]
async fn an_acquire_writes_value_and_one_member() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        let before = epoch_millis(0);
        assert!(limiter.try_acquire(3).await.unwrap());

        let after = on.dump("n").await;
        assert_eq!(value(&after), Some("2"));
        assert_eq!(ttls(&after), [None; 3]);
        let [member] = &after.overall.permits.as_ref().unwrap().data[..] else {
            panic!("one member: {after:#?}")
        };
        let random_len = on.version.random_len();
        assert_eq!(member.bytes.len(), 5 + random_len);
        assert_eq!(usize::from(member.bytes[0]), random_len);
        assert_eq!(member.bytes[1 + random_len..], [3, 0, 0, 0]);
        assert!(
            (before as f64..=epoch_millis(0) as f64).contains(&member.score),
            "{member:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn what_is_left_decides() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire_one().await.unwrap());
        assert!(limiter.try_acquire(2).await.unwrap());
        assert!(!limiter.try_acquire(3).await.unwrap());
        assert!(!limiter.try_acquire_timeout(3, 0).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 2);
        limiter.acquire_one().await.unwrap();
        limiter.acquire(1).await.unwrap();
        assert_eq!(permits(&on.dump("n").await), [1, 2, 1, 1]);
    })
    .await;
}

#[tokio::test]
async fn errors_say_what_is_wrong_and_write_nothing() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        for missing in [
            limiter.try_acquire(1).await.map(drop),
            limiter.available_permits().await.map(drop),
        ] {
            let error = missing.unwrap_err();
            assert_eq!(error.class, "RedisException");
            assert!(
                error.message.contains("RateLimiter is not initialized"),
                "{error}"
            );
        }
        assert!(on.redis.keys("*").await.unwrap().is_empty());

        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        let error = limiter.try_acquire(6).await.unwrap_err();
        let may_not = if on.version < Version::V3_36_0 {
            "could not"
        } else {
            "cannot"
        };
        let text = format!("Requested permits amount {may_not} exceed defined rate");
        assert!(error.message.contains(&text), "{error}");
        assert_eq!(on.redis.keys("*").await.unwrap(), ["n"]);
    })
    .await;
}

#[tokio::test]
async fn release_raises_value_and_leaves_the_members() {
    each(with(Version::has_release), async |mut on| {
        let limiter = on.java.limiter("n");
        let error = limiter.release(1).await.unwrap_err();
        assert!(
            error.message.contains("RateLimiter is not initialized"),
            "{error}"
        );

        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        limiter.release(4).await.unwrap();
        assert_eq!(
            value(&on.dump("n").await),
            Some("10"),
            "an untouched limiter has its whole rate"
        );

        assert!(limiter.try_acquire(6).await.unwrap());
        limiter.release(0).await.unwrap();
        assert_eq!(value(&on.dump("n").await), Some("4"));
        limiter.release(4).await.unwrap();
        assert_eq!(value(&on.dump("n").await), Some("8"));
        limiter.release(4).await.unwrap();
        assert_eq!(value(&on.dump("n").await), Some("10"), "not above the rate");
        assert_eq!(permits(&on.dump("n").await), [6]);

        assert_eq!(
            limiter.release(-1).await.unwrap_err().class,
            "IllegalArgumentException"
        );
    })
    .await;
}
