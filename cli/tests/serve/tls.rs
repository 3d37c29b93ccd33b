//! Certificates of the server and of its clients.

use std::fs;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use reqwest::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Request;
use tonic::transport::Endpoint;

use crate::clients::answer_to;
use crate::http::RULES;
use crate::support::{Serve, envoy, try_ask};

struct Certificates {
    ca: CertificateDer<'static>,
    client: (CertificateDer<'static>, PrivateKeyDer<'static>),
    folder: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(authority, key).unwrap();
        let issue = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            (params.signed_by(&key, &authority).unwrap(), key)
        };
        let folder = tempfile::tempdir().unwrap();
        let (server, key) = issue("localhost");
        fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        fs::write(folder.path().join("cert.pem"), server.pem()).unwrap();
        fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
        let (client, key) = issue("client");
        Self {
            ca: authority.der().clone(),
            client: (
                client.der().clone(),
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            ),
            folder,
        }
    }

    fn serve(&self, files: &[(&str, &str)]) -> Serve {
        self.serve_with(files, &[])
    }

    /// The server, with further arguments.
    fn serve_with(&self, files: &[(&str, &str)], more: &[&str]) -> Serve {
        let files = files.iter().map(|(option, file)| {
            let path = self.folder.path().join(file);
            [(*option).to_owned(), path.to_str().unwrap().to_owned()]
        });
        let files: Vec<_> = files.flatten().collect();
        let arguments = files.iter().map(|it| &**it).chain(more.iter().copied());
        let arguments: Vec<_> = arguments.collect();
        Serve::start_with(RULES, &arguments, |_| {})
    }

    /// What a client trusts, with a certificate of its own or without.
    fn trust(&self, with_own: bool) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let (certificate, key) = &self.client;
        match with_own {
            true => config
                .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
                .unwrap(),
            false => config.with_no_client_auth(),
        }
    }

    /// What a client of gRPC is answered, with a certificate of its own or without.
    async fn ask(&self, serve: &Serve, with_own: bool) -> Result<(), String> {
        let mut config = self.trust(with_own);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = Tls {
            address: serve.grpc.clone(),
            connector: TlsConnector::from(Arc::new(config)),
        };
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| error.to_string())?;
        let asked = Request::new(envoy("edge", &[&[("user", "alice")]]));
        let answer = try_ask(channel, asked).await;
        answer.map(drop).map_err(|it| it.to_string())
    }

    /// Replaces the certificates by those of another authority.
    fn replace(&mut self) {
        let other = Self::new();
        for file in ["ca.pem", "cert.pem", "key.pem"] {
            let (from, to) = (
                other.folder.path().join(file),
                self.folder.path().join(file),
            );
            fs::copy(from, to).unwrap();
        }
        (self.ca, self.client) = (other.ca, other.client);
    }

    /// What a client gets from `/healthz`, with a certificate of its own or without.
    async fn healthz(&self, serve: &Serve, with_own: bool) -> std::io::Result<String> {
        let config = self.trust(with_own);
        let stream = tokio::net::TcpStream::connect(&serve.http).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await?;
        let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

/// Connections by TLS to one address.
struct Tls {
    address: String,
    connector: TlsConnector,
}

impl tonic::codegen::Service<Uri> for Tls {
    type Response = TokioIo<TlsStream<tokio::net::TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (address, connector) = (self.address.clone(), self.connector.clone());
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let name = ServerName::try_from("localhost").unwrap();
            Ok(TokioIo::new(connector.connect(name, stream).await?))
        })
    }
}

const TLS: [(&str, &str); 2] = [("--tls-cert", "cert.pem"), ("--tls-key", "key.pem")];

#[tokio::test]
async fn connections_are_encrypted_if_there_is_a_certificate() {
    let certificates = Certificates::new();
    let serve = certificates.serve(&TLS);
    let answer = certificates.healthz(&serve, false).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let plain = serve.client.get(format!("http://{}/healthz", serve.http));
    assert!(plain.send().await.is_err());
    // The status page has no TLS.
    assert_eq!(
        serve.get(&serve.admin, "/healthz").await.status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn clients_need_a_certificate_if_an_authority_is_named() {
    let certificates = Certificates::new();
    let serve = certificates.serve(&[TLS[0], TLS[1], ("--client-ca", "ca.pem")]);
    let answer = certificates.healthz(&serve, true).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(certificates.healthz(&serve, false).await.is_err());
}

#[test]
fn a_client_that_does_not_agree_on_encryption_is_cut_off() {
    let certificates = Certificates::new();
    let serve = certificates.serve_with(&TLS, &["--client-timeout", "300ms"]);
    for address in [&serve.http, &serve.grpc] {
        for bytes in [&b""[..], b"\x16\x03\x01"] {
            assert_eq!(answer_to(address, bytes), "");
        }
    }
}

#[tokio::test]
async fn clients_of_grpc_need_what_those_of_http_need() {
    let certificates = Certificates::new();
    let serve = certificates.serve(&TLS);
    assert_eq!(certificates.ask(&serve, false).await, Ok(()));
    let plain = Endpoint::from_shared(format!("http://{}", serve.grpc)).unwrap();
    let plain = match plain.connect().await {
        Ok(channel) => try_ask(channel, Request::new(envoy("edge", &[&[("user", "a")]])))
            .await
            .is_ok(),
        Err(_) => false,
    };
    assert!(!plain);
    let serve = certificates.serve(&[TLS[0], TLS[1], ("--client-ca", "ca.pem")]);
    assert_eq!(certificates.ask(&serve, true).await, Ok(()));
    assert!(certificates.ask(&serve, false).await.is_err());
}

#[tokio::test]
async fn certificates_are_replaced_while_it_runs() {
    let mut certificates = Certificates::new();
    let mut serve = certificates.serve(&[TLS[0], TLS[1], ("--client-ca", "ca.pem")]);
    assert_eq!(certificates.ask(&serve, true).await, Ok(()));
    let key = certificates.folder.path().join("key.pem");
    let good = fs::read(&key).unwrap();
    fs::write(&key, "no key").unwrap();
    serve.signal(rustix::process::Signal::HUP);
    serve.line_with("credentials: kept the old ones: ");
    serve.line_with("rules: read again"); // a mistake in the credentials does not affect the rules
    assert_eq!(certificates.ask(&serve, true).await, Ok(()));
    fs::write(&key, good).unwrap();
    let before = (certificates.ca.clone(), certificates.client.0.clone());
    certificates.replace();
    assert_ne!(
        before,
        (certificates.ca.clone(), certificates.client.0.clone())
    );
    assert!(certificates.ask(&serve, true).await.is_err());
    serve.signal(rustix::process::Signal::HUP);
    serve.line_with("credentials: read again");
    assert_eq!(certificates.ask(&serve, true).await, Ok(()));
    let answer = certificates.healthz(&serve, true).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
