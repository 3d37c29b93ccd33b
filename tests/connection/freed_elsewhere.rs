//! The messages about permits that other clients freed, when the limiter moves to another server.

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient, Result};
use tokio::task::JoinHandle;

use crate::keys;
use crate::load::{HOUR, patient_client};
use crate::sentinels::{Sentinel, acknowledged_by_replica, replica_of};
use crate::stopped_time::{StoppedTime, at_once, until};
use crate::support::cluster::Cluster;
use crate::support::{Server, without_timeouts};

const NAME: &str = "limiter";
/// The hash slot of its keys.
const SLOT: u16 = 2634;

/// A waiter for a permit of the limiter, and another client's handle on it.
async fn waiting(url: &str) -> (JoinHandle<Result<()>>, RateLimiter, RedissonClient) {
    let other = patient_client(url).await.rate_limiter(NAME);
    other.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(other.try_acquire(10).await.unwrap());
    let client = patient_client(url).await;
    let limiter = client.rate_limiter(NAME);
    let waiter = tokio::spawn(async move { limiter.acquire(1).await });
    (waiter, other, client)
}

async fn until_subscribed(server: &Server) {
    let client = redis::Client::open(server.url()).unwrap();
    until("somebody has subscribed", async || {
        // A server that becomes a primary closes its connections, also one that is just being made.
        let config = without_timeouts();
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let Ok(mut connection) = connection.await else {
            return false;
        };
        let mut command = redis::cmd("PUBSUB");
        command.arg("SHARDNUMSUB").arg("{limiter}:freed");
        let answer = command.query_async(&mut connection).await;
        matches!(answer, Ok::<(String, u64), _>((_, 1)))
    })
    .await;
}

/// Waits until the waiter has called this server, which nobody else calls: its client is connected
/// to it.
async fn until_asked(server: &Server) {
    let raw = server.connection().await;
    until("the waiter has asked", async || {
        keys::calls(&mut raw.clone(), "evalsha").await > 0
    })
    .await;
}

async fn assert_is_told(waiter: JoinHandle<Result<()>>, other: &RateLimiter) {
    let _stopped = StoppedTime::stop();
    other.release(10).await.unwrap();
    at_once(waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_waiter_is_told_after_a_failover_by_the_new_primary() {
    let primary = Server::start();
    let replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    let (waiter, other, _client) = waiting(&sentinel.url()).await;
    until_subscribed(&primary).await;
    acknowledged_by_replica(&primary).await;
    primary.signal("KILL");
    until_subscribed(&replica).await;
    until_asked(&replica).await;
    assert!(other.exists().await.unwrap());
    assert_is_told(waiter, &other).await;
}

#[tokio::test]
async fn a_waiter_is_told_by_the_node_that_its_slot_moved_to() {
    let cluster = Cluster::start();
    let urls = cluster.urls().join(",");
    let (waiter, other, _client) = waiting(&urls).await;
    let mut nodes = Vec::new();
    for node in cluster.nodes() {
        let mut raw = node.connection().await;
        let mut command = redis::cmd("CLUSTER");
        let id: String = command.arg("MYID").query_async(&mut raw).await.unwrap();
        let serves = redis::cmd("EXISTS").arg(NAME).exec_async(&mut raw).await;
        nodes.push((raw, id, node, serves.is_ok()));
    }
    nodes.sort_by_key(|(.., serves)| *serves);
    let (mut from, from_id, source, _) = nodes.pop().unwrap();
    let (mut to, to_id, target, _) = nodes.pop().unwrap();
    until_subscribed(source).await;
    let slot = |words: [&str; 2]| {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SETSLOT").arg(SLOT).arg(&words);
        command
    };
    slot(["IMPORTING", &from_id])
        .exec_async(&mut to)
        .await
        .unwrap();
    slot(["MIGRATING", &to_id])
        .exec_async(&mut from)
        .await
        .unwrap();
    let mut migrate = redis::cmd("MIGRATE");
    migrate
        .arg("127.0.0.1")
        .arg(target.port())
        .arg("")
        .arg(0)
        .arg(5_000)
        .arg("KEYS");
    migrate.arg(&[NAME, "{limiter}:value", "{limiter}:permits"]);
    migrate.exec_async(&mut from).await.unwrap();
    for node in [&mut to, &mut from] {
        slot(["NODE", &to_id]).exec_async(node).await.unwrap();
    }
    until_subscribed(target).await;
    until_asked(target).await;
    assert!(other.exists().await.unwrap());
    assert_is_told(waiter, &other).await;
}
