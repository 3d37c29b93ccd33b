//! One limiter: the model, alone under its lock, and its fast path.
//!
//! The clock is read before the lock is taken, so that the lock is held for a shorter time. In
//! between another thread may make a step at a later time. So a limiter remembers the latest time
//! of a step, and makes no step at an earlier time.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::fast_path::{FastPath, StripePermits};
use super::lock::lock;
use crate::error::{Error, Result};
use crate::permit::{CallId, Names};
use crate::policies::algorithm::AnyState;
use crate::policies::stored_target::{Closed, Name};
use crate::policies::target_keys::TargetKeys;
use crate::rate::RateType;
use crate::store::{AcquireCall, OnFreed};
use crate::window::{Acquire, Acquired, At, NotInitialized, Requests, SetUp, Timed, Window};

/// One limiter, whether it exists or not. A handle has a reference to it. While there is one, the
/// map keeps the limiter, so that no name ever has two limiters.
#[derive(Debug)]
pub(super) struct StoredLimiter {
    pub(super) name: Name,
    pub(super) fast_path: FastPath,
    /// How many drivers of all clients have waiters.
    pub(super) drivers: AtomicUsize,
    /// How often its settings have changed.
    pub(super) changes: AtomicU64,
    /// The drivers that are called when another client has freed permits.
    waiting: Mutex<Vec<Waiting>>,
    held: Mutex<Held>,
}

/// A driver of a client.
#[derive(Debug)]
struct Waiting {
    client_id: String,
    on_freed: Weak<OnFreed>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) window: Window,
    /// The rate at which the grants were last summed; 0 if they never were. Only this crate changes
    /// the state, so summing them once for each rate is enough.
    audited_rate: i64,
    /// The rate per client from which the permits left of each client were last computed; 0 if
    /// there was none.
    client_rate: i64,
    names: Names,
    /// The state of the last other kind of limiter that was used under this name.
    pub(super) other: Option<AnyState>,
    /// The keys of kinds that were used under this name before `other`.
    pub(super) closed: Option<Box<TargetKeys>>,
    /// Set while the target is locked out by a penalty.
    pub(super) lock: Timed<()>,
    /// The latest time of a step, in ms of the store's clock.
    pub(super) latest: i64,
    /// What the open fast path has reserved.
    pub(super) reserved: Option<StripePermits>,
    /// How often the lock was taken.
    times: u32,
    /// `times` and the time in ms when the last request was decided that the fast path could have
    /// answered.
    last_plain: (u32, i64),
}

impl StoredLimiter {
    pub(super) fn new(name: Name) -> Self {
        Self {
            name,
            fast_path: FastPath::default(),
            drivers: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            waiting: Mutex::default(),
            held: Mutex::new(Held {
                window: Window::default(),
                audited_rate: 0,
                client_rate: 0,
                names: Names::new(),
                other: None,
                closed: None,
                lock: Timed::default(),
                latest: i64::MIN,
                reserved: None,
                times: 0,
                last_plain: (0, 0),
            }),
        }
    }

    /// A limiter with the state that a target of this name had.
    pub(super) fn of_target(name: Name, closed: Closed) -> Self {
        let mut limiter = Self::new(name);
        let held = limiter.held.get_mut();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        held.closed = closed.keys.is_left().then(|| Box::new(closed.keys));
        (held.lock, held.latest) = (closed.lock, closed.latest);
        limiter
    }

    /// See [`LimiterStore::watch`](crate::store::LimiterStore::watch).
    pub(super) fn watch(&self, client_id: &str, on_freed: &Arc<OnFreed>) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|it| it.on_freed.strong_count() > 0);
        waiting.push(Waiting {
            client_id: client_id.to_owned(),
            on_freed: Arc::downgrade(on_freed),
        });
    }

    /// Tells the other clients' drivers that this client has freed permits, and how many are
    /// available. The caller holds no lock.
    pub(super) fn freed(&self, client_id: &str, available: i64) {
        let waiting = lock(&self.waiting);
        let others = waiting.iter().filter(|it| it.client_id != client_id);
        let others: Vec<_> = others.filter_map(|it| it.on_freed.upgrade()).collect();
        drop(waiting);
        for on_freed in others {
            on_freed(available);
        }
    }

    /// Whether nothing is left of it. The fast path need not be closed first: grants that were made
    /// there expire no later than the grant of the request that opened it.
    pub(super) fn is_gone(&mut self, server: i64) -> bool {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        held.is_gone(server)
    }

    /// Locks the limiter and closes its fast path.
    #[inline]
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = lock(&self.held);
        held.times = held.times.wrapping_add(1);
        if let Some(reserved) = held.reserved.take() {
            held.write_down(reserved.millis, self.fast_path.close(reserved));
        }
        held.apply_client_rate();
        held
    }

    /// Runs one step of an RRateLimiter of this name under the lock. `passed` is the time by the
    /// client's clock if it has its own, `read` by the store's.
    #[inline]
    pub(super) fn with<T>(
        &self,
        name: &str,
        passed: Option<i64>,
        read: i64,
        step: impl FnOnce(&mut Held, At) -> Result<T, NotInitialized>,
    ) -> Result<T> {
        let mut held = self.held();
        let server = held.time(read);
        let now = passed.unwrap_or(server);
        if held.other.is_some() || held.closed.is_some() {
            held.check_kind(name, server)?;
        }
        let before = held.window.settings.get().copied();
        let answer = step(&mut held, At { now, server });
        if held.window.settings.get() != before.as_ref() {
            self.changes.fetch_add(1, Ordering::Release);
        }
        if let Some(reserved) = held.reserved {
            self.fast_path.open(reserved);
        }
        answer.map_err(|NotInitialized| Error::not_initialized(name))
    }
}

