//! One limiter's requests in this process: served by its queue while the store answers, otherwise
//! decided by the failure policy.

mod waiting;

use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::local_limiter::LocalLimiter;
use super::{LocalStore, RecentDenials, allowed, denied, named, over_store};
use crate::client_state::ClientState;
use crate::decision::{Decision, check_fits};
use crate::denials::Deniable;
use crate::error::{Error, Result};
use crate::event::QueueTime;
use crate::failure_policy::FailurePolicy;
use crate::grant::{Grant, Origin};
use crate::keys::Keys;
use crate::leases::{LeaseHold, LeasedQueue, Reserved};
use crate::limiter_options::LimiterOptions;
use crate::queue::Checked;
use crate::quota::Quota;
use crate::rate::Rate;
use crate::store::{LimiterStore, Store};
use crate::window::{SetUp, Settings};

#[derive(Debug)]
pub(crate) struct GuardedQueue {
    pub(crate) client_store: Arc<dyn Store>,
    /// Asked directly for what no failure policy decides.
    pub(crate) unguarded: LeasedQueue,
    local: Arc<LocalLimiter>,
    /// Whether [`RecentDenials`](super::RecentDenials) keeps it.
    pub(super) is_kept: AtomicBool,
    recent: Weak<RecentDenials>,
    pub(crate) client: Arc<ClientState>,
}

impl GuardedQueue {
    pub(crate) fn new(
        client_store: Arc<dyn Store>,
        local_store: Arc<LocalStore>,
        recent: &Arc<RecentDenials>,
        client: Arc<ClientState>,
        keys: Arc<Keys>,
    ) -> Self {
        let local = Arc::new(LocalLimiter::new(local_store, Arc::clone(&keys)));
        let counting = Arc::clone(&local);
        let count = move |permits, until, set_up| counting.note_granted(permits, until, set_up);
        Self {
            unguarded: LeasedQueue::new(client_store.limiter(keys), Box::new(count)),
            client_store,
            local,
            is_kept: AtomicBool::new(false),
            recent: Arc::downgrade(recent),
            client,
        }
    }

    pub(crate) fn local_store(&self) -> &Arc<LocalStore> {
        self.local.store()
    }

    #[inline]
    pub(crate) fn store(&self) -> &dyn LimiterStore {
        self.unguarded.store()
    }

    fn name(&self) -> &str {
        &self.store().keys().name
    }

    /// Notes the limiter's rate in the store.
    pub(crate) fn learn(&self, rate: Rate) {
        self.local.learn(Some(rate));
    }

    /// Notes that the rate may have changed.
    pub(crate) fn forget_rate(&self) {
        self.local.forget();
    }

    /// The settings that the limiter has in the store, if known.
    pub(crate) fn known_settings(&self) -> Option<Settings> {
        self.local.settings()
    }

    /// A remembered denial, the store's decision, or the failure policy's.
    pub(crate) async fn ask(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        options: &LimiterOptions,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        let deniable = Deniable::one(permits, set_up, options.denial_age());
        if let Some(denial) = deniable.and_then(|request| self.unguarded.remembered(&request)) {
            return Ok(denial);
        }
        // In a box of its own, so that a future that needs none of this is small.
        Box::pin(self.ask_guarded(permits, set_up, deniable, options.policy(), queue_time)).await
    }

