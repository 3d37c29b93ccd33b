//! Lost keys, and a value above the rate.

use super::*;

#[tokio::test]
async fn a_lost_key_is_not_made_good() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(5, MINUTE))
            .await
            .unwrap();
        assert!(limiter.try_acquire(4).await.unwrap());
        on.redis.del("{n}:permits").await.unwrap();
        let error = limiter.try_acquire(2).await.unwrap_err();
        assert!(
            error
                .message
                .contains("attempt to perform arithmetic on a nil value"),
            "{error}"
        );

        assert!(limiter.try_acquire(1).await.unwrap());
        on.redis.del("{n}:value").await.unwrap();
        assert!(limiter.try_acquire(5).await.unwrap(), "full again");
        assert_eq!(permits(&on.dump("n").await), [1, 5]);
    })
    .await;
}

/// With 9 of 10 left, 3 more come back: too many, for 4 + 2 are out.
#[tokio::test]
async fn what_comes_back_above_the_rate_is_counted_anew() {
    each(Version::ALL, async |mut on| {
        let limiter = on.java.limiter("n");
        limiter
            .try_set_rate(Rate::overall(10, MINUTE))
            .await
            .unwrap();
        on.redis.set("{n}:value", 9).await.unwrap();
        for (ago, permits) in [(MINUTE, 3), (2000, 4), (1000, 2)] {
            on.redis
                .zadd(
                    "{n}:permits",
                    member(permits as u8, permits),
                    epoch_millis(ago),
                )
                .await
                .unwrap();
        }
        assert!(limiter.try_acquire(1).await.unwrap());
        // Up to 3.34 each member counted as one permit.
        let left = if on.version < Version::V3_36_0 {
            "7"
        } else {
            "3"
        };
        let after = on.dump("n").await;
        assert_eq!(
            (value(&after), permits(&after)),
            (Some(left), vec![4, 2, 1])
        );
    })
    .await;
}
