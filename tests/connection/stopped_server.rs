//! A server that is stopped for a while, or refuses writes.

use tokio::time::sleep;

use crate::load::{Load, ms};
use crate::support::Server;

#[tokio::test]
async fn a_stopped_process_that_continues_costs_no_acquire() {
    let server = Server::start();
    let load = Load::of_a_client(&server.url()).await;
    server.signal("STOP");
    sleep(ms(1_500)).await; // it stands still for this long
    server.signal("CONT");
    load.until_granted(20).await;
    load.end_taken_once(&mut server.connection().await).await;
}

#[tokio::test]
async fn paused_clients_cost_no_acquire() {
    paused_cost_no_acquire("ALL").await;
}

#[tokio::test]
async fn paused_writes_cost_no_acquire() {
    paused_cost_no_acquire("WRITE").await;
}

async fn paused_cost_no_acquire(what: &str) {
    let server = Server::start();
    let load = Load::of_a_client(&server.url()).await;
    let mut raw = server.connection().await;
    let mut pause = redis::cmd("CLIENT");
    pause.arg("PAUSE").arg(1_500).arg(what);
    let _: () = pause.query_async(&mut raw).await.unwrap();
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn a_primary_that_lacks_its_replicas_for_a_while_costs_no_acquire() {
    let server = Server::start();
    let load = Load::of_a_client(&server.url()).await;
    let mut raw = server.connection().await;
    for (replicas, lasts) in [(1, 500), (0, 0)] {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("min-replicas-to-write").arg(replicas);
        let _: () = set.query_async(&mut raw).await.unwrap();
        sleep(ms(lasts)).await; // it refuses all writes for this long
    }
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}