    /// Asks the store, unless the breaker refuses, or decides by the failure policy.
    async fn ask_guarded(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        deniable: Option<Deniable>,
        policy: &FailurePolicy,
        queue_time: &QueueTime,
    ) -> Result<Decision> {
        self.local.store().note_use(policy);
        let is_error = policy.is_error();
        let call = self
            .unguarded
            .check_remembering(permits, set_up, deniable, queue_time);
        let asking = over_store(&*self.client_store, self.name(), is_error, call);
        let asked = match self.must_read_settings(set_up, policy) {
            true => Box::pin(self.while_reading_settings(asking)).await,
            false => asking.await,
        };
        match asked {
            Ok(Checked { decision, .. }) => {
                if !is_error {
                    self.local.learn_limit(decision.limit());
                }
                Ok(decision)
            }
            Err(error) if error.is_unavailable() => {
                self.check_fits(permits, set_up)?;
                let settings = self.local.settings_with(set_up);
                let quota = settings.map_or_else(Quota::default, Settings::quota);
                match policy {
                    FailurePolicy::Error | FailurePolicy::Wait => Err(error),
                    FailurePolicy::Deny => Ok(denied(quota)),
                    FailurePolicy::Allow => Ok(allowed(permits, quota)),
                    FailurePolicy::Local(share) => match settings {
                        Some(settings) => self.local.check(permits, share.of(settings)),
                        None => Ok(denied(quota)),
                    },
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the client keep the queue, and with it the last denial, while there is no handle on
    /// the limiter. Does nothing where denials are remembered for no time.
    pub(crate) fn keep_denial(self: &Arc<Self>, at_most: Duration) {
        if !at_most.is_zero()
            && let Some(recent) = self.recent.upgrade()
        {
            recent.keep(self);
        }
    }

    /// See [`LeasedQueue::hold_lease`].
    pub(crate) fn hold_lease(&self, up_to: Duration, fewest_uses: u64) -> Option<LeaseHold> {
        let hold = self.unguarded.hold_lease(up_to, fewest_uses);
        if self.client.is_closed() {
            self.unguarded.close_leases(); // the client may have found none to close
        }
        hold
    }

    /// What a lease would decide on a request.
    pub(crate) fn peek_leased(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<Result<Decision>> {
        let (id, answer) = self.unguarded.peek_leased(permits, set_up)?;
        let decided = self.unguarded.decided(id, permits, &answer);
        Some(decided.map(|mut decision| {
            if let Decision::Granted(granted) = &mut decision {
                granted.grant = Grant::of_nothing(permits);
            }
            decision
        }))
    }

    /// Gives a grant back where it was made.
    pub(crate) async fn refund(&self, grant: &Grant) -> Result<u32> {
        match grant.origin {
            Origin::Store => self.unguarded.refund(grant).await,
            Origin::Local => self.local.refund(grant).await,
            Origin::Nowhere => Ok(0),
        }
    }

    /// Takes permits for later. The failure policy does not decide this, but they count toward a
    /// share.
    pub(crate) async fn reserve(
        &self,
        permits: u32,
        within: i64,
        set_up: Option<SetUp>,
        policy: &FailurePolicy,
    ) -> Result<Option<Reserved>> {
        self.local.store().note_use(policy);
        let reserving = self.unguarded.reserve(permits, within, set_up);
        over_store(&*self.client_store, self.name(), true, reserving).await
    }

    /// Takes permits where a grant was made, whatever is available there: the request has used more
    /// than it was granted. A missing limiter gets these settings. An existing one keeps its own,
    /// which may be newer than the grant.
    pub(crate) async fn owe(
        &self,
        origin: Origin,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<()> {
        match origin {
            Origin::Store => {
                let mut owing = self.unguarded.owe(permits, None).await;
                if set_up.is_some() && matches!(owing, Err(Error::NotInitialized { .. })) {
                    owing = self.unguarded.owe(permits, set_up).await;
                }
                named(&*self.client_store, self.name(), owing)
            }
            Origin::Local => self.local.owe(permits).await,
            Origin::Nowhere => Ok(()),
        }
    }

    /// Gives back, in the background, a grant whose request is gone.
    pub(crate) fn give_back(&self, grant: Grant) {
        match grant.origin {
            Origin::Store => self.unguarded.give_back(grant),
            Origin::Local => self.local.give_back(&grant),
            Origin::Nowhere => {}
        }
    }

    pub(crate) async fn release(&self, permits: u32, policy: &FailurePolicy) -> Result<()> {
        let FailurePolicy::Local(_) = policy else {
            return self.store().release(permits).await;
        };
        let breaker = self.client_store.breaker(self.name());
        if breaker.is_none_or(|breaker| breaker.would_admit()) {
            match self.store().release(permits).await {
                Err(error) if error.is_unavailable() => {}
                released => return released,
            }
        }
        self.local.release(permits).await
    }

    /// Makes a request, and meanwhile reads the limiter's settings for the local limiter. The
    /// request does not wait for them: if it ends first, the next one reads them.
    async fn while_reading_settings<T>(&self, request: impl Future<Output = T>) -> T {
        let started = self.local.start_reading();
        let reading = async {
            let call = self.store().config();
            let is_error = false; // the policy is `Local`
            let read = over_store(&*self.client_store, self.name(), is_error, call).await;
            // If it fails, the request finds out what is wrong.
            if let Ok(rate) = read {
                started.learn(rate);
            }
        };
        let mut request = pin!(request);
        tokio::select! {
            biased;
            // The reading is sent first, so its answer arrives first.
            () = reading => {}
            answer = &mut request => return answer,
        }
        request.await
    }

    /// Whether the local limiter needs settings that are unknown, and the store answers.
    fn must_read_settings(&self, set_up: Option<SetUp>, policy: &FailurePolicy) -> bool {
        if !matches!(policy, FailurePolicy::Local(_))
            || set_up.and_then(SetUp::replacing).is_some()
            || !self.local.is_stale()
        {
            return false;
        }
        let breaker = self.client_store.breaker(self.name());
        breaker.is_some_and(|breaker| breaker.is_healthy())
    }

    /// Refuses permits that the store would refuse, as far as is known.
    fn check_fits(&self, permits: u32, set_up: Option<SetUp>) -> Result<()> {
        match self.local.settings_with(set_up) {
            Some(settings) => check_fits(self.name(), permits, settings.rate),
            None => Ok(()),
        }
    }

    /// Counts what the store granted otherwise than by this queue toward this client's share.
    pub(super) fn note_granted(&self, permits: u32) {
        self.local.note_granted(permits, Instant::now(), None);
    }
}
