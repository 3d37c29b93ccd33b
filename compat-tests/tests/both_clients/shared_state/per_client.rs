//! Rates per client.

use super::*;

#[tokio::test]
async fn per_client_each_has_the_rate_for_itself() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter("n");
        let rate = Rate::per_client(5, MINUTE);
        assert!(limiter.try_set_rate(Peer::Java, rate).await);
        assert_eq!(limiter.rust.config().await.unwrap(), Some(rate));
        assert!(limiter.try_acquire(Peer::Java, 4).await);
        assert!(limiter.try_acquire(Peer::Rust, 5).await);
        assert!(!limiter.try_acquire(Peer::Java, 2).await);
        assert_eq!(limiter.java.available_permits().await.unwrap(), 1);
        assert_eq!(limiter.rust.available_permits().await.unwrap(), 0);

        let dump = both.dump("n").await;
        assert_eq!(
            dump.overall,
            State {
                value: None,
                permits: None
            }
        );
        let [java, rust] = &dump.clients[..] else {
            panic!("two clients: {dump:?}")
        };
        assert_eq!((value(java), permits(&members(java)[0])), (Some("1"), 4));
        assert_eq!((value(rust), permits(&members(rust)[0])), (Some("0"), 5));
        let mut names = both.redis.keys("*").await.unwrap();
        names.sort();
        let mut expected = vec!["n".to_owned()];
        for id in [&both.java.id, both.rust.id()] {
            expected.extend([format!("{{n}}:permits:{id}"), format!("{{n}}:value:{id}")]);
        }
        expected.sort();
        assert_eq!(names, expected);

        // A client's delete leaves the other client's own keys.
        assert!(limiter.rust.delete().await.unwrap());
        let left = both.dump("n").await;
        assert_eq!((left.config, &left.clients[0]), (None, java));
    })
    .await;
}

/// A process that takes over from a Java one by its id takes over its permits.
#[tokio::test]
async fn a_client_with_anothers_id_has_its_permits() {
    Both::each(Version::ALL, async |both| {
        let heir = redisson_rate_limiter::RedissonClient::builder()
            .client_id(&both.java.id)
            .connect(&both.server.url())
            .await
            .unwrap();
        let (java, heir) = (both.java.limiter("n"), heir.rate_limiter("n"));
        assert!(
            heir.try_set_rate(Rate::per_client(5, MINUTE))
                .await
                .unwrap()
        );
        assert!(java.try_acquire(3).await.unwrap());
        assert_eq!(heir.available_permits().await.unwrap(), 2);
        assert!(heir.try_acquire(2).await.unwrap());
        assert!(!java.try_acquire(1).await.unwrap());
    })
    .await;
}
