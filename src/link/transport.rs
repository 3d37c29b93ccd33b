//! The transport to a server: TCP, TLS over it, or a Unix socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

use super::address::Endpoint;
use super::stream::Stream;
use super::tls::Tls;
use super::traffic::{Counted, Traffic};

/// An idle connection is probed after this long, so that a firewall keeps it and a dead one is
/// noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// The connection ends if sent data is not acknowledged for this long.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// An open stream, and the socket below it.
pub(super) struct Transport {
    pub(super) stream: Box<dyn Stream>,
    pub(super) socket: Socket,
    pub(super) is_tls: bool,
}

pub(super) async fn connect(
    endpoint: &Endpoint,
    tls: &Tls,
    traffic: &Arc<Traffic>,
) -> io::Result<Transport> {
    match endpoint {
        Endpoint::Tcp { host, port, is_tls } => {
            let stream = connect_tcp(host, *port).await?;
            let socket = SockRef::from(&stream).try_clone()?;
            let stream = Counted {
                stream,
                traffic: Arc::clone(traffic),
            };
            let stream = if *is_tls {
                tls.secure(host, stream).await?
            } else {
                Box::new(stream)
            };
            Ok(Transport {
                stream,
                socket,
                is_tls: *is_tls,
            })
        }
        #[cfg(unix)]
        Endpoint::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await?;
            let socket = SockRef::from(&stream).try_clone()?;
            let stream = Box::new(Counted {
                stream,
                traffic: Arc::clone(traffic),
            });
            Ok(Transport {
                stream,
                socket,
                is_tls: false,
            })
        }
        #[cfg(not(unix))]
        Endpoint::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Connects to the first address of the host that answers.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut attempts: JoinSet<io::Result<TcpStream>> = JoinSet::new();
    for address in lookup_host((host, port)).await? {
        attempts.spawn(connect_address(address));
    }
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last_error = error,
            Err(error) => last_error = io::Error::other(error),
        }
    }
    Err(last_error)
}

async fn connect_address(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    #[cfg(not(any(target_os = "openbsd", target_os = "haiku", target_os = "vita")))]
    let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(stream)
}