impl Held {
    /// The time of a step, in ms, if the clock showed `read` before the lock was taken: no earlier
    /// than that of the step before.
    #[inline]
    pub(super) fn time(&mut self, read: i64) -> i64 {
        self.latest = self.latest.max(read);
        self.latest
    }

    /// Decides requests that come without an [`AcquireCall`].
    #[inline]
    fn acquire_requests(
        &mut self,
        at: At,
        client: &str,
        call_id: CallId,
        requests: Requests,
        set_up: Option<SetUp>,
    ) -> Result<Acquired, NotInitialized> {
        self.acquire(
            at,
            client,
            Acquire {
                id: call_id,
                audited_rate: self.audited_rate(),
                requests,
                newer_than: None,
                set_up,
                ahead: None,
            },
        )
    }

    pub(super) fn acquire_call(
        &mut self,
        at: At,
        client: &str,
        call: &AcquireCall,
    ) -> Result<Acquired, NotInitialized> {
        let call = call.audited_at(self.audited_rate());
        self.acquire(at, client, call)
    }

    #[inline]
    pub(super) fn audited_rate(&self) -> Option<i64> {
        Some(self.audited_rate).filter(|&rate| rate > 0)
    }

    /// Corrects the permits left of each client after one of them has changed the rate. In memory
    /// all clients are known; in Redis each finds the new rate in its next call.
    #[inline]
    fn apply_client_rate(&mut self) {
        let Some(settings) = self.window.settings.get() else {
            return;
        };
        let rate = settings.rate;
        if settings.rate_type == RateType::PerClient && self.client_rate != rate {
            self.window.state_client_rate(rate);
            self.client_rate = rate;
        }
    }

    #[inline]
    fn acquire(&mut self, at: At, client: &str, call: Acquire) -> Result<Acquired, NotInitialized> {
        let answer = self.window.acquire(at, client, &call)?;
        if answer.counted > 0 || answer.audit_due {
            self.audited_rate = answer.rate;
        }
        Ok(answer)
    }

    /// Decides one request, and returns the id that it made for the call and the answer.
    pub(super) fn acquire_one(
        &mut self,
        at: At,
        client: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<(CallId, Acquired), NotInitialized> {
        let call_id = self.names.next();
        let requests = Requests::one(permits);
        let answer = self.acquire_requests(at, client, call_id, requests, set_up)?;
        Ok((call_id, answer))
    }

    /// Reserves the permits that a request left for the fast path, which is opened with them: if
    /// the request before was also one that the fast path could have answered, in the same
    /// millisecond. Opening takes as long as a decision, which pays only if more such requests
    /// follow. Permits of a single client, and those of another clock, are not reserved.
    pub(super) fn reserve(&mut self, at: At, permits: u32, answer: &Acquired) {
        let this = (self.times, at.now);
        let last = std::mem::replace(&mut self.last_plain, this);
        if last != (self.times.wrapping_sub(1), at.now) {
            return;
        }
        let settings = self.window.settings.get();
        let is_shared = settings.is_some_and(|it| it.rate_type == RateType::Overall);
        // The answer does not have all that is available if the request was for more than the rate,
        // or if more grants have expired.
        let is_exact = !answer.has_more && i64::from(permits) <= answer.rate;
        if is_shared && at.now == at.server && is_exact {
            let taken = Requests::one(permits).taken(answer);
            self.reserved = StripePermits::of_each(at.now, answer.available - taken);
        }
    }

    /// Grants in the model what was taken on the fast path. The model would have granted it at that
    /// time, and nothing was decided since.
    fn write_down(&mut self, millis: i64, taken: u32) {
        if taken == 0 {
            return;
        }
        let at = At {
            now: millis,
            server: millis,
        };
        let call_id = self.names.next();
        // All clients share the permits, so any client will do.
        let answer = self.acquire_requests(at, "", call_id, Requests::one(taken), None);
        debug_assert!(answer.is_ok_and(|answer| answer.available >= i64::from(taken)));
    }
}
