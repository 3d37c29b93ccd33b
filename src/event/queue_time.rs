//! The time that a request spends in a queue: until a call carries it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::lock::Lock;

/// The end of a request's time in a queue, shared by clones of the same request. Empty if no event
/// reports the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueTime(Option<Arc<Lock<Option<Instant>>>>);

impl QueueTime {
    /// The time of a request that has just entered the queue.
    pub(super) fn begin() -> Self {
        Self(Some(Arc::default()))
    }

    /// Notes that a call has carried the request since `at`.
    pub(crate) fn ends(&self, at: Instant) {
        if let Some(end) = &self.0 {
            *end.lock() = Some(at);
        }
    }

    /// Notes that a call carries the request from now on.
    pub(crate) fn ends_now(&self) {
        if self.0.is_some() {
            self.ends(Instant::now());
        }
    }

    /// Notes that the request is decided: its time in the queue ends now, unless a call that
    /// carries it has ended it.
    pub(crate) fn is_over(&self) {
        if let Some(end) = &self.0 {
            end.lock().get_or_insert_with(Instant::now);
        }
    }

    /// Notes that the call has not served the request, which waits for another call.
    pub(crate) fn goes_on(&self) {
        if let Some(end) = &self.0 {
            *end.lock() = None;
        }
    }

    pub(super) fn end(&self) -> Option<Instant> {
        *self.0.as_ref()?.lock()
    }
}
