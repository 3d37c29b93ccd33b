//! A connection that fails if its client reads nothing, or sends nothing, for too long. hyper has
//! timeouts for the head of a request and for pings of HTTP/2, but none for a client that never
//! reads its answers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

pub(super) struct TimedIo {
    stream: TcpStream,
    /// `None` if the client may be silent for any time.
    reading: Option<Stall>,
    writing: Stall,
}

/// Times how long a connection transfers nothing in one direction.
struct Stall {
    /// The longest time without a transfer.
    longest: Duration,
    timer: Pin<Box<Sleep>>,
    /// Whether the last poll was pending, so that the timer runs.
    is_running: bool,
}

impl TimedIo {
    /// Without `longest_silence`, a client may be silent forever. HTTP/1 does not need it, because
    /// hyper limits the time for the head of the next request.
    pub(super) fn new(
        stream: TcpStream,
        longest_write: Duration,
        longest_silence: Option<Duration>,
    ) -> Self {
        Self {
            stream,
            reading: longest_silence.map(Stall::new),
            writing: Stall::new(longest_write),
        }
    }
}

impl Stall {
    fn new(longest: Duration) -> Self {
        Self {
            longest,
            timer: Box::pin(sleep(longest)),
            is_running: false,
        }
    }

    /// Returns `moved`, the result of a poll, or a timeout if it is pending for too long.
    fn or_timed_out<T>(
        &mut self,
        context: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.is_running = false;
            return moved;
        }
        if !self.is_running {
            self.is_running = true;
            self.timer.as_mut().reset(Instant::now() + self.longest);
        }
        let is_over = self.timer.as_mut().poll(context).is_ready();
        match is_over {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => Poll::Pending,
        }
    }
}

impl AsyncRead for TimedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &mut self.reading {
            Some(reading) => reading.or_timed_out(context, read),
            None => read,
        }
    }
}

impl AsyncWrite for TimedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.writing.or_timed_out(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.writing.or_timed_out(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const LONGEST: Duration = Duration::from_millis(50);

    /// Returns a connection with these limits, and the client's end of it.
    async fn connected(longest_silence: Option<Duration>) -> (TimedIo, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let timed = TimedIo::new(accepted.unwrap().0, LONGEST, longest_silence);
        (timed, client.unwrap())
    }

    #[tokio::test]
    async fn a_write_that_nobody_reads_fails() {
        let (mut timed, _client) = connected(None).await;
        let written = timed.write_all(&vec![0; 1 << 28]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_read_fails_if_the_client_is_silent_for_too_long() {
        let (mut timed, mut client) = connected(Some(LONGEST)).await;
        client.write_all(b"a").await.unwrap();
        assert_eq!(timed.read_u8().await.unwrap(), b'a');
        let silence = timed.read_u8().await.unwrap_err();
        assert_eq!(silence.kind(), io::ErrorKind::TimedOut);
    }
}
