//! The Redis servers: one, and a cluster of three.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::callers::now;
use benchmarks::cpu;

/// They stop when this is dropped.
pub struct Servers {
    servers: Vec<(Child, u16)>,
}

impl Servers {
    pub fn one() -> Self {
        Self {
            servers: vec![start(&[])],
        }
    }

    pub fn cluster() -> Self {
        let servers: Vec<_> = (0..3)
            .map(|_| {
                let (port, folder) = (free_port(), std::env::temp_dir());
                let file = folder.join(format!("peers-{}-{port}.conf", std::process::id()));
                let file = file.to_string_lossy().into_owned();
                start(&["--cluster-enabled", "yes", "--cluster-config-file", &file])
            })
            .collect();
        let this = Self { servers };
        let mut create = Command::new("redis-cli");
        create.args(["--cluster-yes", "--cluster", "create"]);
        create.args(
            this.servers
                .iter()
                .map(|(_, port)| format!("127.0.0.1:{port}")),
        );
        let created = create.stdout(Stdio::null()).status().expect("redis-cli");
        assert!(created.success(), "the cluster was not created");
        this
    }

    pub fn urls(&self) -> String {
        let urls = self
            .servers
            .iter()
            .map(|(_, port)| format!("redis://127.0.0.1:{port}"));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Empties all of them.
    pub fn forget_all(&self) {
        for (_, port) in &self.servers {
            cli(*port, &["FLUSHALL"]);
        }
    }

    /// The CPU time of all of them between two times, in ns.
    pub fn cpu_between(&self, begins: u64, ends: u64) -> u64 {
        let until = |time: u64| {
            sleep(Duration::from_millis(time.saturating_sub(now())));
            let each = self
                .servers
                .iter()
                .map(|(server, _)| cpu::nanos(server.id()));
            each.sum::<u64>()
        };
        let before = until(begins);
        until(ends) - before
    }

    /// The version of the first one.
    pub fn version(&self) -> String {
        let info = cli(self.servers[0].1, &["INFO", "server"]);
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        version.unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (server, _) in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its number").port();
        if port < 55_000 {
            return port; // with room for the port of the cluster's bus, 10,000 above
        }
    }
}

fn start(options: &[&str]) -> (Child, u16) {
    let port = free_port();
    let server = std::env::var("REDISRS_SERVER_BIN").unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(server);
    command.args([
        "--port",
        &port.to_string(),
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    let server = command
        .args(options)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server");
    while cli(port, &["PING"]).trim() != "PONG" {
        sleep(Duration::from_millis(20));
    }
    (server, port)
}

fn cli(port: u16, command: &[&str]) -> String {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &port.to_string()]).args(command);
    let output = cli.output().expect("redis-cli");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
