//! A primary that Sentinels name, and its successor after a failover.

use std::process::Command;
use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis_test::utils::get_random_available_port;
use redisson_rate_limiter::{Error, RedissonClient};
use tempfile::TempDir;

use crate::load::{Load, ample, ms, patient_client};
use crate::support::{Process, Server};

struct Sentinel {
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl Sentinel {
    async fn of(primary: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let port = get_random_available_port();
        let config = format!(
            "port {port}\ndir {}\nsentinel monitor orders 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds orders 300\nsentinel failover-timeout orders 2000\n",
            folder.path().display(),
            primary.port()
        );
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel");
        let process = Process::start(&command);
        let sentinel = Self {
            _process: process,
            _folder: folder,
            port,
        };
        while sentinel.ask(&["PING"]).await.is_err() {
            tokio::time::sleep(ms(10)).await;
        }
        sentinel
    }

    async fn ask(&self, command: &[&str]) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let mut all = redis::Cmd::new();
        for part in command {
            all.arg(*part);
        }
        all.query_async(&mut connection).await
    }

    /// Waits until it knows the primary's replica.
    async fn knows_a_replica(&self) {
        loop {
            let replicas = self.ask(&["SENTINEL", "REPLICAS", "orders"]).await.unwrap();
            if matches!(replicas, redis::Value::Array(replicas) if !replicas.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn replica_of(primary: &Server) -> Server {
    let port = primary.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let mut raw = replica.connection().await;
    loop {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("replication").query_async(&mut raw).await.unwrap();
        if info.contains("master_link_status:up") {
            return replica;
        }
        tokio::time::sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn a_failover_after_the_primary_was_killed_costs_no_acquire() {
    let primary = Server::start();
    let _replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    // The first Sentinel of the URL is not there.
    let nobody = get_random_available_port();
    let url = format!(
        "redis-sentinel://127.0.0.1:{nobody},127.0.0.1:{}/orders",
        sentinel.port
    );
    let client = patient_client(&url).await;
    let limiter = ample(&client, "limiter").await;
    let mut raw = primary.connection().await;
    let mut wait = redis::cmd("WAIT");
    let replicas: i64 = wait.arg(1).arg(0).query_async(&mut raw).await.unwrap();
    assert_eq!(replicas, 1);
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    primary.signal("KILL");
    load.until_granted(20).await;
    load.end_without_errors().await;
}

#[tokio::test]
async fn a_failover_by_hand_costs_no_acquire() {
    let primary = Server::start();
    let _replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    let url = format!("redis-sentinel://127.0.0.1:{}/orders", sentinel.port);
    let client = patient_client(&url).await;
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    // It may have to look at the replica first.
    while sentinel
        .ask(&["SENTINEL", "FAILOVER", "orders"])
        .await
        .is_err()
    {
        tokio::time::sleep(ms(10)).await;
    }
    let address: redis::Value = loop {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "orders"];
        let address = sentinel.ask(&ask).await.unwrap();
        if !format!("{address:?}").contains(&primary.port().to_string()) {
            break address;
        }
        tokio::time::sleep(ms(10)).await;
    };
    assert!(matches!(address, redis::Value::Array(_)));
    load.until_granted(20).await;
    load.end_without_errors().await;
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_an_error() {
    let primary = Server::start();
    let sentinel = Sentinel::of(&primary).await;
    let url = format!("redis-sentinel://127.0.0.1:{}/other", sentinel.port);
    let error = RedissonClient::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
}
