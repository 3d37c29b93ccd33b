//! Redis goes away under a lease.

use std::time::Duration;

use redisson_rate_limiter::{FailurePolicy, LimiterOptions, RedissonClient};
use tokio::time::timeout;

use crate::fixture::Fixture;
use crate::support::Server;

#[tokio::test]
async fn a_lease_outlives_an_outage_until_it_is_used_up() {
    let server = Server::start();
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Deny);
    let client = RedissonClient::builder()
        .default_options(options)
        .connect(&server.url())
        .await
        .unwrap();
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    let in_leases = fixture.in_leases().await;
    server.signal("KILL");
    drop(server);
    for _ in 0..in_leases - 2 {
        let decision = fixture.leased.check(1).await.unwrap();
        assert!(decision.is_granted() && !decision.is_by_failure_policy());
    }
    while fixture.client.health().is_healthy() {
        let _ = fixture.client.rate_limiter("other").check(1).await;
    }
    fixture.leased.acquire(1).await.unwrap();
    assert!(fixture.leased.try_acquire(1).await.unwrap());
    let decision = fixture.leased.check(1).await.unwrap();
    assert!(!decision.is_granted() && decision.is_by_failure_policy());
}

#[tokio::test]
async fn in_an_outage_those_in_the_queue_are_served_by_the_lease_in_their_order() {
    let server = Server::start();
    let options = LimiterOptions::new().failure_policy(FailurePolicy::Wait);
    let client = RedissonClient::builder()
        .default_options(options)
        .connect(&server.url())
        .await
        .unwrap();
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    server.signal("KILL");
    drop(server);
    let other = fixture.client.rate_limiter("other");
    while fixture.client.health().is_healthy() {
        let _ = timeout(Duration::from_millis(1), other.try_acquire(1)).await;
    }
    let mut first = Box::pin(fixture.leased.acquire(5_000));
    let mut second = Box::pin(fixture.leased.acquire(1));
    let at_once = Duration::from_millis(30);
    assert!(timeout(at_once, &mut first).await.is_err());
    assert!(timeout(at_once, &mut second).await.is_err(), "it is behind");
    drop(first);
    timeout(Duration::from_secs(20), second)
        .await
        .expect("the lease has it")
        .unwrap();
}
