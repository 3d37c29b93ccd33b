//! TLS: certificates that fit, and those that do not.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redis_test::utils::get_random_available_port;
use redisson_rate_limiter::{Error, RRateLimiter, RedissonClient, TlsConfig};
use tempfile::TempDir;

use crate::load::{Load, PATIENT, ample, ms};
use crate::support::Server;

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params
            .distinguished_name
            .push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for this name, and its key.
    fn certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A server that takes TLS connections beside plain ones.
struct TlsServer {
    server: Server,
    authority: Authority,
    port: u16,
    _folder: TempDir,
}

impl TlsServer {
    fn start(name: &str, auth_clients: &str) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = authority.certificate(name);
        let file = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        };
        let certificate = file("server.pem", &certificate);
        let key = file("server.key", &key);
        let ca = file("ca.pem", &authority.pem);
        let port = get_random_available_port();
        let port_text = port.to_string();
        let arguments = [
            ["--tls-port", &port_text],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
            ["--tls-ca-cert-file", &ca],
            ["--tls-auth-clients", auth_clients],
        ];
        Self {
            server: Server::start_with(&arguments.concat()),
            authority,
            port,
            _folder: folder,
        }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    fn trust(&self) -> TlsConfig {
        TlsConfig::new().ca_pem(self.authority.pem.clone())
    }
}

async fn connect(url: &str, tls: TlsConfig) -> redisson_rate_limiter::Result<RedissonClient> {
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    builder.tls(tls).connect(url).await
}

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
    load.end_without_errors().await;
    for _ in 0..5 {
        tokio::time::sleep(ms(6)).await; // what was just used is not looked at
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal");
        let _: i64 = kill.query_async(&mut raw).await.unwrap();
        limiter.release(1).await.unwrap();
    }
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
    let Error::StoreUnavailable { source } = &error else {
        panic!("{error:?}");
    };
    let cause = source.to_string();
    assert!(cause.contains("certificate"), "{cause}");
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
