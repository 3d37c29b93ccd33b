//! A primary that Sentinels name, and its successor after a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redisson_rate_limiter::{Error, Event, FixedWindow, RedissonClient};

use crate::load::{Load, PATIENT, ample, at_last, ms, patient_client};
use crate::sentinels::{Sentinel, acknowledged_by_replica, replica_of, stop_once_replicated};
use crate::support::{Server, ports};
use tokio::task::JoinSet;
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
    // What the primary grants after the failover began would be lost: it holds the calls until it
    // is a replica.
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
async fn requests_on_many_keys_share_calls_before_and_after_a_failover() {
    let primary = Server::start();
    let _replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    let shared = Arc::new(AtomicUsize::new(0));
    let connected = Arc::new(AtomicUsize::new(0));
    let seen = [&shared, &connected].map(Arc::clone);
    let builder = RedissonClient::builder()
        .response_timeout(PATIENT)
        .on_event(move |event| match event {
            Event::Call {
                script: "multi_check",
                ..
            } => drop(seen[0].fetch_add(1, Ordering::Relaxed)),
            Event::Connected { .. } => drop(seen[1].fetch_add(1, Ordering::Relaxed)),
            _ => {}
        });
    let client = builder.connect(&sentinel.url()).await.unwrap();
    let policy = FixedWindow::new(1_000_000, Duration::from_secs(3_600));
    let limiter = client.policy_limiter(policy).unwrap();
    let ask_until = async |what: &str, count: &AtomicUsize, least: usize| {
        let asking = async {
            while count.load(Ordering::Relaxed) < least {
                let mut all = JoinSet::new();
                for target in 0..64 {
                    let limiter = limiter.clone();
                    all.spawn(async move { limiter.check(&format!("t{target}"), 1).await });
                }
                all.join_all().await; // whatever their results
            }
        };
        at_last(what, asking).await;
    };
    ask_until("calls are shared", &shared, 1).await;
    acknowledged_by_replica(&primary).await;
    let failover = ["SENTINEL", "FAILOVER", "orders"];
    while sentinel.ask(&failover).await.is_err() {
        tokio::time::sleep(ms(10)).await;
    }
    sentinel.names_another_than(&primary).await;
    ask_until("another connection", &connected, 2).await;
    shared.store(0, Ordering::Relaxed);
    ask_until("calls are shared again", &shared, 1).await;
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
