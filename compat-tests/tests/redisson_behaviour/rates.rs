//! What a change of the rate keeps.

use super::*;

#[tokio::test]
async fn set_rate_forgets_what_was_taken() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        for rate in [
            Rate::overall(5, MINUTE),
            Rate::overall(5, MINUTE),
            Rate::overall(7, 2 * MINUTE),
        ] {
            limiter.set_rate(rate).await.unwrap();
            let reset = on.dump("n").await;
            assert_eq!(
                reset.config.as_ref().unwrap().data["rate"],
                rate.rate.to_string()
            );
            assert_eq!((value(&reset), permits(&reset)), (None, vec![]));
            assert!(limiter.try_acquire(5).await.unwrap());
        }
    })
    .await;
}

#[tokio::test]
async fn update_rate_keeps_what_was_taken_if_asked_to() {
    each(with(Version::has_update_rate), async |mut on| {
        let limiter = on.java.limiter("n");
        assert!(
            !limiter
                .update_rate(Rate::overall(20, MINUTE), Some(true))
                .await
                .unwrap()
        );
        assert!(on.redis.keys("*").await.unwrap().is_empty());

        limiter
            .try_set_rate(Rate::overall(10, MINUTE).keep_alive(2 * MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(4).await.unwrap());
        assert!(
            limiter
                .update_rate(Rate::overall(20, MINUTE), Some(true))
                .await
                .unwrap()
        );
        let kept = on.dump("n").await;
        assert_eq!((value(&kept), permits(&kept)), (Some("16"), vec![4]));
        assert_eq!(kept.config.as_ref().unwrap().data["keepAliveTime"], "0");
        assert!(
            ttls(&kept).iter().all(|ttl| is_about(*ttl, 2 * MINUTE)),
            "the TTL stays: {kept:#?}"
        );

        limiter
            .set_rate_args(Rate::overall(3, MINUTE), Some(true))
            .await
            .unwrap();
        assert_eq!(value(&on.dump("n").await), Some("0"), "not below 0");

        assert!(
            limiter
                .update_rate(Rate::overall(3, MINUTE), Some(false))
                .await
                .unwrap()
        );
        assert_eq!(value(&on.dump("n").await), None);

        assert!(limiter.try_acquire(3).await.unwrap());
        assert!(
            limiter
                .update_rate(Rate::per_client(3, MINUTE), Some(true))
                .await
                .unwrap()
        );
        assert_eq!(
            on.redis.keys("*").await.unwrap(),
            ["n"],
            "another type starts afresh"
        );
    })
    .await;
}
