//! The store in memory as one client uses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::MemoryStore;
use crate::clock::Clock;
use crate::decision::check_fits;
use crate::error::Result;
use crate::event::Events;
use crate::permit::CallId;
use crate::store::left_rates::LeftRates;
use crate::window::{Acquired, At, SetUp};

/// A store as one client uses it, with the client's clock. Clones are that client too.
#[derive(Debug, Clone)]
pub(crate) struct MemoryClient {
    pub(super) store: MemoryStore,
    pub(super) clock: Clock,
    pub(super) reports: Arc<LeftRates>,
}

impl MemoryClient {
    pub(crate) fn new(store: &MemoryStore, clock: Clock) -> Self {
        Self {
            store: store.clone(),
            clock,
            reports: Arc::default(),
        }
    }

    /// Reports limiters that keep another rate than their handles have to these events.
    pub(crate) fn reporting_to(self, events: Events) -> Self {
        let reports = Arc::new(LeftRates::reporting_to(events));
        Self { reports, ..self }
    }

    /// Decides one request by the RRateLimiter of this name without a handle on it: returns the
    /// call's id and the answer, or an error if it is for more than the rate. `None` if somebody
    /// waits for its permits.
    pub(crate) fn acquire_now(
        &self,
        name: &str,
        client_id: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        let passed = self.clock.now();
        let read = self.store.0.request_time();
        let acquired = self.store.with_limiter(name, read, |limiter| {
            // While requests wait, their queue must see what else this process takes.
            if limiter.drivers.load(Ordering::Relaxed) > 0 {
                return Ok(None);
            }
            limiter.with(name, passed, read, |held, at| {
                let acquired = held.acquire_one(at, client_id, permits, set_up)?;
                Ok(Some(acquired))
            })
        })?;
        if let Some((_, answer)) = &acquired {
            self.reports.left(name, set_up, answer.other_settings());
            check_fits(name, permits, answer.rate)?;
        }
        Ok(acquired)
    }

    /// Counts permits that were granted elsewhere, even if fewer are available: `ago` is how long
    /// ago they were granted, `ahead` how much longer they may be used.
    pub(crate) fn count(
        &self,
        name: &str,
        client_id: &str,
        set_up: SetUp,
        permits: u32,
        ago: Duration,
        ahead: Duration,
    ) {
        let read = self.store.0.request_time();
        self.store.with_limiter(name, read, |limiter| {
            let mut held = limiter.held();
            let server = held.time(read);
            let ago = i64::try_from(ago.as_millis()).unwrap_or(server);
            let at = At {
                now: server - ago,
                server,
            };
            // Rounded up.
            let ahead = i64::try_from(ahead.as_nanos().div_ceil(1_000_000)).unwrap_or(0);
            held.window.count(at, client_id, set_up, permits, ahead);
        });
    }

    /// Does what [`MemoryStore::shrink`] does, and lets other tasks run in between.
    pub(crate) async fn shrink_in_parts(&self) {
        self.store.shrink_in_parts().await;
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.store.held()
    }
}
