//! An address that the server listens at. For every protocol, it limits the number of connections,
//! sets up their TLS and ends those that stall.
//!
//! It replaces the servers of axum and tonic, because those accept any number of connections, keep
//! the certificate they started with, and wait forever for a client that sends or reads nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;

use super::service::Service;
use super::timed_io::TimedIo;

/// The time before the next accept after an error such as "too many open files".
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Door {
    listener: TcpListener,
    protocol: Protocol,
    routes: Router,
    service: Arc<Service>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Grpc,
    Admin,
}

impl Door {
    pub(super) async fn open(
        address: SocketAddr,
        protocol: Protocol,
        service: &Arc<Service>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let text = format!("cannot listen at {address}: {error}");
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self {
            listener,
            protocol,
            routes: match protocol {
                Protocol::Http => super::http::routes(service),
                Protocol::Admin => super::admin::routes(service),
                Protocol::Grpc => super::grpc::routes(service)?,
            },
            service: Arc::clone(service),
        })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections until the server closes. Each open connection holds a clone of `open`,
    /// so a caller can wait for the end of all by waiting until the channel closes.
    pub(super) async fn serve(self, open: mpsc::Sender<()>) {
        let most = self.service.settings.max_connections as usize;
        let connections = Arc::new(Semaphore::new(most));
        let mut closing = self.service.closing.subscribe();
        loop {
            let next = async {
                let permit = Arc::clone(&connections).acquire_owned().await;
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                _ = closing.wait_for(|is_closing| *is_closing) => return,
            };
            let Ok((stream, _)) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            let (service, protocol, open) =
                (Arc::clone(&self.service), self.protocol, open.clone());
            let routes = self.routes.clone();
            tokio::spawn(async move {
                // Errors are not logged: a client or a timeout may end a connection early.
                let _ = connection(stream, protocol, routes, service).await;
                drop((permit, open));
            });
        }
    }
}

async fn connection(
    stream: TcpStream,
    protocol: Protocol,
    routes: Router,
    service: Arc<Service>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let client_timeout = service.settings.client_timeout;
    // Pings are sent every two timeouts and answered within one, so a client that is silent for
    // four timeouts is gone.
    let silence = (protocol == Protocol::Grpc).then_some(4 * client_timeout);
    let stream = TimedIo::new(stream, client_timeout, silence);
    let tls = match protocol {
        Protocol::Http => service.credentials.tls_of_http(),
        Protocol::Grpc => service.credentials.tls_of_grpc(),
        Protocol::Admin => None,
    };
    let stream = match tls {
        None => Either::Left(stream),
        Some(tls) => {
            let handshake = TlsAcceptor::from(tls).accept(stream);
            Either::Right(timeout(client_timeout, handshake).await??)
        }
    };
    let io = TokioIo::new(stream);
    match protocol {
        Protocol::Http | Protocol::Admin => super::http::serve(io, routes, &service).await,
        Protocol::Grpc => super::grpc::serve(io, routes, &service).await,
    }
    Ok(())
}
