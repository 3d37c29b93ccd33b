//! Certificates and the handshake.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::super::stream::Stream;
use super::super::traffic::Counted;
use crate::error::{Error, Result};

/// The certificate authorities that a client trusts, and the certificate that it presents. The
/// default trusts the certificate authorities of the operating system and presents none.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use redisson_rate_limiter::{RedissonClient, TlsConfig};
///
/// let tls = TlsConfig::new()
///     .ca_pem(std::fs::read("ca.pem")?)
///     .client_certificate_pem(std::fs::read("client.pem")?, std::fs::read("client.key")?);
/// let client = RedissonClient::builder().tls(tls).connect("rediss://redis.example:6379").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct TlsConfig {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl TlsConfig {
    /// The default: trusts the operating system's certificate authorities and presents no
    /// certificate.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let debug = format!("{:?}", TlsConfig::new());
    /// assert_eq!(debug, format!("{:?}", TlsConfig::default()));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificate authorities, in PEM, and no others. The certificates are read when
    /// the client connects.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let tls = TlsConfig::new().ca_pem("not a certificate");
    /// let client = RedissonClient::builder().tls(tls).connect("rediss://127.0.0.1:6379").await;
    /// assert!(matches!(client, Err(Error::InvalidArgument { .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ca_pem(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(certificates.into());
        self
    }

    /// Presents this certificate, with its chain up to the authority, and proves it with the key.
    /// All are in PEM.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let tls = TlsConfig::new().client_certificate_pem("not a certificate", "nor a key");
    /// let client = RedissonClient::builder().tls(tls).connect("rediss://127.0.0.1:6379").await;
    /// assert!(matches!(client, Err(Error::InvalidArgument { .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn client_certificate_pem(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificates.into(), key.into()));
        self
    }

    pub(super) fn connector(&self) -> Result<Connector> {
        let roots = match &self.ca {
            Some(pem) => roots_of(pem)?,
            None => native_roots()?,
        };
        // Chosen here, so that it does not depend on what the application installs.
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| invalid("supports no version of TLS"))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let certificates = certificates_of(certificates)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| invalid("must have a client's key in PEM"))?;
                builder
                    .with_client_auth_cert(certificates, key)
                    .map_err(|_| {
                        invalid("must have a client's certificate and key that fit each other")
                    })?
            }
        };
        Ok(Connector(TlsConnector::from(Arc::new(config))))
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").finish_non_exhaustive()
    }
}

fn invalid(reason: &'static str) -> Error {
    Error::InvalidArgument {
        argument: "tls",
        reason,
    }
}

fn certificates_of(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(invalid("must have certificates in PEM")),
    }
}

fn roots_of(pem: &[u8]) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(pem)? {
        roots
            .add(certificate)
            .map_err(|_| invalid("must have certificates of authorities that can be used"))?;
    }
    Ok(roots)
}

fn native_roots() -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Some of the operating system's certificates may be of no use.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(invalid(
            "the operating system has no certificate authorities: name one with `ca_pem`",
        ));
    }
    Ok(roots)
}

#[derive(Clone)]
pub(super) struct Connector(TlsConnector);

impl Connector {
    pub(super) async fn secure(
        &self,
        host: &str,
        stream: Counted<TcpStream>,
    ) -> io::Result<Box<dyn Stream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(self.0.connect(name, stream).await?))
    }
}
