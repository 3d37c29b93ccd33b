//! On a cluster the keys of all limiters of one decision must lie in one slot.

use redis_test::cluster::{RedisCluster, RedisClusterConfiguration};
use redisson_rate_limiter::{
    Error, FixedWindow, LeakyBucket, Limiter, RRateLimiter, Rate, RedissonClient, SlidingWindow,
    TokenBucket,
};

use crate::stage::{HOUR, SECOND};

#[tokio::test]
async fn other_mixes_of_tags_are_refused_before_anything_is_sent() {
    let cluster = RedisCluster::new(RedisClusterConfiguration::default());
    let urls: Vec<String> = cluster
        .iter_servers()
        .map(|node| format!("redis://{}", node.client_addr()))
        .collect();
    let client = RedissonClient::connect(&urls.join(",")).await.unwrap();
    let user = client.limiter(TokenBucket::new(2, 1)).unwrap();
    let address = client.limiter(FixedWindow::new(3, HOUR)).unwrap();
    let application = client.rate_limiter("{shop}:application");
    application.set_rate(Rate::overall(5, HOUR)).await.unwrap();

    let ask = async |user_key: &str, address_key: &str| {
        let shares = [
            user.share(user_key, 1)?,
            address.share(address_key, 1)?,
            application.share(1)?,
        ];
        Ok::<_, Error>(client.decide_all(shares).await?.is_granted())
    };
    let refused = ask("user:1", "{shop}:address").await;
    let Err(Error::InvalidName { reason, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("one hash tag"), "{reason}");
    assert!(ask("{shop}:user:1", "{shop}:address").await.unwrap());
    assert!(ask("{shop}:user:1", "{shop}:address").await.unwrap());
    assert!(!ask("{shop}:user:1", "{shop}:address").await.unwrap());
    assert_eq!(application.available_permits().await.unwrap(), 3);
}

#[tokio::test]
async fn a_key_whose_state_would_lie_in_several_slots_is_refused() {
    let cluster = RedisCluster::new(RedisClusterConfiguration::default());
    let url = cluster
        .iter_servers()
        .next()
        .map(|node| format!("redis://{}", node.client_addr()));
    let client = RedissonClient::connect(&url.unwrap()).await.unwrap();
    let leaky = client.limiter(LeakyBucket::new(5, 1, SECOND)).unwrap();
    let sliding = client
        .limiter(SlidingWindow::new(5, SECOND, SECOND / 10))
        .unwrap();
    let keyed = client
        .keyed_rate_limiter("k:", Rate::overall(1, HOUR))
        .unwrap();
    for bad in ["a}b", "{a", "x{}y"] {
        let limiters: [&dyn Limiter; 2] = [&leaky, &keyed];
        for limiter in limiters {
            let refused = limiter.decide(bad, 1).await;
            assert!(
                matches!(refused, Err(Error::InvalidName { .. })),
                "{bad} {refused:?}"
            );
        }
    }
    // All that a sliding window has stands beside its target's name.
    for good in ["a", "user:1", "a}b"] {
        let decision = sliding.decide(good, 1).await.unwrap();
        assert!(decision.is_granted());
    }
    for good in ["a", "user:1"] {
        assert!(
            leaky
                .decide(&format!("leaky:{good}"), 1)
                .await
                .unwrap()
                .is_granted()
        );
        assert!(keyed.decide(good, 1).await.unwrap().is_granted());
    }
}
