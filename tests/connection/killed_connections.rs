//! Connections that the server closes again and again, and a server that is killed and restarts.

use tokio::time::sleep;

use crate::load::{Load, ample, ms, patient_client};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_killed_every_few_ms_cost_no_acquire() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    let mut raw = server.connection().await;
    for _ in 0..100 {
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        let _: i64 = kill.query_async(&mut raw).await.unwrap();
        sleep(ms(15)).await;
    }
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn a_server_that_is_killed_and_starts_again_costs_no_acquire() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let durable = [
        "--dir",
        folder,
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ];
    let mut server = Server::start_with(&durable);
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    for _ in 0..2 {
        load.until_granted(20).await;
        let port = server.port();
        server.signal("KILL");
        drop(server);
        sleep(ms(300)).await; // nobody listens for this long
        server = Server::start_at(port, &durable);
        load.until_granted(20).await;
    }
    load.end_taken_once(&mut server.connection().await).await;
}

#[tokio::test]
async fn garbled_answers_cost_no_acquire() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    for _ in 0..5 {
        load.until_granted(20).await;
        proxy.next("EVALSHA", Fate::Garbled);
    }
    load.until_granted(20).await;
    load.end_taken_once(&mut server.connection().await).await;
}
