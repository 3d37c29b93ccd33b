//! TLS: accepted and refused certificates.

use redisson_rate_limiter::{Error, TlsConfig};

use crate::late_servers::{builder, is_served_by};
use crate::load::{Load, ample, ms};
use crate::support::ports;
use crate::tls_server::{
    Authority, Identity, TlsServer, assert_certificate_refused, connect, start,
};

#[tokio::test]
async fn a_connection_by_tls_works_and_comes_back() {
    let server = TlsServer::start("127.0.0.1", "no");
    let client = connect(&server.url(), server.trust()).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    let mut raw = server.server.connection().await;
    for _ in 0..5 {
        load.until_granted(20).await;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        let _: i64 = kill.query_async(&mut raw).await.unwrap();
    }
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
    for _ in 0..5 {
        tokio::time::sleep(ms(6)).await; // a connection that was just used is not checked
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        let _: i64 = kill.query_async(&mut raw).await.unwrap();
        limiter.release(1).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_speaks_tls_1_3_alone_is_reached() {
    let authority = Authority::new();
    let identity = Identity::new(&authority, "127.0.0.1", &[&authority]);
    let only = ["--tls-auth-clients", "no", "--tls-protocols", "TLSv1.3"];
    let (_server, port) = start(&identity, &only);
    let url = format!("rediss://127.0.0.1:{port}");
    let client = connect(&url, authority.trust()).await.unwrap();
    ample(&client, "limiter").await;
}

#[tokio::test]
async fn a_server_that_starts_later_is_reached_by_tls() {
    let (port, authority) = (ports::reserve(), Authority::new());
    let url = format!("rediss://127.0.0.1:{port}");
    let client = builder()
        .tls(authority.trust())
        .connect(&url)
        .await
        .unwrap();
    let start = async { TlsServer::start_at(port, authority, "127.0.0.1", "no") };
    is_served_by(&client, start).await;
}

#[tokio::test]
async fn a_certificate_that_expires_and_is_renewed_costs_no_acquire() {
    let server = TlsServer::start("127.0.0.1", "no");
    let authority = &server.authority;
    let client = connect(&server.url(), server.trust()).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    let expired = Identity::with(authority.expired_certificate("127.0.0.1"), &[authority]);
    server.show(&expired).await;
    // The existing connections go on.
    load.until_granted(20).await;
    let mut raw = server.server.connection().await;
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("normal");
    let _: i64 = kill.query_async(&mut raw).await.unwrap();
    assert_refused(&server, server.trust()).await;
    let renewed = Identity::new(authority, "127.0.0.1", &[authority]);
    server.show(&renewed).await;
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_the_clients() {
    let server = TlsServer::start("127.0.0.1", "yes");
    let (certificate, key) = server.authority.certificate("client");
    let tls = server.trust().client_certificate_pem(certificate, key);
    let client = connect(&server.url(), tls).await.unwrap();
    ample(&client, "limiter").await;

    let error = connect(&server.url(), server.trust()).await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
}

async fn assert_refused(server: &TlsServer, tls: TlsConfig) {
    let error = connect(&server.url(), tls).await.unwrap_err();
    assert_certificate_refused(&error);
}

#[tokio::test]
async fn a_certificate_by_another_authority_is_refused() {
    let server = TlsServer::start("127.0.0.1", "no");
    let another = TlsConfig::new().ca_pem(Authority::new().pem);
    assert_refused(&server, another).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let server = TlsServer::start("redis.example", "no");
    assert_refused(&server, server.trust()).await;
}

#[tokio::test]
async fn what_is_no_certificate_is_an_invalid_argument() {
    let (certificate, _) = Authority::new().certificate("client");
    let (_, other_key) = Authority::new().certificate("client");
    let ca = || TlsConfig::new().ca_pem(Authority::new().pem);
    let configs = [
        TlsConfig::new().ca_pem("no certificate"),
        ca().client_certificate_pem("no certificate", other_key.clone()),
        ca().client_certificate_pem(certificate.clone(), "no key"),
        ca().client_certificate_pem(certificate, other_key),
    ];
    for config in configs {
        let error = connect("rediss://127.0.0.1:1", config).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    }
}
