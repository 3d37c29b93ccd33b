//! Who may send requests: the tokens of clients, the certificate of the server, and the CAs of the
//! certificates that clients need. All are read again at each reload.

use std::env::VarError;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use subtle::{Choice, ConstantTimeEq};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::arguments::ServeArguments;

/// The environment variable with the token: an argument would be visible in lists of processes.
const TOKEN: &str = "RRATELIMITER_TOKEN";
const NO_TOKEN: &str = "there is no token";

pub(super) struct Credentials(RwLock<Loaded>);

/// The credentials as they were read last.
#[derive(Clone, Default)]
struct Loaded {
    tokens: Vec<Box<[u8]>>,
    tls: Option<Tls>,
}

/// The TLS settings. Those of HTTP and gRPC differ in the protocol that a client must agree to.
#[derive(Clone)]
struct Tls {
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
}

impl Credentials {
    pub(super) fn read(arguments: &ServeArguments) -> Result<Self, String> {
        Ok(Self(RwLock::new(Loaded::new(arguments)?)))
    }

    /// Reads the credentials again. If any of them is refused, the old ones stay.
    pub(super) fn reload(&self, arguments: &ServeArguments) -> Result<(), String> {
        let read = Loaded::new(arguments)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// The TLS settings of the HTTP API; `None` without TLS.
    pub(super) fn tls_of_http(&self) -> Option<Arc<ServerConfig>> {
        self.tls(|tls| &tls.http)
    }

    /// The TLS settings of gRPC; `None` without TLS.
    pub(super) fn tls_of_grpc(&self) -> Option<Arc<ServerConfig>> {
        self.tls(|tls| &tls.grpc)
    }

    fn tls(&self, protocol: impl FnOnce(&Tls) -> &Arc<ServerConfig>) -> Option<Arc<ServerConfig>> {
        let read = self.0.read().unwrap_or_else(PoisonError::into_inner);
        read.tls.as_ref().map(|tls| Arc::clone(protocol(tls)))
    }

    /// Whether clients need a token or a certificate.
    pub(super) fn are_needed(&self, arguments: &ServeArguments) -> bool {
        let read = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !read.tokens.is_empty() || arguments.client_ca.is_some()
    }

    /// Whether a request has one of the tokens; true if none is set. The comparison takes the same
    /// time for all tokens of a length, so that it does not reveal how much of a token is right.
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        let read = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if read.tokens.is_empty() {
            return true;
        }
        let authorization = headers.get(AUTHORIZATION).map(|it| it.as_bytes());
        let Some((scheme, token)) = authorization.and_then(|it| it.split_at_checked(7)) else {
            return false;
        };
        let is_known = read.tokens.iter().fold(Choice::from(0), |found, known| {
            found | known.as_ref().ct_eq(token)
        });
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(is_known)
    }
}

impl Loaded {
    fn new(arguments: &ServeArguments) -> Result<Self, String> {
        let tokens = match (&arguments.token_file, std::env::var(TOKEN)) {
            (Some(file), _) => {
                let text = fs::read_to_string(file).map_err(|error| at(file, error))?;
                tokens(&text).ok_or_else(|| at(file, NO_TOKEN))?
            }
            // An empty variable, as of a missing secret, is an error: it must not let everybody in.
            (None, Ok(token)) => tokens(&token).ok_or_else(|| format!("{TOKEN}: {NO_TOKEN}"))?,
            (None, Err(VarError::NotUnicode(_))) => return Err(format!("{TOKEN} is not UTF-8")),
            (None, Err(VarError::NotPresent)) => Vec::new(),
        };
        let tls = match (&arguments.tls_cert, &arguments.tls_key) {
            (Some(certificate), Some(key)) => {
                let tls = tls(certificate, key, arguments.client_ca.as_deref())?;
                let with = |protocol: &[u8]| {
                    let mut tls = tls.clone();
                    tls.alpn_protocols = vec![protocol.to_vec()];
                    Arc::new(tls)
                };
                Some(Tls {
                    http: with(b"http/1.1"),
                    grpc: with(b"h2"),
                })
            }
            _ => None,
        };
        Ok(Self { tokens, tls })
    }
}

/// Reads the tokens of a text, one a line; `None` if it has none.
fn tokens(text: &str) -> Option<Vec<Box<[u8]>>> {
    let lines = text.lines().map(str::trim).filter(|it| !it.is_empty());
    let tokens: Vec<_> = lines.map(|it| it.as_bytes().into()).collect();
    (!tokens.is_empty()).then_some(tokens)
}

fn tls(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<ServerConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| at(file, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().map_err(|error| at(file, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| at(key, error))?;
    let config = builder.with_single_cert(certificates(certificate)?, private);
    config.map_err(|error| at(certificate, error))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| at(file, error))?;
    let read = read.collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| at(file, error))?;
    match read.is_empty() {
        true => Err(at(file, "there is no certificate")),
        false => Ok(read),
    }
}

/// The text of an error, after the name of the file.
fn at(file: &Path, error: impl fmt::Display) -> String {
    format!("{}: {error}", file.display())
}
