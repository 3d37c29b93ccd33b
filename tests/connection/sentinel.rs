//! A primary that Sentinels name, and its successor after a failover.

use redisson_rate_limiter::{Error, RedissonClient};

use crate::load::{Load, ample, ms, patient_client};
use crate::sentinels::{Sentinel, acknowledged_by_replica, replica_of, stop_once_replicated};
use crate::support::{Server, ports};
use tokio::time::Instant;

#[tokio::test]
async fn a_failover_after_the_primary_was_killed_costs_no_acquire() {
    let primary = Server::start();
    let replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    // The first Sentinel of the URL is not there.
    let nobody = ports::reserve();
    let url = format!(
        "redis-sentinel://127.0.0.1:{nobody},127.0.0.1:{}/orders",
        sentinel.port
    );
    let client = patient_client(&url).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    stop_once_replicated(&primary, &load).await;
    primary.signal("KILL");
    load.until_granted(20).await;
    load.end_taken_once(&mut replica.connection().await).await;
}

#[tokio::test]
async fn a_failover_by_hand_costs_no_acquire() {
    let primary = Server::start();
    let replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    let load = Load::of_a_client(&sentinel.url()).await;
    // What the primary grants after the failover began would be lost: it holds the calls until it is a replica.
    let paused = load.pause().await;
    acknowledged_by_replica(&primary).await;
    let mut hold = redis::cmd("CLIENT");
    let hold = hold.arg("PAUSE").arg(60_000).arg("WRITE");
    hold.exec_async(&mut primary.connection().await)
        .await
        .unwrap();
    drop(paused);
    // It may have to try the replica first.
    while sentinel
        .ask(&["SENTINEL", "FAILOVER", "orders"])
        .await
        .is_err()
    {
        tokio::time::sleep(ms(10)).await;
    }
    sentinel.names_another_than(&primary).await;
    load.until_granted(20).await;
    load.end_taken_once(&mut replica.connection().await).await;
}

#[tokio::test]
async fn new_connections_too_use_the_last_primary_while_no_sentinel_answers() {
    let primary = Server::start();
    let sentinel = Sentinel::of(&primary).await;
    let load = Load::of_a_client(&sentinel.url()).await;
    drop(sentinel);
    let mut raw = primary.connection().await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal");
    let _: i64 = kill.query_async(&mut raw).await.unwrap();
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_an_error() {
    let primary = Server::start();
    let sentinel = Sentinel::of(&primary).await;
    let url = format!("redis-sentinel://127.0.0.1:{}/other", sentinel.port);
    let error = RedissonClient::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_primary_that_stands_still_and_is_replaced_costs_no_acquire() {
    let primary = Server::start();
    let replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    let load = Load::of_a_client(&sentinel.url()).await;
    stop_once_replicated(&primary, &load).await;
    sentinel.names_another_than(&primary).await;
    let done = Instant::now();
    load.until_granted(20).await;
    println!("grants again {:?} after the failover", done.elapsed());
    load.end_taken_once(&mut replica.connection().await).await;
}
