//! The receivers of a client's events: the handler that the application has set, and spans of
//! `tracing`.

use std::fmt;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::time::Instant;
use tracing::Level;

use super::reported::{Mode, Reported};
use super::spans::TARGET;
use super::{AskedLimiter, Event};

/// The handler of a client's events, if there is one. Without a handler, and if nobody records
/// spans, an event costs nothing: no text, no list, and no reading of the clock.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Handler>);

type Handler = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

impl Events {
    pub(crate) fn new(handler: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(handler)))
    }

    /// Calls the handler. Must not be called under a lock: the handler may use the client.
    #[inline]
    pub(crate) fn tell<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(handler) = &self.0 {
            // Only the handler's own state can be left inconsistent by its panic.
            let _ = catch_unwind(AssertUnwindSafe(|| handler(&event())));
        }
    }

    /// Whether there is a handler.
    pub(super) fn is_handled(&self) -> bool {
        self.0.is_some()
    }

    /// The present time, at the start of something whose end is an event; `None` if nobody receives
    /// events.
    #[inline]
    pub(crate) fn start(&self) -> Option<Instant> {
        let is_on = self.0.is_some() || tracing::span_enabled!(target: TARGET, Level::DEBUG);
        is_on.then(Instant::now)
    }

    /// Starts the report of a request to a limiter of this name.
    #[inline]
    pub(crate) fn request<'a>(
        &'a self,
        permits: u32,
        name: impl FnOnce() -> &'a str,
    ) -> Reported<'a> {
        self.joint_request(Mode::Enforced, iter::once_with(|| (name(), permits)))
    }

    /// Starts the report of a request to several limiters. `limiters` has the name of each, and how
    /// many permits the request asks it for.
    #[inline]
    pub(crate) fn joint_request<'a>(
        &'a self,
        mode: Mode,
        limiters: impl Iterator<Item = (&'a str, u32)>,
    ) -> Reported<'a> {
        let Some(at) = self.start() else {
            return Reported::default();
        };
        let limiters = limiters.map(|(name, permits)| AskedLimiter::new(name, permits));
        Reported::new(self, at, mode, limiters.collect())
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.0.is_some() { "on" } else { "off" };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{Decision, Granted};

    #[test]
    fn without_a_handler_nothing_is_made_for_an_event() {
        let events = Events::default();
        events.tell(|| unreachable!());
        assert_eq!(events.start(), None); // the clock is not read
        let reported = events.request(1, || unreachable!());
        assert!(reported.is_off());
        let granted: Decision = Granted::new(1).into();
        assert!(reported.ended(Ok(granted)).unwrap().is_granted());
        drop(events.joint_request(Mode::Shadow, iter::once_with(|| unreachable!())));
    }
}
