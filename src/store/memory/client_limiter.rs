//! One limiter of a memory store, as one client uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::client::MemoryClient;
use super::limiter::{Held, StoredLimiter};
use crate::box_future::BoxFuture;
use crate::clock::millis;
use crate::decision::is_granted;
use crate::error::Result;
use crate::grant::Grant;
use crate::keys::Keys;
use crate::permit::CallId;
use crate::rate::Rate;
use crate::store::{
    AcquireCall, IfMissing, LimiterChange, LimiterStore, OnDone, OnFreed, PermitsInUse, Store,
    Task, TimeToLive,
};
use crate::window::{Acquired, At, NotInitialized, SetUp, Settings, Settlement, Window};

#[derive(Debug)]
pub(super) struct MemoryLimiter {
    client: MemoryClient,
    limiter: Arc<StoredLimiter>,
    keys: Arc<Keys>,
    /// How many drivers of this client have waiters.
    drivers: AtomicUsize,
}

impl MemoryLimiter {
    pub(super) fn new(client: &MemoryClient, keys: Arc<Keys>) -> Self {
        Self {
            client: client.clone(),
            limiter: client.store.limiter(&keys.name),
            keys,
            drivers: AtomicUsize::new(0),
        }
    }

    /// Runs one step on the limiter under its lock.
    #[inline]
    fn with<T>(&self, step: impl FnOnce(&mut Held, At) -> Result<T, NotInitialized>) -> Result<T> {
        let passed = self.client.clock.now();
        // Before the lock, which is then held for a shorter time.
        let read = self.client.store.0.request_time();
        self.limiter.with(&self.keys.name, passed, read, step)
    }

    pub(super) fn step<T>(&self, step: impl FnOnce(&mut Window, At) -> T) -> Result<T> {
        self.with(|held, at| Ok(step(&mut held.window, at)))
    }

    pub(super) fn acquire_call(&self, call: &AcquireCall) -> Result<Acquired> {
        let answer = self.with(|held, at| held.acquire_call(at, &self.keys.client_id, call))?;
        self.client
            .reports
            .left(&self.keys.name, call.set_up, answer.other_settings());
        Ok(answer)
    }

    pub(super) fn refund_now(&self, grant: &Grant) -> Result<u32> {
        self.freeing(|held, at| {
            let (client, audited_rate) = (&self.keys.client_id, held.audited_rate());
            held.window.refund(at, client, grant, audited_rate)
        })
    }

    /// Runs a step that may free permits, and tells other clients' waiters how many are available.
    fn freeing<T>(
        &self,
        step: impl FnOnce(&mut Held, At) -> Result<T, NotInitialized>,
    ) -> Result<T> {
        let client = &self.keys.client_id;
        let mut available = None;
        let done = self.with(|held, at| {
            let done = step(held, at)?;
            if self.may_have_peers() {
                let found = held.window.available_permits(at, client);
                // If the limiter is gone, its waiters are woken, so that they learn of it.
                available = Some(found.unwrap_or(i64::MAX));
            }
            Ok(done)
        })?;
        if let Some(available) = available {
            self.limiter.freed(client, available);
        }
        Ok(done)
    }
}

impl LimiterStore for MemoryLimiter {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn client(&self) -> &dyn Store {
        &self.client
    }

    fn may_have_peers(&self) -> bool {
        self.limiter.drivers.load(Ordering::Relaxed) > self.drivers.load(Ordering::Relaxed)
    }

    fn wall_millis(&self) -> i64 {
        let passed = self.client.clock.now();
        passed.unwrap_or_else(|| self.client.store.0.clock.now())
    }

    fn changes(&self) -> u64 {
        self.limiter.changes.load(Ordering::Acquire)
    }

    fn watch(&self, on_freed: &Arc<OnFreed>) {
        self.limiter.watch(&self.keys.client_id, on_freed);
    }

    fn driver_started(&self) {
        self.limiter.drivers.fetch_add(1, Ordering::Relaxed);
        self.drivers.fetch_add(1, Ordering::Relaxed);
    }

