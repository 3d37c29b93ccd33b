//! The stream of a connection, with TLS or without.

use tokio::io::{AsyncRead, AsyncWrite};

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
