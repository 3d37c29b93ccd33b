//! The keys that are asked for again and again, and what is kept for each of them, in bounded
//! memory however many keys there are.
//!
//! A key gets its place when it is asked for again soon, and loses it when it is idle and others
//! come: so keys that are asked for once take no memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::name_hash::NameHash;

const SMALLEST_SWEEP: usize = 64;

/// The longest time between two searches for idle keys while all places are taken, however long
/// leases may be.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most keys with a place.
const MOST_KEYS: usize = 16_384;

/// The number of places by hash in which the key that was last asked for is remembered.
const ASKED: usize = 4_096;

/// What is kept for a key.
pub(crate) trait Kept {
    /// Whether it may be dropped when another key needs its place.
    fn is_idle(&self, now: Instant) -> bool;
}

pub(crate) struct HotKeys<T> {
    places: RwLock<Places<T>>,
    /// The shortest time between two searches for idle keys while all places are taken.
    sweep_every: Duration,
    /// By place, the hash of the key that was last asked for and had nothing kept for it.
    asked: Box<[AtomicU64]>,
}

struct Places<T> {
    by_key: HashMap<Arc<str>, Arc<T>>,
    sweep_at: usize,
    swept_at: Option<Instant>,
}

impl<T: Kept> HotKeys<T> {
    pub(crate) fn new(sweep_every: Duration) -> Self {
        Self {
            places: RwLock::new(Places {
                by_key: HashMap::new(),
                sweep_at: 0,
                swept_at: None,
            }),
            sweep_every: sweep_every.min(LONGEST_PAUSE),
            asked: (0..ASKED).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Places<T>> {
        // The map stays whole whatever panics elsewhere.
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Places<T>> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<T>> {
        self.read().by_key.get(key).map(Arc::clone)
    }

    /// Notes that the key was asked for. Returns what is kept for it, which `make` makes if the key
    /// was asked for again. `None` if it was not, or no place is free.
    pub(crate) fn ask(&self, key: &str, make: impl FnOnce() -> T) -> Option<Arc<T>> {
        if let Some(kept) = self.get(key) {
            return Some(kept);
        }
        if !self.is_asked_again(key) {
            return None;
        }
        let mut idle = Vec::new(); // dropped once the lock is released
        let mut places = self.write();
        if places.by_key.len() >= places.sweep_at {
            idle = places.sweep(self.sweep_every, Instant::now())?;
        }
        let make = || Arc::new(make());
        let kept = places.by_key.entry(key.into()).or_insert_with(make);
        let kept = Arc::clone(kept);
        drop(places);
        drop(idle);
        Some(kept)
    }

    /// Whether the key was asked for before, and since then no other key with the same place.
    fn is_asked_again(&self, key: &str) -> bool {
        let hash = NameHash::of(key).bits();
        let place = &self.asked[hash as usize % ASKED];
        place.swap(hash, Ordering::Relaxed) == hash
    }

    /// What is kept for all keys.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.read().by_key.values().map(Arc::clone).collect()
    }
}

impl<T: Kept> Places<T> {
    /// Removes idle keys. Returns what was kept for them; `None` if no place is free then.
    fn sweep(&mut self, every: Duration, now: Instant) -> Option<Vec<Arc<T>>> {
        let is_full = self.by_key.len() >= MOST_KEYS;
        if is_full && self.swept_at.is_some_and(|at| now < at + every) {
            return None;
        }
        self.swept_at = Some(now);
        let idle = self.by_key.extract_if(|_, kept| kept.is_idle(now));
        let idle: Vec<_> = idle.map(|(_, kept)| kept).collect();
        self.sweep_at = SMALLEST_SWEEP.max(self.by_key.len() * 2).min(MOST_KEYS);
        (self.by_key.len() < MOST_KEYS).then_some(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that is idle a minute after it was made.
    struct Key(Instant);

    impl Kept for Key {
        fn is_idle(&self, now: Instant) -> bool {
            now >= self.0 + Duration::from_secs(60)
        }
    }

    fn ask(keys: &HotKeys<Key>, key: &str, times: usize) {
        for _ in 0..times {
            keys.ask(key, || Key(Instant::now()));
        }
    }

    /// Asks for a key `times` times, and returns how many keys have a place then.
    fn places_after(keys: &HotKeys<Key>, key: &str, times: usize) -> usize {
        ask(keys, key, times);
        keys.all().len()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_take_bounded_memory_and_none_if_they_are_asked_for_once() {
        let keys = HotKeys::new(Duration::from_secs(1));
        for number in 0..100_000 {
            ask(&keys, &format!("once:{number}"), 1);
        }
        assert_eq!(places_after(&keys, "once", 1), 0);
        for number in 0..MOST_KEYS + 100 {
            ask(&keys, &format!("twice:{number}"), 2);
        }
        assert_eq!(places_after(&keys, "twice", 2), MOST_KEYS);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_make_room_for_others_however_long_leases_may_be() {
        let keys = HotKeys::new(Duration::MAX);
        for number in 0..MOST_KEYS + 2 {
            ask(&keys, &number.to_string(), 2);
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(places_after(&keys, "later", 2), 1);
    }
}
