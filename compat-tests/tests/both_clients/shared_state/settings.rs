//! Rates, their changes, and deletion.

use super::*;

#[tokio::test]
async fn a_rate_set_by_one_holds_for_the_other() {
    Both::each(Version::ALL, async |mut both| {
        for by in Peer::ALL {
            let name = format!("{by:?}");
            let limiter = both.limiter(&name);
            let first = Rate::overall(5, MINUTE);
            assert!(limiter.try_set_rate(by, first).await);
            for peer in Peer::ALL {
                assert!(
                    !limiter
                        .try_set_rate(peer, Rate::per_client(9, 2 * MINUTE))
                        .await
                );
            }
            assert_eq!(limiter.rust.config().await.unwrap(), Some(first));
            let config = Config {
                rate_type: redisson::RateType::Overall,
                rate: 5,
                interval: MINUTE_MS,
            };
            assert_eq!(limiter.java.config().await.unwrap(), config);
            assert_eq!(ttls(&both.dump(&name).await), [None; 3]);

            for peer in Peer::ALL {
                assert!(limiter.try_acquire(peer, 2).await);
            }
            limiter.set_rate(by, Rate::overall(7, 2 * MINUTE)).await;
            let reset = both.dump(&name).await;
            let mut fields = reset.config.as_ref().unwrap().data.clone();
            // Redisson before 3.38 does not know the field; what is there stays.
            assert_eq!(fields.remove("keepAliveTime").unwrap_or("0".into()), "0");
            let expected = [("rate", "7"), ("interval", "120000"), ("type", "0")];
            let expected = expected.map(|(field, value)| (field.into(), value.into()));
            assert_eq!(fields, BTreeMap::from(expected));
            assert_eq!((value(&reset.overall), granted(&reset)), (None, vec![]));
            assert_eq!(limiter.available_permits().await, 7);
        }
    })
    .await;
}

#[tokio::test]
async fn an_update_keeps_what_both_have_in_use() {
    use redisson_rate_limiter::PermitsInUse::{Keep, Reset};

    Both::each(with(Version::has_update_rate), async |mut both| {
        let limiter = both.limiter("n");
        let rate = |permits| Rate::overall(permits, MINUTE);
        let java_rate = |permits| redisson::Rate::of(&rate(permits));
        assert!(!limiter.rust.update_rate(rate(5), Keep).await.unwrap());
        assert!(limiter.try_set_rate(Peer::Java, rate(10)).await);
        assert!(limiter.try_acquire(Peer::Java, 3).await);
        assert!(limiter.try_acquire(Peer::Rust, 4).await);

        assert!(limiter.rust.update_rate(rate(20), Keep).await.unwrap());
        assert_eq!(limiter.available_permits().await, 13);
        assert!(
            limiter
                .java
                .update_rate(java_rate(15), Some(true))
                .await
                .unwrap()
        );
        assert_eq!(limiter.available_permits().await, 8);
        limiter.rust.set_rate_with(rate(12), Keep).await.unwrap();
        assert_eq!(limiter.available_permits().await, 5);
        let kept = both.dump("n").await;
        assert_eq!(
            (value(&kept.overall), granted(&kept)),
            (Some("5"), vec![3, 4])
        );

        assert!(
            limiter
                .java
                .update_rate(java_rate(12), Some(false))
                .await
                .unwrap()
        );
        assert_eq!(limiter.available_permits().await, 12);
        assert!(limiter.try_acquire(Peer::Java, 2).await);
        limiter.rust.set_rate_with(rate(12), Reset).await.unwrap();
        assert_eq!(limiter.available_permits().await, 12);

        assert!(limiter.try_acquire(Peer::Rust, 2).await);
        let per_client = redisson::Rate::per_client(6, MINUTE_MS);
        assert!(
            limiter
                .java
                .update_rate(per_client, Some(true))
                .await
                .unwrap()
        );
        assert_eq!(
            both.redis.keys("*").await.unwrap(),
            ["n"],
            "another type starts afresh"
        );
        assert_eq!(limiter.available_permits().await, 6);
    })
    .await;
}

#[tokio::test]
async fn what_one_deletes_is_gone_for_the_other() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        for by in Peer::ALL {
            assert!(
                limiter
                    .try_set_rate(Peer::Rust, Rate::overall(5, MINUTE))
                    .await
            );
            assert!(limiter.try_acquire(Peer::Java, 2).await);
            assert!(limiter.try_acquire(Peer::Rust, 2).await);
            assert!(limiter.java.is_exists().await.unwrap());
            match by {
                Peer::Java => assert!(limiter.java.delete().await.unwrap()),
                Peer::Rust => assert!(limiter.rust.delete().await.unwrap()),
            }
            assert!(both.redis.keys("*").await.unwrap().is_empty());
            assert!(!limiter.java.is_exists().await.unwrap());
            assert!(!limiter.rust.exists().await.unwrap());
            assert!(!limiter.java.delete().await.unwrap());
            assert!(!limiter.rust.delete().await.unwrap());
        }
    })
    .await;
}
