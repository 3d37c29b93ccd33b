//! What all handles of a client share besides its store: whether it is closed, and the handler of
//! its events.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::event::Events;

#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) events: Events,
    is_closed: AtomicBool,
    closing: Notify,
}

impl ClientState {
    pub(crate) fn new(events: Events) -> Self {
        Self {
            events,
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    /// Refuses a request of a client that was closed. The queue, which is closed later, also
    /// refuses those that may wait.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Refuses all requests that come from now on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
    }

    /// Returns when the client is closed.
    pub(crate) async fn closed(&self) {
        // Made first, so that a client that is closed from here on wakes it.
        let closing = self.closing.notified();
        if !self.is_closed.load(Ordering::SeqCst) {
            closing.await;
        }
    }
}
