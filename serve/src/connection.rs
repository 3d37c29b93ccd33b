//! Serving a connection of any protocol until it ends.

use std::pin::pin;

use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::timed_io::TimedIo;

/// The type of a connection, with or without TLS, for hyper.
pub(super) type Io = TokioIo<Either<TimedIo, TlsStream<TimedIo>>>;

/// Drives a connection until its client or a timeout ends it, or, when the server closes, until
/// the requests in flight are answered.
pub(super) async fn drive(connection: impl GracefulConnection, mut closing: watch::Receiver<bool>) {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|is_closing| *is_closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
