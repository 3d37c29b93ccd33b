//! A client's share of one limiter, granted in this process while the store is down.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{LocalStore, denied};
use crate::decision::{Decision, decision_alone};
use crate::error::{Error, Result};
use crate::grant::{Grant, Origin};
use crate::keys::Keys;
use crate::lock::Lock;
use crate::rate::Rate;
use crate::store::{AcquireCall, LimiterStore, Store};
use crate::window::{Requests, SetUp, Settings};

/// How long the settings of a limiter are used without reading them again.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct LocalLimiter {
    store: Arc<LocalStore>,
    keys: Arc<Keys>,
    known: Lock<Known>,
}

/// The limiter's settings in the store, as this client last saw them.
#[derive(Debug, Default)]
struct Known {
    settings: Option<Settings>,
    /// When the settings were read; `None` if they may have changed since.
    read_at: Option<Instant>,
    /// What the store granted while the settings were unknown: until when it may be used, which
    /// orders it, and how many permits. It is counted once the settings are known.
    uncounted: Vec<(Instant, u32)>,
}

/// The most entries in [`Known::uncounted`]. If there are more, two grants that were made nearly as
/// long ago become one, which counts as made when the later one was.
const MOST_UNCOUNTED: usize = 32;

impl Known {
    fn keep_uncounted(&mut self, permits: u32, until: Instant) {
        let now = Instant::now();
        let place = self.uncounted.partition_point(|(other, _)| *other <= until);
        self.uncounted.insert(place, (until, permits));
        if self.uncounted.len() <= MOST_UNCOUNTED {
            return;
        }
        let age = |place: usize| (now - self.uncounted[place].0).as_secs_f64();
        let ratio = |earlier: usize| (age(earlier) - age(earlier + 1)) / age(earlier).max(1e-9);
        let places = 0..self.uncounted.len() - 1;
        let earlier = places.min_by(|one, other| ratio(*one).total_cmp(&ratio(*other)));
        if let Some(earlier) = earlier {
            let (_, permits) = self.uncounted.remove(earlier);
            let later = &mut self.uncounted[earlier].1;
            *later = later.saturating_add(permits);
        }
    }
}

/// A reading of the settings. If it is dropped before they are learned, the next request reads
/// them.
pub(super) struct Reading<'a> {
    local: Option<&'a LocalLimiter>,
}

impl Reading<'_> {
    pub(super) fn learn(mut self, rate: Option<Rate>) {
        if let Some(local) = self.local.take() {
            local.learn(rate);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(local) = self.local {
            local.forget();
        }
    }
}

impl LocalLimiter {
    pub(super) fn new(store: Arc<LocalStore>, keys: Arc<Keys>) -> Self {
        Self {
            store,
            keys,
            known: Lock::default(),
        }
    }

    pub(super) fn store(&self) -> &Arc<LocalStore> {
        &self.store
    }

    /// Notes the limiter's rate in the store.
    pub(super) fn learn(&self, rate: Option<Rate>) {
        let settings = rate.map(Settings::of);
        let mut known = self.known.lock();
        known.settings = settings;
        known.read_at = Some(Instant::now());
        if let (Some(settings), Some(share)) = (settings, self.store.share()) {
            let share = share.of(settings);
            for (at, permits) in known.uncounted.drain(..) {
                self.count(share, permits, at);
            }
        }
    }

    /// Notes the rate in an answer: if it is not the known one, the settings must be read.
    pub(super) fn learn_limit(&self, limit: u64) {
        let mut known = self.known.lock();
        if known
            .settings
            .is_none_or(|it| it.rate.unsigned_abs() != limit)
        {
            known.read_at = None;
        }
    }

    /// Starts to read the settings. If older ones are known, other requests use these meanwhile.
    pub(super) fn start_reading(&self) -> Reading<'_> {
        let mut known = self.known.lock();
        if known.settings.is_some() {
            known.read_at = Some(Instant::now());
        }
        Reading { local: Some(self) }
    }

    /// Notes that the settings may have changed.
    pub(super) fn forget(&self) {
        self.known.lock().read_at = None;
    }

    /// Whether the settings must be read.
    pub(super) fn is_stale(&self) -> bool {
        self.known
            .lock()
            .read_at
            .is_none_or(|read_at| read_at.elapsed() >= FRESH)
    }

    /// The limiter's settings in the store, if known.
    pub(super) fn settings(&self) -> Option<Settings> {
        self.known.lock().settings
    }

    /// The limiter's settings after a request with this set-up, if known.
    pub(super) fn settings_with(&self, set_up: Option<SetUp>) -> Option<Settings> {
        match set_up.and_then(SetUp::replacing) {
            Some(set_up) => Some(set_up.settings),
            None => self.settings().or(set_up.map(|it| it.settings)),
        }
    }

    /// Counts permits that the store granted, and that may be used until `until`, toward the share.
    /// The share is computed from the set-up, or else from the known settings. Permits that go back
    /// to the store count too.
    pub(super) fn note_granted(&self, permits: u32, until: Instant, set_up: Option<SetUp>) {
        let Some(share) = self.store.share() else {
            return;
        };
        match self.settings_with(set_up) {
            Some(settings) => self.count(share.of(settings), permits, until),
            None => self.known.lock().keep_uncounted(permits, until),
        }
    }

    fn count(&self, share: SetUp, permits: u32, until: Instant) {
        let Keys {
            name, client_id, ..
        } = &*self.keys;
        self.store.count(name, client_id, share, permits, until);
    }

    /// Decides a request by the share.
    pub(super) fn check(&self, permits: u32, share: SetUp) -> Result<Decision> {
        self.store.start_shrinking();
        let Keys {
            name, client_id, ..
        } = &*self.keys;
        let memory = self.store.memory();
        match memory.acquire_now(name, client_id, permits, Some(share)) {
            Ok(Some((id, answer))) => {
                let decision = decision_alone(name, id, permits, &answer)?;
                Ok(decision.by_failure_policy(Origin::Local))
            }
            // The local limiter has no queue, so `None` does not occur.
            Ok(None) | Err(Error::ExceedsLimit { .. }) => Ok(denied(share.settings.quota())),
            Err(error) => Err(error),
        }
    }

    fn limiter(&self) -> Arc<dyn LimiterStore> {
        self.store.memory().limiter(Arc::clone(&self.keys))
    }

    pub(super) async fn refund(&self, grant: &Grant) -> Result<u32> {
        match self.limiter().refund(grant).await {
            Err(Error::NotInitialized { .. }) => Ok(0), // its window has passed
            refunded => refunded,
        }
    }

    pub(super) async fn owe(&self, permits: u32) -> Result<()> {
        let limiter = self.limiter();
        let call = AcquireCall::new(Requests::debt(permits));
        match limiter.acquire(&call, limiter.call_deadline()).await {
            Err(Error::NotInitialized { .. }) => Ok(()), // the outage is over, and its grants have expired
            taken => taken.map(|_answer| ()),
        }
    }

    /// Gives back a grant of a waiter that has left.
    pub(super) fn give_back(&self, grant: &Grant) {
        self.limiter()
            .refund_unclaimed(grant.clone(), Box::new(|| ()));
    }

    pub(super) async fn release(&self, permits: u32) -> Result<()> {
        match self.limiter().release(permits).await {
            Err(Error::NotInitialized { .. }) => Ok(()), // nothing is in use
            released => released,
        }
    }
}
