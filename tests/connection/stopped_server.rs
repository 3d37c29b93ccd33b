//! A server that is stopped for a while.

use tokio::time::sleep;

use crate::load::{Load, ample, ms, patient_client};
use crate::support::Server;

#[tokio::test]
async fn a_stopped_process_that_continues_costs_no_acquire() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    server.signal("STOP");
    sleep(ms(1_500)).await; // for so long it stands still
    server.signal("CONT");
    load.until_granted(20).await;
    load.end_without_errors().await;
}

#[tokio::test]
async fn paused_clients_cost_no_acquire() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    let mut raw = server.connection().await;
    let mut pause = redis::cmd("CLIENT");
    pause.arg("PAUSE").arg(1_500).arg("ALL");
    let _: () = pause.query_async(&mut raw).await.unwrap();
    load.until_granted(20).await;
    load.end_without_errors().await;
}
