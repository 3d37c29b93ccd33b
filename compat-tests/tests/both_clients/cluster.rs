//! Redisson and this crate on one cluster of three nodes.

use std::{collections::HashSet, time::Duration};

use compat_tests::{
    Cluster, Pair, Peer,
    dump::{self, State},
    redisson::{PATIENT, Redisson, Servers, Version},
};
use redis::cluster::ClusterClient;
use redisson_rate_limiter::{Error, Rate, RedissonClient};

const MINUTE: Duration = Duration::from_secs(60);

/// With and without a tag; they lie on all three nodes.
const NAMES: [&str; 6] = [
    "orders",
    "a b:c",
    "tagged{orders}:api",
    "{t}",
    "x{ü}",
    "{user}:{1}",
];
/// No other keys can be in their slots.
const UNUSABLE: [&str; 5] = ["a{b", "a}b", "{}", "x{}y", ""];

#[tokio::test]
async fn a_cluster_serves_limiters_of_all_clients_and_of_each() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let client = ClusterClient::new(urls.clone()).unwrap();
    let mut redis = client.get_async_connection().await.unwrap();
    let mut nodes = HashSet::new();
    for name in NAMES {
        let mut slot = redis::cmd("CLUSTER");
        let slot: u32 = slot
            .arg("KEYSLOT")
            .arg(name)
            .query_async(&mut redis)
            .await
            .unwrap();
        nodes.insert(slot * 3 / 16384);
    }
    assert_eq!(nodes.len(), 3, "names on all nodes");

    let rust = RedissonClient::connect(&urls.join(",")).await.unwrap();
    for version in [Version::V3_17_0, Version::V4_7_0] {
        println!("Redisson {version}");
        let java = Redisson::shared(version)
            .open(Servers::Cluster(&urls), &PATIENT)
            .await
            .unwrap();
        for (place, name) in NAMES.into_iter().enumerate() {
            let limiter = Pair {
                java: java.limiter(name),
                rust: rust.rate_limiter(name),
            };
            let [first, second] = if place % 2 == 0 {
                [Peer::Java, Peer::Rust]
            } else {
                [Peer::Rust, Peer::Java]
            };

            assert!(
                limiter.try_set_rate(first, Rate::overall(10, MINUTE)).await,
                "{name}"
            );
            assert!(!limiter.try_set_rate(second, Rate::overall(9, MINUTE)).await);
            for (by, left) in [(first, 7), (second, 4), (first, 1)] {
                assert!(limiter.try_acquire(by, 3).await, "{name}, {by:?}");
                assert_eq!(limiter.available_permits().await, left, "{name}, {by:?}");
            }
            assert!(!limiter.try_acquire(second, 2).await);
            let ids = [java.id.as_str(), rust.id()];
            let state = dump::read(&mut redis, name, &ids).await.overall;
            assert_eq!(state.value.unwrap().data, "1", "{name}");
            assert_eq!(state.permits.unwrap().data.len(), 3, "{name}");

            limiter.set_rate(second, Rate::per_client(5, MINUTE)).await;
            assert!(limiter.try_acquire(first, 5).await, "{name}");
            assert!(limiter.try_acquire(second, 4).await, "{name}");
            assert!(!limiter.try_acquire(first, 1).await, "{name}");
            let clients = dump::read(&mut redis, name, &ids).await.clients;
            let mut values: Vec<_> = clients
                .into_iter()
                .map(|state: State<_>| state.value.unwrap().data)
                .collect();
            values.sort();
            assert_eq!(values, ["0", "1"], "{name}");

            assert!(limiter.java.delete().await.unwrap());
            assert!(!limiter.rust.exists().await.unwrap());
            // What is left of the other client.
            assert!(limiter.rust.delete().await.unwrap());
        }
        for name in UNUSABLE {
            let error = java.limiter(name).try_acquire(1).await.unwrap_err();
            assert!(error.message.contains("CROSSSLOT"), "{name:?}: {error}");
            let error = rust.rate_limiter(name).try_acquire(1).await.unwrap_err();
            assert!(
                matches!(error, Error::InvalidName { .. }),
                "{name:?}: {error:?}"
            );
        }
    }
}