    fn driver_ended(&self) {
        self.drivers.fetch_sub(1, Ordering::Relaxed);
        self.limiter.drivers.fetch_sub(1, Ordering::Relaxed);
    }

    fn acquire<'a>(
        &'a self,
        call: &'a AcquireCall,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move { self.acquire_call(call) })
    }

    fn decides_at_once(&self) -> bool {
        true
    }

    fn acquire_now(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        let Keys {
            name, client_id, ..
        } = &*self.keys;
        let acquired = self.with(|held, at| held.acquire_one(at, client_id, permits, set_up))?;
        self.client
            .reports
            .left(name, set_up, acquired.1.other_settings());
        Ok(Some(acquired))
    }

    fn try_acquire_now(&self, permits: u32) -> Result<Option<bool>> {
        if self.client.clock.is_the_stores() {
            let taken = self
                .limiter
                .fast_path
                .take(permits, || self.client.store.0.clock.now());
            if taken.is_some() {
                return Ok(taken);
            }
        }
        let answer = self.with(|held, at| {
            let (_, answer) = held.acquire_one(at, &self.keys.client_id, permits, None)?;
            held.reserve(at, permits, &answer);
            Ok(answer)
        })?;
        is_granted(&self.keys.name, permits, &answer).map(Some)
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        // The refund fails only if the limiter is gone, and its grants with it.
        let _ = self.refund_now(&grant);
        on_done();
    }

    fn reclaim(self: Arc<Self>, _call: Arc<AcquireCall>, on_done: OnDone) {
        // A call in memory is answered when it is decided.
        on_done();
    }

    fn run_in_background(&self, _task: Task) {
        // A call in memory is never left unanswered, so there is none to end.
    }

    fn refund<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move { self.refund_now(grant) })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            self.freeing(|held, at| {
                let (client, audited_rate) = (&self.keys.client_id, held.audited_rate());
                let window = &mut held.window;
                window.settle(at, client, lease, settlement, audited_rate)
            })
        })
    }

    fn release(&self, permits: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.freeing(|held, at| {
                let (client, audited_rate) = (&self.keys.client_id, held.audited_rate());
                let left = held.window.release(at, client, permits, audited_rate);
                left.map(drop)
            })
        })
    }

    fn hold(&self, millis: i64, call_id: CallId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.with(|held, at| {
                let audited_rate = held.audited_rate();
                let (window, client) = (&mut held.window, &self.keys.client_id);
                window.hold(at, client, millis, &call_id, audited_rate)
            })
        })
    }

    fn available_permits(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move {
            self.with(|held, at| held.window.available_permits(at, &self.keys.client_id))
        })
    }

    fn change(&self, change: LimiterChange) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let client = &*self.keys.client_id;
            self.freeing(|Held { window, .. }, at| {
                Ok(match change {
                    LimiterChange::TrySetRate(rate) => window.try_set_rate(at, client, rate),
                    LimiterChange::SetRate(rate) => {
                        window.set_rate(at, client, rate);
                        true
                    }
                    LimiterChange::UpdateRate(rate, in_use, if_missing) => {
                        let keep = in_use == PermitsInUse::Keep;
                        let only_existing = if_missing == IfMissing::DoNothing;
                        window.update_rate(at, client, rate, keep, only_existing)
                    }
                    LimiterChange::Expire(expiry, condition) => {
                        window.expire(client, at.server, expiry, condition)
                    }
                    LimiterChange::ClearExpire => window.clear_expire(client, at.server),
                })
            })
        })
    }

    fn config(&self) -> BoxFuture<'_, Result<Option<Rate>>> {
        Box::pin(async move {
            let settings = self.step(|window, at| window.config(at.server))?;
            Ok(settings.map(Settings::rate))
        })
    }

    fn remain_time_to_live(&self) -> BoxFuture<'_, Result<TimeToLive>> {
        Box::pin(async move {
            Ok(
                match self.step(|window, at| window.remain_time_to_live(at.server))? {
                    None => TimeToLive::Missing,
                    Some(None) => TimeToLive::Unlimited,
                    Some(Some(left)) => TimeToLive::Remaining(millis(left)),
                },
            )
        })
    }
}
