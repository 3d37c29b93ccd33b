//! A connection that is served, whatever protocol it has.

use std::pin::pin;

use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulConnection;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::timed_io::TimedIo;

/// A connection, as hyper takes it.
pub(super) type Io = TokioIo<Either<TimedIo, TlsStream<TimedIo>>>;

/// Drives a connection to its end; when the server closes, to the end of what is in flight. It ends
/// as its client or a timeout has it end.
pub(super) async fn drive(connection: impl GracefulConnection, mut closing: watch::Receiver<bool>) {
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|is_closing| *is_closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
