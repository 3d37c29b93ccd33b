//! TLS to Sentinels, and to the primary that they name.

use redisson_rate_limiter::TlsConfig;

use crate::late_servers::{builder, is_served_by};
use crate::load::{Load, ample};
use crate::sentinels::{Sentinel, stop_once_replicated};
use crate::support::{Server, ports};
use crate::tls_server::{Authority, Identity, assert_certificate_refused, connect, start};

/// A primary, its replica and their Sentinel, which talk TLS to each other.
struct TlsSentinels {
    of_servers: Authority,
    of_sentinels: Authority,
    primary: Server,
    replica: Server,
    _sentinel: Sentinel,
    sentinel_port: u16,
    _identities: [Identity; 3],
}

impl TlsSentinels {
    async fn start() -> Self {
        Self::start_at(ports::reserve(), [Authority::new(), Authority::new()]).await
    }

    /// With the Sentinel at this port, and certificates of servers and Sentinels by these
    /// authorities.
    async fn start_at(sentinel_port: u16, authorities: [Authority; 2]) -> Self {
        let [of_servers, of_sentinels] = authorities;
        let all = [&of_servers, &of_sentinels];
        let [of_primary, of_replica] =
            [(); 2].map(|()| Identity::new(&of_servers, "127.0.0.1", &all));
        let of_sentinel = Identity::new(&of_sentinels, "127.0.0.1", &all);
        let by_tls = ["--tls-replication", "yes", "--tls-auth-clients", "no"];
        let (primary, primary_port) = start(&of_primary, &by_tls);
        let port = primary_port.to_string();
        let mut arguments = by_tls.to_vec();
        arguments.extend(["--replicaof", "127.0.0.1", &port]);
        let (replica, _) = start(&of_replica, &arguments);

        let mut config = "tls-replication yes\ntls-auth-clients no\n".to_owned();
        for (name, value) in of_sentinel.settings(sentinel_port) {
            config += &format!("{name} {value}\n");
        }
        let sentinel = Sentinel::start(primary_port, &config, "").await;
        sentinel.knows_a_replica().await;
        Self {
            of_servers,
            of_sentinels,
            primary,
            replica,
            _sentinel: sentinel,
            sentinel_port,
            _identities: [of_primary, of_replica, of_sentinel],
        }
    }

    fn url(&self) -> String {
        url(self.sentinel_port)
    }

    fn trust(&self) -> TlsConfig {
        trust([&self.of_servers, &self.of_sentinels])
    }
}

fn url(sentinel_port: u16) -> String {
    format!("rediss-sentinel://127.0.0.1:{sentinel_port}/orders")
}

fn trust(authorities: [&Authority; 2]) -> TlsConfig {
    TlsConfig::new().ca_pem(authorities.map(|it| &*it.pem).concat())
}

#[tokio::test]
async fn sentinels_that_start_later_are_reached_by_tls() {
    let (port, authorities) = (ports::reserve(), [Authority::new(), Authority::new()]);
    let builder = builder().tls(trust(authorities.each_ref()));
    let client = builder.connect(&url(port)).await.unwrap();
    is_served_by(&client, TlsSentinels::start_at(port, authorities)).await;
}

#[tokio::test]
async fn a_failover_by_tls_costs_no_acquire() {
    let sentinels = TlsSentinels::start().await;
    let client = connect(&sentinels.url(), sentinels.trust()).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    stop_once_replicated(&sentinels.primary, &load).await;
    sentinels.primary.signal("KILL");
    load.until_granted(20).await;
    load.end_taken_once(&mut sentinels.replica.connection().await)
        .await;
}

#[tokio::test]
async fn a_certificate_by_another_authority_is_refused() {
    let sentinels = TlsSentinels::start().await;
    // The Sentinel is trusted, the primary that it names is not; then the other way round.
    for authority in [&sentinels.of_sentinels, &sentinels.of_servers] {
        let error = connect(&sentinels.url(), authority.trust())
            .await
            .unwrap_err();
        assert_certificate_refused(&error);
    }
}
