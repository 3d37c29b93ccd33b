//! The bounds of the line, for those who ask before they wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{IntervalOf, Shared, WaitQueue};
use crate::error::{Error, Result};

/// One of those who wait. Dropping it leaves.
pub(crate) struct Admitted {
    shared: Arc<Shared>,
}

impl WaitQueue {
    /// Counts the caller among those who wait, unless these are `max` already. Who is refused is never counted.
    pub(crate) fn admit(&self, max: usize) -> Result<Admitted> {
        let admitted = self.shared.state.lock().admit(max);
        match admitted {
            Ok(()) => Ok(Admitted {
                shared: Arc::clone(&self.shared),
            }),
            Err(waiters) => Err(Error::QueueFull {
                name: self.shared.name().to_owned(),
                waiters,
            }),
        }
    }

    /// How many wait.
    pub(crate) fn waiters(&self) -> usize {
        self.shared.state.lock().admitted()
    }

    /// How long a request waits at the least, where that is known: with `until`, as if those who give up by then did not
    /// wait. `interval` tells that of a rate.
    pub(crate) fn shortest_wait(
        &self,
        permits: u32,
        until: Option<Instant>,
        interval: &IntervalOf<'_>,
    ) -> Option<Duration> {
        let state = self.shared.state.lock();
        state.shortest_wait(permits, until, Instant::now(), interval)
    }

    /// Whether a request certainly waits for longer than until then.
    pub(super) fn is_hopeless(
        &self,
        permits: u32,
        until: Option<Instant>,
        interval: Option<&IntervalOf<'_>>,
    ) -> bool {
        let (Some(until), Some(interval)) = (until, interval) else {
            return false;
        };
        self.shortest_wait(permits, Some(until), interval)
            .is_some_and(|wait| wait > until.saturating_duration_since(Instant::now()))
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.state.lock().dismiss();
    }
}
