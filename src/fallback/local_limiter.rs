//! A client's share of one limiter, granted in this process while the store is down.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::recent_grants::RecentGrants;
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::grant::{Grant, Origin};
use crate::keys::Keys;
use crate::model::{SetUp, Settings};
use crate::permit::new_call_id;
use crate::rate::Rate;
use crate::store::Store;
use crate::store::memory::MemoryClient;
use crate::wait_queue::WaitQueue;

/// How long the settings of a limiter are used without reading them again.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct LocalLimiter {
    store: Arc<MemoryClient>,
    keys: Arc<Keys>,
    known: Mutex<Known>,
    recent: Mutex<RecentGrants>,
    /// Made when it is first needed.
    queue: OnceLock<WaitQueue>,
}

/// The limiter's settings in the store, as this client last saw them.
#[derive(Debug, Default)]
struct Known {
    settings: Option<Settings>,
    /// `None` if they may have changed since.
    read_at: Option<Instant>,
}

impl LocalLimiter {
    pub(super) fn new(store: Arc<MemoryClient>, keys: Arc<Keys>) -> Self {
        Self {
            store,
            keys,
            known: Mutex::default(),
            recent: Mutex::default(),
            queue: OnceLock::new(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing panics while the lock is held.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the limiter's rate in the store.
    pub(super) fn learn(&self, rate: Option<Rate>) {
        // A rate that cannot be stored does not exist.
        let valid = rate.and_then(|rate| rate.validate().ok());
        *self.known() = Known {
            settings: valid.map(Settings::from),
            read_at: Some(Instant::now()),
        };
    }

    /// Notes the rate that an answer contained.
    pub(super) fn learn_limit(&self, limit: u64) {
        let mut known = self.known();
        if known
            .settings
            .is_none_or(|it| it.rate.unsigned_abs() != limit)
        {
            known.read_at = None;
        }
    }

    /// The settings are about to be read: if some are known, no other request has to.
    pub(super) fn start_reading(&self) {
        let mut known = self.known();
        if known.settings.is_some() {
            known.read_at = Some(Instant::now());
        }
    }

    /// The settings may have changed.
    pub(super) fn forget(&self) {
        self.known().read_at = None;
    }

    /// Whether the settings must be read.
    pub(super) fn is_stale(&self) -> bool {
        self.known()
            .read_at
            .is_none_or(|read_at| read_at.elapsed() >= FRESH)
    }

    /// The limiter's settings in the store, if known.
    pub(super) fn settings(&self) -> Option<Settings> {
        self.known().settings
    }

    /// The same, unless this client saw them long ago, or may have changed them since.
    pub(super) fn recent_settings(&self) -> Option<Settings> {
        self.settings().filter(|_| !self.is_stale())
    }

    /// Notes permits that the store granted: they count toward the share with these settings.
    pub(super) fn note_granted(&self, permits: u32, share: SetUp) {
        let now = self.store.now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.note(now, permits, share.settings.interval);
    }

    /// Charges the share for what the store granted recently.
    fn charge_recent(&self, share: SetUp) {
        let now = self.store.now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for (score, permits) in recent.take(now) {
            // No more than the share has.
            let mut left = permits.min(share.settings.rate.unsigned_abs());
            while left > 0 {
                let permits = u32::try_from(left).unwrap_or(u32::MAX);
                let grant = Grant {
                    score,
                    call_id: new_call_id(),
                    permits,
                    origin: Origin::Local,
                };
                self.store.charge(&self.keys, share, &grant);
                left -= u64::from(permits);
            }
        }
    }

    /// Decides now.
    pub(super) async fn check(&self, permits: u32, share: SetUp) -> Result<Decision> {
        self.charge_recent(share);
        match self.queue().check(permits, Some(share)).await {
            Ok(decision) => Ok(decision.by_failure_policy(Origin::Local)),
            Err(Error::PermitsExceedRate { rate, .. }) => Ok(super::denied(rate)),
            Err(error) => Err(error),
        }
    }

    /// Waits for its turn, at its place in the limiter's own queue; for ever if the share is too small.
    pub(super) async fn wait(
        &self,
        place: u64,
        permits: u32,
        until: Option<Instant>,
        share: SetUp,
    ) -> Result<bool> {
        self.charge_recent(share);
        let set_up = Arc::new(move || Some(share));
        let waiting = self.queue().wait_again(place, permits, until, Some(set_up));
        match waiting.await {
            Err(Error::PermitsExceedRate { .. }) => match until {
                Some(until) => {
                    tokio::time::sleep_until(until).await;
                    Ok(false)
                }
                None => std::future::pending().await,
            },
            waited => waited,
        }
    }

    pub(super) async fn refund(&self, grant: &Grant) -> Result<u32> {
        let refunded = match self.queue().store().refund(grant).await {
            Err(Error::NotInitialized { .. }) => Ok(0), // its window has passed
            refunded => refunded,
        };
        self.queue().permits_freed();
        refunded
    }

    pub(super) async fn release(&self, permits: u32) -> Result<()> {
        let released = match self.queue().store().release(permits).await {
            Err(Error::NotInitialized { .. }) => Ok(()), // nothing is in use
            released => released,
        };
        self.queue().permits_freed();
        released
    }

    fn queue(&self) -> &WaitQueue {
        let new = || WaitQueue::new(self.store.limiter(Arc::clone(&self.keys)));
        self.queue.get_or_init(new)
    }
}
