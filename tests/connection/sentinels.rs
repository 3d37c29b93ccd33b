//! A Sentinel of the test's own, which watches a primary and its replica.

use std::process::{Command, Stdio};

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::load::{Load, ms};
use crate::support::{Process, Server, ports, server_program, without_timeouts};

pub struct Sentinel {
    _process: Process,
    _folder: TempDir,
    pub port: u16,
    /// Before the host of a URL, such as `user:password@`.
    login: &'static str,
}

impl Sentinel {
    /// It knows the primary as `orders`, and fails over after a second.
    pub async fn of(primary: &Server) -> Self {
        Self::start(primary.port(), "", "").await
    }

    /// With more lines of configuration, and the login that it asks for.
    pub async fn start(primary_port: u16, config: &str, login: &'static str) -> Self {
        Self::start_at(ports::reserve(), primary_port, config, login).await
    }

    /// Starts a Sentinel at this port.
    pub async fn start_at(port: u16, primary_port: u16, config: &str, login: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let config = format!(
            "port {port}\ndir {}\n{config}\nsentinel monitor orders 127.0.0.1 {primary_port} 1\n\
             sentinel down-after-milliseconds orders 1000\nsentinel failover-timeout orders 2000\n",
            folder.path().display(),
        );
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(server_program());
        command.arg(&file).arg("--sentinel");
        let process = Process::start(&command, Stdio::null());
        let sentinel = Self {
            _process: process,
            _folder: folder,
            port,
            login,
        };
        while sentinel.ask(&["PING"]).await.is_err() {
            sleep(ms(10)).await;
        }
        // A Sentinel that is not scheduled for two seconds does nothing for the next 30, and then
        // never fails over: it does not promote a replica whose link was down for longer than the
        // primary by more than ten times `down-after-milliseconds`.
        let an_hour = "3600000";
        let tilt = ["SENTINEL", "DEBUG", "TILT-TRIGGER", an_hour];
        sentinel.ask(&tilt).await.unwrap();
        sentinel
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}/orders", self.port)
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        let url = format!("redis://{}127.0.0.1:{}", self.login, self.port);
        let config = without_timeouts();
        let client = redis::Client::open(url)?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    pub async fn ask(&self, command: &[&str]) -> RedisResult<Value> {
        let mut all = redis::Cmd::new();
        all.arg(command)
            .query_async(&mut self.connection().await?)
            .await
    }

    /// Waits until it knows the primary's replica.
    pub async fn knows_a_replica(&self) {
        loop {
            let replicas = self.ask(&["SENTINEL", "REPLICAS", "orders"]).await.unwrap();
            if matches!(replicas, Value::Array(replicas) if !replicas.is_empty()) {
                return;
            }
            sleep(ms(20)).await;
        }
    }

    /// Waits until it names another primary.
    pub async fn names_another_than(&self, previous: &Server) {
        let mut connection = self.connection().await.unwrap();
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg("orders");
        loop {
            let (_, port): (String, u16) = ask.query_async(&mut connection).await.unwrap();
            if port != previous.port() {
                return;
            }
            sleep(ms(5)).await;
        }
    }
}

/// A replica that has all its primary's data.
pub async fn replica_of(primary: &Server) -> Server {
    let port = primary.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let mut raw = replica.connection().await;
    loop {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("replication").query_async(&mut raw).await.unwrap();
        if info.contains("master_link_status:up") {
            return replica;
        }
        sleep(ms(10)).await;
    }
}

/// Stops a primary between two calls, once its replica has all that it granted. Calls that are sent
/// to it from then on are lost.
pub async fn stop_once_replicated(primary: &Server, load: &Load) {
    let _paused = load.pause().await;
    acknowledged_by_replica(primary).await;
    primary.signal("STOP");
}

/// Waits until the replica has what the primary has now.
pub async fn acknowledged_by_replica(primary: &Server) {
    let mut raw = primary.connection().await;
    // WAIT counts the writes up to the last one of its own connection.
    let mut set = redis::cmd("SET");
    let () = set.arg("mark").arg(1).query_async(&mut raw).await.unwrap();
    let mut wait = redis::cmd("WAIT");
    let replicas: i64 = wait.arg(1).arg(0).query_async(&mut raw).await.unwrap();
    assert_eq!(replicas, 1);
}
