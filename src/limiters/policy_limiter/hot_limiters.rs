//! The leases of an RRateLimiter for each key: those of the keys that are asked for again and
//! again, in bounded memory however many keys there are.
//!
//! A key becomes hot when it is asked for again soon, and is no longer hot when it is idle and
//! others come: so keys that are asked for once take no memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::after;
use crate::decision::Decision;
use crate::error::Result;
use crate::limiters::{Lease, RateLimiter};
use crate::lock::Lock;
use crate::name_hash::NameHash;
use crate::permit::CallId;
use crate::window::{Acquired, SetUp};

/// How many requests a key needs in the time of two leases to be leased. A lease costs two calls of
/// its own, while requests of different keys share a call.
const FEWEST_USES: u64 = 16;

const SMALLEST_SWEEP: usize = 64;

/// The longest time between two searches for idle keys while as many keys as possible are hot,
/// however long leases may be.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most hot keys.
const MOST_KEYS: usize = 16_384;

/// The number of places by hash in which the key that was last asked for is remembered.
const ASKED: usize = 4_096;

/// The limiters of hot keys, by their names after the name mapper. Their leases end when this is
/// dropped.
pub(super) struct HotLimiters {
    lease: Lease,
    hot: RwLock<Hot>,
    /// By place, the hash of the name that was last asked for and is not hot.
    asked: Box<[AtomicU64]>,
}

#[derive(Default)]
struct Hot {
    by_name: HashMap<Arc<str>, Arc<HotLimiter>>,
    sweep_at: usize,
    swept_at: Option<Instant>,
}

/// The limiter of a hot key; it may have leases while this exists.
struct HotLimiter {
    leased: RateLimiter,
    /// When the key stops being hot, unless another request of it goes to Redis before.
    idle_at: Lock<Instant>,
}

impl HotLimiters {
    pub(super) fn new(lease: Lease) -> Self {
        Self {
            lease,
            hot: RwLock::default(),
            asked: (0..ASKED).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Extends the settings of a limiter that may be leased by room for its leases.
    pub(super) fn set_up(&self, set_up: Option<SetUp>) -> Option<SetUp> {
        set_up.map(|it| it.with_room_for(self.lease.longest()))
    }

    /// Ends all leases, because the limiters get other settings. The keys stay hot, so that a
    /// request which finds too few permits waits for what the leases give back.
    pub(super) fn end(&self) {
        let hot = self.hot.read().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = hot.by_name.values().map(Arc::clone).collect();
        drop(hot);
        for hot in all {
            hot.leased.queue.unguarded.end_leases();
        }
    }

    fn get(&self, name: &str) -> Option<Arc<HotLimiter>> {
        // The map stays whole whatever panics elsewhere.
        let hot = self.hot.read().unwrap_or_else(PoisonError::into_inner);
        hot.by_name.get(name).map(Arc::clone)
    }

    /// What a lease of the limiter grants.
    #[inline]
    pub(super) fn acquire(
        &self,
        name: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        match self.get(name) {
            Some(hot) => hot.leased.acquire_now(permits, set_up),
            None => Ok(None),
        }
    }

    /// What a lease of the limiter would grant.
    pub(super) fn peek(
        &self,
        name: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<Result<Decision>> {
        let hot = self.get(name)?;
        hot.leased.queue.peek_leased(permits, set_up)
    }

    /// Notes that a request of this limiter goes to Redis because no lease has its permits.
    pub(super) fn ask(&self, limiter: &RateLimiter, set_up: Option<SetUp>) {
        let interval = set_up.map_or(Duration::MAX, |it| it.settings.quota().window);
        let slice = self.lease.longest().min(interval / 2);
        let idle_at = after(Instant::now(), slice.saturating_mul(2));
        match self.get(limiter.name()) {
            Some(hot) => *hot.idle_at.lock() = idle_at,
            None if self.is_asked_again(limiter.name()) => self.add(limiter, idle_at),
            None => {}
        }
    }

    /// Whether the key was asked for before, and since then no other key with the same place.
    fn is_asked_again(&self, name: &str) -> bool {
        let hash = NameHash::of(name).bits();
        let place = &self.asked[hash as usize % ASKED];
        place.swap(hash, Ordering::Relaxed) == hash
    }

    /// Makes the key hot, if there is room for it.
    fn add(&self, limiter: &RateLimiter, idle_at: Instant) {
        let mut idle = Vec::new(); // dropped once the lock is released
        let mut hot = self.hot.write().unwrap_or_else(PoisonError::into_inner);
        if hot.by_name.len() >= hot.sweep_at {
            let pause = self.lease.longest().min(LONGEST_PAUSE);
            match hot.sweep(pause, Instant::now()) {
                Some(removed) => idle = removed,
                None => return,
            }
        }
        let entry = hot.by_name.entry(limiter.name().into());
        let added = entry.or_insert_with(|| {
            Arc::new(HotLimiter {
                leased: limiter.clone().leased_from(FEWEST_USES, self.lease),
                idle_at: Lock::new(idle_at),
            })
        });
        *added.idle_at.lock() = idle_at;
        drop(hot);
        drop(idle);
    }
}

impl Hot {
    /// Removes idle keys, and returns their limiters; `None` if there is no room for another one
    /// then.
    fn sweep(&mut self, pause: Duration, now: Instant) -> Option<Vec<Arc<HotLimiter>>> {
        let is_full = self.by_name.len() >= MOST_KEYS;
        if is_full && self.swept_at.is_some_and(|at| now < at + pause) {
            return None;
        }
        self.swept_at = Some(now);
        let idle = self.by_name.extract_if(|_, hot| hot.is_idle(now));
        let idle: Vec<_> = idle.map(|(_, hot)| hot).collect();
        self.sweep_at = SMALLEST_SWEEP.max(self.by_name.len() * 2).min(MOST_KEYS);
        (self.by_name.len() < MOST_KEYS).then_some(idle)
    }
}

impl HotLimiter {
    fn is_idle(&self, now: Instant) -> bool {
        now >= *self.idle_at.lock() && !self.leased.queue.unguarded.is_leased()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedissonClient;

    fn ask(hot: &HotLimiters, client: &RedissonClient, name: &str, times: usize) {
        let limiter = client.rate_limiter(name);
        for _ in 0..times {
            hot.ask(&limiter, None);
        }
    }

    /// Asks for a key so many times, and returns how many are hot then.
    fn hot_after(hot: &HotLimiters, client: &RedissonClient, name: &str, times: usize) -> usize {
        ask(hot, client, name, times);
        hot.hot.read().unwrap().by_name.len()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_take_bounded_memory_and_none_if_they_are_asked_for_once() {
        let hot = HotLimiters::new(Lease::up_to(Duration::from_secs(1)));
        let client = RedissonClient::in_memory();
        for number in 0..100_000 {
            ask(&hot, &client, &format!("once:{number}"), 1);
        }
        assert_eq!(hot_after(&hot, &client, "once", 1), 0);
        for number in 0..MOST_KEYS + 100 {
            ask(&hot, &client, &format!("twice:{number}"), 2);
        }
        assert_eq!(hot_after(&hot, &client, "twice", 2), MOST_KEYS);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_make_room_for_others_however_long_leases_may_be() {
        let hot = HotLimiters::new(Lease::up_to(Duration::from_secs(3600)));
        let client = RedissonClient::in_memory();
        for number in 0..MOST_KEYS + 2 {
            ask(&hot, &client, &number.to_string(), 2);
        }
        tokio::time::advance(Duration::from_secs(2 * 3600)).await;
        assert_eq!(hot_after(&hot, &client, "later", 2), 1);
    }
}
