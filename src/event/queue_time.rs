//! How long a request is in a queue: until a call carries it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::lock::Lock;

/// Clones are of one request. Nothing, where no event tells it.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueTime(Option<Arc<Lock<Option<Instant>>>>);

impl QueueTime {
    /// Of a request that is in the queue.
    pub(super) fn begin() -> Self {
        Self(Some(Arc::default()))
    }

    /// A call carries the request since this time.
    pub(crate) fn ends(&self, at: Instant) {
        if let Some(end) = &self.0 {
            *end.lock() = Some(at);
        }
    }

    /// The same, now.
    pub(crate) fn ends_now(&self) {
        if self.0.is_some() {
            self.ends(Instant::now());
        }
    }

    /// It is decided, if by a call then by one that carries it already.
    pub(crate) fn is_over(&self) {
        if let Some(end) = &self.0 {
            end.lock().get_or_insert_with(Instant::now);
        }
    }

    /// The call has not served the request, which waits for another one.
    pub(crate) fn goes_on(&self) {
        if let Some(end) = &self.0 {
            *end.lock() = None;
        }
    }

    pub(super) fn end(&self) -> Option<Instant> {
        *self.0.as_ref()?.lock()
    }
}
