//! TLS, by rustls. The server's certificate is always verified.

#[cfg(feature = "tls")]
mod rustls;

use std::io;

use tokio::net::TcpStream;

use super::address::Address;
use super::stream::Stream;
use super::traffic::Counted;
#[cfg(not(feature = "tls"))]
use crate::error::Error;
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
        let _ = config;
        #[cfg(not(feature = "tls"))]
        if address.is_tls() {
            return Err(Error::InvalidArgument {
                argument: "url",
                reason: "names a server with TLS, which needs this crate's feature `tls`",
            });
        }
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
        Err(io::ErrorKind::Unsupported.into()) // `new` makes a connector for any TLS address
    }
}

#[cfg(all(test, not(feature = "tls")))]
mod tests {
    use super::*;
    use crate::link::address::parse;

    #[test]
    fn a_tls_url_without_the_feature_is_refused_by_the_name_of_the_feature() {
        for url in ["rediss://localhost", "rediss-sentinel://localhost/orders"] {
            let refused = Tls::new(&parse(url).unwrap(), &TlsConfig::default());
            let error = refused.err().unwrap().to_string();
            assert!(error.contains("feature `tls`"), "{error}");
        }
    }
}
