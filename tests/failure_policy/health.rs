//! What a client reports about its servers, and what they answer to a ping.

use redisson_rate_limiter::{BreakerState, Error, FailurePolicy, RedissonClient};
use tokio::time::{sleep, timeout};

use crate::fixture::{AT_LAST, client, connect, kill, limiter, ms, restart, until_by_policy};
use crate::support::{Server, cluster::Cluster};

/// The server, the state of its breaker, and why it was opened, of a client with one server.
fn health(client: &RedissonClient) -> (String, BreakerState, Option<Error>) {
    let health = client.health();
    let [server] = &health.servers[..] else {
        panic!("{health:?}");
    };
    assert_eq!(health.is_healthy(), server.breaker == BreakerState::Closed);
    (
        server.server.to_string(),
        server.breaker,
        server.last_cause.clone(),
    )
}

async fn until_answered(client: &RedissonClient) {
    let asking = async {
        while client.ping().await.is_err() {
            sleep(ms(5)).await;
        }
    };
    timeout(AT_LAST, asking).await.unwrap();
}

#[tokio::test]
async fn the_health_of_a_server_is_its_breakers_state_and_why_it_opened_last() {
    let server = Server::start();
    let client = client(&server.url(), FailurePolicy::Deny).await;
    let limiter = limiter(&client, 1_000).await;
    let address = format!("127.0.0.1:{}", server.port());
    let (name, breaker, cause) = health(&client);
    assert_eq!((name, breaker), (address.clone(), BreakerState::Closed));
    assert!(cause.is_none());
    client.ping().await.unwrap();

    let port = kill(server);
    let _ = until_by_policy(&limiter).await;
    let (_, breaker, cause) = health(&client);
    assert_eq!(breaker, BreakerState::Open);
    let cause = cause.unwrap().to_string();
    assert!(
        cause.contains(&address) && cause.contains("refused"),
        "{cause}"
    );

    let _server = restart(port);
    until_answered(&client).await;
    let (_, breaker, last_cause) = health(&client);
    assert_eq!(breaker, BreakerState::Closed);
    assert_eq!(last_cause.unwrap().to_string(), cause, "it stays");
}

#[tokio::test]
async fn a_ping_finds_a_server_unavailable_and_then_back_without_another_call() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(ms(300));
    let client = connect(&server.url(), builder).await;
    let address = format!("127.0.0.1:{}", server.port());
    let port = kill(server);
    let is_down = async || match client.ping().await {
        Ok(()) => false,
        Err(Error::StoreUnavailable { server, .. }) => {
            assert_eq!(server.as_deref(), Some(&*address));
            true
        }
        Err(_lost) => false,
    };
    while !is_down().await {}
    assert!(!client.health().is_healthy());
    let _server = restart(port);
    until_answered(&client).await;
    assert!(client.health().is_healthy());
}

#[tokio::test]
async fn on_a_cluster_each_primary_is_asked_and_has_a_health_of_its_own() {
    let cluster = Cluster::start();
    let builder = RedissonClient::builder().response_timeout(ms(2_000));
    let client = connect(&cluster.urls().join(","), builder).await;
    client.ping().await.unwrap();
    assert_eq!(client.health().servers.len(), cluster.urls().len());
    let lost = &cluster.nodes()[1];
    lost.signal("KILL");
    let lost = format!("127.0.0.1:{}", lost.port());
    let error = loop {
        if let Err(error @ Error::StoreUnavailable { .. }) = client.ping().await {
            break error.to_string();
        }
    };
    assert!(error.contains(&lost), "{error}");
    let unhealthy: Vec<_> = client
        .health()
        .servers
        .iter()
        .filter(|it| it.breaker != BreakerState::Closed)
        .map(|it| it.server.to_string())
        .collect();
    assert_eq!(unhealthy, [lost]);
}
