//! A server that is up but not ready, and one that has lost its data.

use std::thread;

use redisson_rate_limiter::{Error, Rate};

use crate::keys;
use crate::load::{HOUR, ample, patient_client, taken};
use crate::support::Server;

/// The number of keys. With a pause for each, loading them takes about a second.
const KEYS: u32 = 2_000;
const PAUSE_MICROS: &str = "500";

#[tokio::test]
async fn a_server_that_loads_its_data_costs_no_acquire() {
    let folder = tempfile::tempdir().unwrap();
    let kept = ["--dir", folder.path().to_str().unwrap()];
    let server = Server::start_with(&kept);
    let client = patient_client(&server.url()).await;
    let limiter = ample(&client, "limiter").await;
    let mut raw = server.connection().await;
    let mut fill = redis::pipe();
    for key in 0..KEYS {
        fill.set(key, "x".repeat(100)).ignore();
    }
    fill.cmd("SAVE").ignore();
    let () = fill.query_async(&mut raw).await.unwrap();
    let port = server.port();
    server.signal("KILL");
    drop(server);
    let folder = folder.path().to_owned();
    let starting = thread::spawn(move || {
        let dir = folder.to_str().unwrap();
        let slowly = [
            "--dir",
            dir,
            "--rdbcompression",
            "no",
            "--key-load-delay",
            PAUSE_MICROS,
            "--loading-process-events-interval-bytes",
            "1024",
        ];
        Server::start_at(port, &slowly)
    });
    assert!(limiter.try_acquire(1).await.unwrap());
    let server = starting.join().unwrap();
    let mut raw = server.connection().await;
    assert!(
        keys::errors(&mut raw, "LOADING").await > 0,
        "it was asked while it loaded"
    );
    assert_eq!(taken(&mut raw, "limiter").await, 2);
}

#[tokio::test]
async fn on_an_emptied_server_only_a_limiter_with_a_rate_is_created_anew() {
    let server = Server::start();
    let client = patient_client(&server.url()).await;
    let limiter = client.rate_limiter("limiter");
    let rate = Rate::overall(2, HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    let keyed = client.keyed_rate_limiter("keyed:", rate).unwrap();
    let knowing = client.rate_limiter("knowing").with_rate(rate).unwrap();
    assert!(limiter.try_acquire(2).await.unwrap());
    assert!(keyed.check("key", 2).await.unwrap().is_granted());
    assert!(!keyed.check("key", 1).await.unwrap().is_granted());
    assert!(knowing.try_acquire(2).await.unwrap());
    let mut raw = server.connection().await;
    redis::cmd("FLUSHALL").exec_async(&mut raw).await.unwrap();
    let answer = limiter.try_acquire(1).await;
    assert!(
        matches!(answer, Err(Error::NotInitialized { .. })),
        "{answer:?}"
    );
    assert!(keyed.check("key", 2).await.unwrap().is_granted());
    assert!(!keyed.check("key", 1).await.unwrap().is_granted());
    assert!(knowing.try_acquire(2).await.unwrap());
    assert!(!knowing.try_acquire(1).await.unwrap());
}
