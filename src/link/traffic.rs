//! What is sent and received over one connection, and for how long nothing has arrived.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The reads and writes of one connection.
#[derive(Debug)]
pub(super) struct Traffic {
    start: Instant,
    writes: AtomicU64,
    reads: AtomicU64,
    /// In ms since the start.
    last_read: AtomicU64,
    /// When something was sent and nothing has arrived since, in ms since the start, plus 1; 0 if
    /// something has.
    silent_since: AtomicU64,
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            silent_since: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 // 584 million years fit
    }

    /// While this does not change, nothing was written.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// While this does not change, nothing was read.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// How long ago something was sent, if nothing has arrived since.
    pub(super) fn silence(&self) -> Option<Duration> {
        match self.silent_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_millis(
                (self.now() + 1).saturating_sub(since),
            )),
        }
    }

    /// How long ago something last arrived.
    pub(super) fn idle(&self) -> Duration {
        let last_read = self.last_read.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(last_read))
    }

    fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.last_read.store(self.now(), Ordering::Relaxed);
        self.silent_since.store(0, Ordering::Relaxed);
    }

    fn note_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.silent_since.load(Ordering::Relaxed) == 0 {
            // The task that writes also reads, so nothing stores a 0 in between.
            self.silent_since.store(self.now() + 1, Ordering::Relaxed);
        }
    }
}

/// A stream whose traffic is counted.
#[derive(Debug)]
pub(super) struct Counted<S> {
    pub(super) stream: S,
    pub(super) traffic: Arc<Traffic>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let result = Pin::new(&mut this.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            this.traffic.note_read();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(1..)) = result {
            this.traffic.note_write();
        }
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
