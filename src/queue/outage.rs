//! Waiters while the store is away: they keep their places. So they are served in order, by a
//! substitute during the outage and by the store afterwards, and the first call after the outage
//! asks for the head.
//!
//! While a breaker refuses the queue's calls, the driver waits, and asks the waiters' substitutes
//! (see [`Substitute`](super::substitute::Substitute)). A call that fails returns its waiters to
//! their places.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::shared::Queue;
use crate::breaker::{Patience, guarded};
use crate::error::Result;
use crate::store::LimiterStore;

impl Queue {
    /// Whether the store's breaker refuses the queue's calls.
    pub(super) fn is_refused(&self) -> bool {
        let breaker = self.store.unhealthy_breaker();
        breaker.is_some_and(|breaker| !breaker.would_admit())
    }

    /// Whether the next call may be the breaker's probe, which is the driver's to make.
    pub(super) fn has_outage(&self) -> bool {
        let breaker = self.store.unhealthy_breaker();
        breaker.is_some_and(|breaker| breaker.has_outage())
    }

    /// Makes a call unless the breaker refuses it. If all of its waiters stay, it ends when the
    /// breaker opens.
    pub(super) async fn guarded<T>(
        &self,
        all_stay: bool,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (breaker, patience) = match all_stay {
            true => (self.store.breaker(), Patience::None),
            false => (self.store.unhealthy_breaker(), Patience::ResponseTimeout),
        };
        match breaker {
            Some(breaker) => guarded(&breaker, patience, call).await,
            None => call.await,
        }
    }

    /// Waits until the breaker no longer refuses the queue's calls, at most until `until`.
    pub(super) async fn wait_for_recovery(&self, until: Option<Instant>) {
        let recovery = recovery(&*self.store);
        match until {
            Some(until) => tokio::select! {
                () = recovery => {}
                () = sleep_until(until) => {}
            },
            None => recovery.await,
        }
    }

    /// Waits until the breaker refuses calls; forever if no waiter has a substitute for the store.
    pub(super) async fn needs_substitute(&self) {
        let breaker = self.substitute.get().and_then(|_| self.store.breaker());
        match breaker {
            Some(breaker) => breaker.refusing().await,
            None => std::future::pending().await,
        }
    }
}

/// Waits until no breaker of the store refuses calls on the limiter.
async fn recovery(store: &dyn LimiterStore) {
    /// How often the breaker is looked up anew: on a cluster, another node may have the key by
    /// then.
    const INTERVAL: Duration = Duration::from_millis(250);
    while let Some(breaker) = store.unhealthy_breaker() {
        if timeout(INTERVAL, breaker.recovered()).await.is_ok() {
            return;
        }
    }
}
