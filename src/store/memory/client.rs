//! The store in memory as one client uses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use tokio::time::Instant;

use super::MemoryStore;
use super::client_limiter::MemoryLimiter;
use crate::clock::Clock;
use crate::error::Result;
use crate::grant::Grant;
use crate::keys::Keys;
use crate::model::{Answer, At, SetUp};
use crate::permit::CallId;
use crate::policy::call::{Answers, Call};
use crate::store::{LimiterStore, Store};

/// A store as one client uses it, with the client's clock.
#[derive(Debug)]
pub(crate) struct MemoryClient {
    pub(super) store: MemoryStore,
    pub(super) clock: Clock,
}

impl MemoryClient {
    pub(crate) fn new(store: &MemoryStore, clock: Clock) -> Self {
        Self {
            store: store.clone(),
            clock,
        }
    }

    /// The time that scores its grants, in ms.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().unwrap_or_else(|| self.store.0.clock.now())
    }

    /// Decides one request by the RRateLimiter of this name without a handle on it: returns the call's id and the answer.
    /// `None` if somebody waits for its permits.
    pub(crate) fn acquire_now(
        &self,
        name: &str,
        client_id: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<Result<(CallId, Answer)>> {
        let passed = self.clock.now();
        let read = self.store.0.request_time();
        self.store.with_limiter(name, read, |limiter| {
            // Those who wait learn from their queue what else this process takes.
            if limiter.drivers.load(Ordering::Relaxed) > 0 {
                return None;
            }
            Some(limiter.with(name, passed, read, |held, at| {
                held.acquire_one(at, name, client_id, permits, set_up)
            }))
        })
    }

    /// Charges a limiter for what was granted elsewhere, even if it has less.
    pub(crate) fn charge(&self, keys: &Keys, set_up: SetUp, grant: &Grant) {
        let server = self.store.0.clock.now();
        self.store.with_limiter(&keys.name, server, |limiter| {
            let mut held = limiter.held();
            let at = At {
                now: grant.score,
                server: held.time(server),
            };
            let (client, permits) = (&keys.client_id, i64::from(grant.permits));
            held.window
                .take(at, client, Some(set_up), &grant.call_id, permits);
        });
    }
}

#[async_trait]
impl Store for MemoryClient {
    fn is_cluster(&self) -> bool {
        false
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(MemoryLimiter::new(&self.store, &self.clock, keys))
    }

    async fn check(&self, call: &Call, _deadline: Instant) -> Result<Answers> {
        self.check_call(call)
    }

    fn in_memory(&self) -> Option<&MemoryClient> {
        Some(self)
    }

    fn call_deadline(&self) -> Instant {
        Instant::now()
    }
}
