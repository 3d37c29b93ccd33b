//! A URL that needs a feature of this crate is refused with an error that names the feature.
//! `.ci/feature-sets` runs these tests with the feature `redis` alone, and without any.

#![cfg(all(not(feature = "cluster"), not(feature = "tls")))]

#[cfg(feature = "redis")]
mod support;

use redisson_rate_limiter::{Error, RedissonClient};
#[cfg(feature = "redis")]
use support::Server;

async fn refusal_of(urls: &str) -> String {
    let error = RedissonClient::connect(urls).await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    error.to_string()
}

#[cfg(not(feature = "redis"))]
#[tokio::test]
async fn a_server_needs_the_feature_redis() {
    for urls in ["redis://localhost", "redis://a:7000,redis://b:7001", ""] {
        let error = refusal_of(urls).await;
        assert!(error.contains("feature `redis`"), "{error}");
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn several_nodes_of_a_cluster_need_the_feature_cluster() {
    let error = refusal_of("redis://127.0.0.1:7000,redis://127.0.0.1:7001").await;
    assert!(error.contains("feature `cluster`"), "{error}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn one_node_of_a_cluster_needs_the_feature_cluster() {
    let node = Server::start_with(&["--cluster-enabled", "yes"]);
    let error = refusal_of(&node.url()).await;
    assert!(error.contains("feature `cluster`"), "{error}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_node_of_a_cluster_that_starts_later_needs_the_feature_cluster() {
    let port = support::ports::reserve_for_node();
    let builder = RedissonClient::builder().require_server(false);
    let client = builder.connect(&format!("redis://127.0.0.1:{port}")).await;
    let client = client.unwrap();
    let _node = Server::start_at(port, &["--cluster-enabled", "yes"]);
    let error = loop {
        match client.ping().await.unwrap_err() {
            Error::StoreUnavailable { .. } => {} // not yet connected
            error => break error,
        }
    };
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    assert!(error.to_string().contains("feature `cluster`"), "{error}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_tls_url_needs_the_feature_tls() {
    for url in [
        "rediss://localhost",
        "rediss-sentinel://localhost/orders",
        "rediss://localhost:7000,rediss://localhost:7001",
    ] {
        let error = refusal_of(url).await;
        assert!(error.contains("feature `tls`"), "{error}");
    }
}
