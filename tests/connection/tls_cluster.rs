//! TLS to each node of a cluster.

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{RateLimiter, RedissonClient, TlsConfig};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::late_servers::{builder, is_served_by};
use crate::load::{Load, PATIENT, ample, ms};
use crate::support::{Server, ports};
use crate::tls_server::{Authority, Identity, assert_certificate_refused, connect, start_at};

const NODES: usize = 2;

/// Two nodes that talk TLS to each other, each with half of the slots and a certificate by an
/// authority of its own.
struct TlsCluster {
    authorities: [Authority; NODES],
    servers: Vec<Server>,
    ports: [u16; NODES],
    _files: Vec<(Identity, TempDir)>,
}

fn free_ports() -> [u16; NODES] {
    [(); NODES].map(|()| ports::reserve_for_node())
}

async fn run(raw: &mut MultiplexedConnection, command: &str) -> redis::Value {
    let mut all = redis::Cmd::new();
    for part in command.split(' ') {
        all.arg(part);
    }
    all.query_async(raw).await.unwrap()
}

impl TlsCluster {
    async fn start() -> Self {
        let authorities = [(); NODES].map(|()| Authority::new());
        Self::start_at(free_ports(), authorities).await
    }

    /// Starts a cluster at these ports, with certificates by these authorities.
    async fn start_at(ports: [u16; NODES], authorities: [Authority; NODES]) -> Self {
        let all: Vec<_> = authorities.iter().collect();
        let (mut servers, mut files) = (Vec::new(), Vec::new());
        let each = ports.into_iter().zip(&authorities);
        for ((port, authority), slots) in each.zip(["0 8191", "8192 16383"]) {
            let identity = Identity::new(authority, "127.0.0.1", &all);
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("nodes.conf");
            let arguments = [
                ["--cluster-enabled", "yes"],
                ["--cluster-config-file", file.to_str().unwrap()],
                ["--tls-cluster", "yes"],
                ["--tls-auth-clients", "no"],
            ];
            let server = start_at(port, &identity, &arguments.concat());
            let mut raw = server.connection().await;
            run(&mut raw, &format!("CLUSTER ADDSLOTSRANGE {slots}")).await;
            if port != ports[0] {
                run(&mut raw, &format!("CLUSTER MEET 127.0.0.1 {}", ports[0])).await;
            }
            servers.push(server);
            files.push((identity, folder));
        }
        for server in &servers {
            let mut raw = server.connection().await;
            while !format!("{:?}", run(&mut raw, "CLUSTER INFO").await).contains("cluster_state:ok")
            {
                sleep(ms(10)).await;
            }
        }
        Self {
            authorities,
            servers,
            ports,
            _files: files,
        }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.ports[0])
    }

    /// A limiter of each node.
    async fn limiters(&self, client: &RedissonClient) -> Vec<RateLimiter> {
        let mut limiters = Vec::new();
        for server in &self.servers {
            let mut raw = server.connection().await;
            for name in 0.. {
                let name = format!("limiter:{name}");
                let exists = redis::cmd("EXISTS").arg(&name).query_async(&mut raw).await;
                if exists.is_ok_and(|()| true) {
                    limiters.push(client.rate_limiter(&name));
                    break;
                }
            }
        }
        limiters
    }
}

#[tokio::test]
async fn all_nodes_are_found_by_one_and_lost_connections_come_back() {
    let cluster = TlsCluster::start().await;
    let [first, second] = &cluster.authorities;
    let trust = TlsConfig::new().ca_pem(first.pem.clone() + &second.pem);
    let client = connect(&cluster.url(), trust).await.unwrap();
    for (limiter, server) in cluster.limiters(&client).await.iter().zip(&cluster.servers) {
        let limiter = ample(&client, limiter.name()).await;
        let load = Load::on(&limiter);
        let mut raw = server.connection().await;
        for _ in 0..5 {
            load.until_granted(20).await;
            run(&mut raw, "CLIENT KILL TYPE normal").await;
        }
        load.until_granted(20).await;
        load.end_taken_once(&mut raw).await;
    }
}

#[tokio::test]
async fn a_cluster_that_starts_later_is_reached_by_tls() {
    let (ports, authorities) = (free_ports(), [(); NODES].map(|()| Authority::new()));
    let [first, second] = &authorities;
    let trust = TlsConfig::new().ca_pem(first.pem.clone() + &second.pem);
    let url = format!("rediss://127.0.0.1:{}", ports[0]);
    let client = builder().tls(trust).connect(&url).await.unwrap();
    let cluster = is_served_by(&client, TlsCluster::start_at(ports, authorities)).await;
    for limiter in cluster.limiters(&client).await {
        ample(&client, limiter.name()).await;
    }
}

#[tokio::test]
async fn a_node_with_a_certificate_by_another_authority_is_refused() {
    let cluster = TlsCluster::start().await;
    let [first, second] = &cluster.authorities;
    let error = connect(&cluster.url(), second.trust()).await.unwrap_err();
    assert_certificate_refused(&error);

    // The node of the URL is trusted, the other one is not.
    let builder = RedissonClient::builder().response_timeout(ms(500));
    let builder = builder.wait_for_server(PATIENT).tls(first.trust());
    let client = builder.connect(&cluster.url()).await.unwrap();
    let limiters = cluster.limiters(&client).await;
    while limiters[0].exists().await.is_err() {}
    let error = loop {
        let error = limiters[1].try_acquire(1).await.unwrap_err();
        if !error.to_string().ends_with("the server does not answer") {
            break error;
        }
    };
    assert_certificate_refused(&error);
}
