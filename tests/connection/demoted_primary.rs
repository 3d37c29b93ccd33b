//! A primary that becomes a replica while it is in use.

use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::load::{Load, ample, at_last, ms, patient_client, taken};
use crate::proxy::Proxy;
use crate::sentinels::acknowledged_by_replica;
use crate::support::Server;

async fn replica_of(raw: &mut MultiplexedConnection, host: &str, port: &str) {
    let mut command = redis::cmd("REPLICAOF");
    let _: () = command.arg(host).arg(port).query_async(raw).await.unwrap();
}

#[tokio::test]
async fn a_demotion_that_is_taken_back_costs_no_acquire() {
    let server = Server::start();
    let load = Load::of_a_client(&server.url()).await;
    let mut raw = server.connection().await;
    replica_of(&mut raw, "127.0.0.1", "1").await; // nobody listens there, so it keeps its data
    sleep(ms(500)).await; // it refuses all writes for this long
    replica_of(&mut raw, "NO", "ONE").await;
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn a_replica_is_asked_for_its_role_and_gets_no_call_until_it_is_a_primary() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    let mut raw = server.connection().await;
    replica_of(&mut raw, "127.0.0.1", "1").await;
    proxy.take_names();
    let call = tokio::spawn(async move { limiter.try_acquire(1).await });
    let mut names = Vec::new();
    let count = |names: &[String], name| names.iter().filter(|it| **it == name).count();
    let asked = async {
        while count(&names, "ROLE") < 3 {
            names.extend(proxy.take_names());
            sleep(ms(5)).await;
        }
    };
    at_last("it is asked for its role", asked).await;
    assert_eq!(count(&names, "EVALSHA"), 1, "{names:?}");
    replica_of(&mut raw, "NO", "ONE").await;
    assert!(call.await.unwrap().unwrap());
    names.extend(proxy.take_names());
    assert_eq!(count(&names, "EVALSHA"), 2, "{names:?}");
    assert_eq!(taken(&mut raw, "limiter").await, 2);
}

#[tokio::test]
async fn another_primary_behind_the_same_address_is_found() {
    let (first, second) = (Server::start(), Server::start());
    let proxy = Proxy::to(first.port()).await;
    let client = patient_client(&proxy.url()).await;
    let limiter = ample(&client, "limiter").await;
    let (mut first_raw, mut second_raw) = (first.connection().await, second.connection().await);
    replica_of(&mut second_raw, "127.0.0.1", &first.port().to_string()).await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    let paused = load.pause().await;
    acknowledged_by_replica(&first).await;

    replica_of(&mut second_raw, "NO", "ONE").await;
    proxy.lead_to(second.port());
    replica_of(&mut first_raw, "127.0.0.1", &second.port().to_string()).await;
    drop(paused);
    load.until_granted(20).await;
    load.end_taken_once(&mut second_raw).await;
}
