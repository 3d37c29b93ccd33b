//! A server that is busy with another client's script, or has lost ours.

use redis::RedisResult;
use tokio::time::sleep;

use crate::load::{Load, ample, ms, patient_client};
use crate::support::Server;

#[tokio::test]
async fn a_busy_script_costs_no_acquire() {
    let server = Server::start_with(&["--busy-reply-threshold", "50"]);
    let load = Load::of_a_client(&server.url()).await;
    let mut busy = server.connection().await;
    let mut raw = server.connection().await;
    let script = tokio::spawn(async move {
        let mut script = redis::cmd("EVAL");
        script.arg("while true do end").arg(0);
        script.query_async::<()>(&mut busy).await
    });
    loop {
        let answer: RedisResult<()> = redis::cmd("PING").query_async(&mut raw).await;
        if answer.is_err_and(|error| error.code() == Some("BUSY")) {
            break;
        }
    }
    sleep(ms(1_000)).await; // each call is answered with BUSY for this long
    let mut kill = redis::cmd("SCRIPT");
    let _: () = kill.arg("KILL").query_async(&mut raw).await.unwrap();
    assert!(script.await.unwrap().is_err());
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn forgotten_scripts_cost_no_acquire() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    let mut raw = server.connection().await;
    for _ in 0..20 {
        load.until_granted(5).await;
        let mut flush = redis::cmd("SCRIPT");
        let _: () = flush.arg("FLUSH").query_async(&mut raw).await.unwrap();
    }
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}
