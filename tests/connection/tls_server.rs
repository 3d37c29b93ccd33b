//! Servers that accept TLS connections, and their certificate authorities.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use redisson_rate_limiter::{Error, RedissonClient, Result, TlsConfig};
use tempfile::TempDir;

use crate::load::PATIENT;
use crate::support::{Server, ports};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // OpenSSL treats authorities of the same name as one.
        let name = format!("authority {}", uuid::Uuid::new_v4());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for this name, and its key.
    pub fn certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// As [`certificate`](Self::certificate), but its time is over.
    pub fn expired_certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    pub fn trust(&self) -> TlsConfig {
        TlsConfig::new().ca_pem(self.pem.clone())
    }
}

/// A server's certificate in files, as its configuration wants it.
pub struct Identity {
    folder: TempDir,
}

impl Identity {
    /// For a server of this name, which trusts clients and peers by any of the authorities.
    pub fn new(authority: &Authority, name: &str, trusted: &[&Authority]) -> Self {
        Self::with(authority.certificate(name), trusted)
    }

    /// With this certificate and its key.
    pub fn with((certificate, key): (String, String), trusted: &[&Authority]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let trusted: String = trusted.iter().map(|other| other.pem.as_str()).collect();
        for (name, text) in [
            ("server.pem", certificate),
            ("server.key", key),
            ("ca.pem", trusted),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    /// Names and values of the settings, for a TLS port.
    pub fn settings(&self, port: u16) -> [(&'static str, String); 4] {
        let file = |name| self.folder.path().join(name).to_str().unwrap().to_owned();
        [
            ("tls-port", port.to_string()),
            ("tls-cert-file", file("server.pem")),
            ("tls-key-file", file("server.key")),
            ("tls-ca-cert-file", file("ca.pem")),
        ]
    }
}

/// A server that takes TLS connections as well as plain ones.
pub struct TlsServer {
    pub server: Server,
    pub port: u16,
    pub authority: Authority,
    _identity: Identity,
}

impl TlsServer {
    pub fn start(name: &str, auth_clients: &str) -> Self {
        Self::start_at(ports::reserve(), Authority::new(), name, auth_clients)
    }

    /// Starts a server at this port, with a certificate by this authority.
    pub fn start_at(port: u16, authority: Authority, name: &str, auth_clients: &str) -> Self {
        let identity = Identity::new(&authority, name, &[&authority]);
        let server = start_at(port, &identity, &["--tls-auth-clients", auth_clients]);
        Self {
            server,
            port,
            authority,
            _identity: identity,
        }
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    pub fn trust(&self) -> TlsConfig {
        self.authority.trust()
    }

    /// Shows this identity from now on.
    pub async fn show(&self, identity: &Identity) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET");
        for (name, value) in identity.settings(self.port) {
            set.arg(name).arg(value);
        }
        let mut raw = self.server.connection().await;
        let _: () = set.query_async(&mut raw).await.unwrap();
    }
}

/// A server with this identity and more arguments, and its TLS port.
pub fn start(identity: &Identity, arguments: &[&str]) -> (Server, u16) {
    let port = ports::reserve_for_node();
    (start_at(port, identity, arguments), port)
}

/// Starts a server with this identity and more arguments at this TLS port.
pub fn start_at(port: u16, identity: &Identity, arguments: &[&str]) -> Server {
    let mut all: Vec<String> = Vec::new();
    for (name, value) in identity.settings(port) {
        all.extend([format!("--{name}"), value]);
    }
    let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
    all.extend(arguments);
    Server::start_with(&all)
}

pub async fn connect(url: &str, tls: TlsConfig) -> Result<RedissonClient> {
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    builder.tls(tls).connect(url).await
}

/// Asserts that the call was not made because of a certificate.
pub fn assert_certificate_refused(error: &Error) {
    let Error::StoreUnavailable { cause, .. } = error else {
        panic!("{error:?}");
    };
    let cause = cause.to_string();
    assert!(cause.contains("certificate"), "{cause}");
}
