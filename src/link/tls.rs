//! TLS, by rustls. The server's certificate is always verified.

#[cfg(feature = "tls")]
mod rustls;

use std::io;

use tokio::net::TcpStream;

use super::address::Address;
use super::stream::Stream;
use super::traffic::Counted;
use crate::error::Result;
#[cfg(feature = "tls")]
pub use rustls::TlsConfig;

/// The TLS settings of a client; none without the feature.
#[cfg(not(feature = "tls"))]
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsConfig {}

/// How a connection is secured.
#[derive(Clone)]
pub(super) struct Tls {
    #[cfg(feature = "tls")]
    connector: Option<rustls::Connector>,
}

impl Tls {
    /// Reads the certificates, if the address needs any.
    pub(super) fn new(address: &Address, config: &TlsConfig) -> Result<Self> {
        #[cfg(feature = "tls")]
        let connector = match address.is_tls() {
            true => Some(config.connector()?),
            false => None,
        };
        #[cfg(not(feature = "tls"))]
        let _ = (address, config);
        Ok(Self {
            #[cfg(feature = "tls")]
            connector,
        })
    }

    pub(super) async fn secure(
        &self,
        host: &str,
        stream: Counted<TcpStream>,
    ) -> io::Result<Box<dyn Stream>> {
        #[cfg(feature = "tls")]
        if let Some(connector) = &self.connector {
            return connector.secure(host, stream).await;
        }
        let _ = (host, stream);
        Err(io::ErrorKind::Unsupported.into()) // no address without TLS gets here
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
