//! Limiters in this process: the pure model behind a lock, and a clock. What a limiter has left is taken without the lock
//! as long as the clock stands at one ms, see [`offer`].
//!
//! Each name's limiter has its own lock. Who holds a shard's lock may take a limiter's, never the other way round; who
//! needs several limiters at once has to find them all first and then lock them in the order of their names.

#[cfg(test)]
mod against_the_lock;
mod limiter;
mod lock;
mod offer;
mod targets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use limiter::{Held, Limiter};

use super::{IfMissing, State, Store, TimeToLive};
use crate::clock::{Clock, TokioClock};
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::model::{Answer, At, Condition, Expiry, NotInitialized, Requests, Settings, Window};
use crate::permit::Random;
use crate::policy::call::{Answers, Call};
use crate::rate::{Rate, ValidRate};

/// Limiters in memory. Clones share them, so several clients can.
///
/// ```
/// use redisson_rate_limiter::{MemoryStore, RRateLimiter, Rate, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let store = MemoryStore::new();
/// let a = RedissonClient::builder().in_memory(&store).rate_limiter("shared");
/// let b = RedissonClient::builder().in_memory(&store).rate_limiter("shared");
/// a.try_set_rate(Rate::overall(1, Duration::from_secs(60))).await?;
/// assert!(a.try_acquire(1).await?);
/// assert!(!b.try_acquire(1).await?);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: TokioClock,
    /// A name's limiter is in the shard that its bytes choose, so that threads seldom wait for one another.
    shards: [Mutex<Shard>; SHARDS],
}

const SHARDS: usize = 32;

#[derive(Debug, Default)]
struct Shard {
    by_name: HashMap<String, Arc<Limiter>>,
    /// Expired limiters are looked for when there are this many, so that forgotten names cost no memory for ever.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 32;

impl MemoryStore {
    /// An empty store. Its clock is tokio's, so paused time holds in it.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            clock: TokioClock::start(),
            shards: Default::default(),
        }))
    }

    fn limiter(&self, name: &str) -> Arc<Limiter> {
        // The map stays whole whatever panics elsewhere.
        let mut shard = self.0.shards[shard_of(name)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = shard.by_name.get(name) {
            return Arc::clone(limiter);
        }
        shard.sweep(self.0.clock.now());
        let limiter = Arc::new(Limiter::new());
        shard.by_name.insert(name.to_owned(), Arc::clone(&limiter));
        limiter
    }
}

/// FNV-1a, and the high bits of a product, which all of its bits reach.
fn shard_of(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SHARDS
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Shard {
    /// Drops limiters that hold nothing any more and that nobody has, where there are many.
    fn sweep(&mut self, server: i64) {
        if self.by_name.len() < self.sweep_at {
            return;
        }
        self.by_name.retain(|_, limiter| {
            // First: who let go of it afterwards may have set it up in between. Only this map hands out more.
            let is_had = Arc::get_mut(limiter).is_none();
            let is_gone = limiter.held().is_gone(server);
            is_had || !is_gone
        });
        self.sweep_at = SMALLEST_SWEEP.max(self.by_name.len() * 2);
    }
}

/// A store as one client uses it, with the client's clock.
#[derive(Debug)]
pub(crate) struct MemoryClient {
    store: MemoryStore,
    clock: Clock,
    /// The one that it is for, if it is for one alone.
    limiter: Option<Arc<Limiter>>,
}

impl MemoryClient {
    pub(crate) fn new(store: &MemoryStore, clock: Clock) -> Self {
        Self {
            store: store.clone(),
            clock,
            limiter: None,
        }
    }

    /// Runs one step on one limiter, alone.
    #[inline]
    fn with<T>(&self, keys: &Keys, step: impl FnOnce(&mut Held, At) -> Result<T>) -> Result<T> {
        let passed = self.clock.now();
        // Before the lock, so that it is not held meanwhile.
        let read = self.store.0.clock.now();
        let found;
        let limiter = match &self.limiter {
            Some(limiter) => limiter,
            None => {
                found = self.store.limiter(&keys.name);
                &found
            }
        };
        let mut held = limiter.held();
        let server = held.time(read);
        let now = passed.unwrap_or(server);
        if held.other.is_some() {
            held.check_kind(&keys.name, server)?;
        }
        let answer = step(&mut held, At { now, server });
        if let Some(offered) = held.offered {
            limiter.offer.make(offered);
        }
        answer
    }

    fn step<T>(&self, keys: &Keys, step: impl FnOnce(&mut Window, At) -> T) -> Result<T> {
        self.with(keys, |held, at| Ok(step(&mut held.window, at)))
    }

    fn initialized<T>(
        &self,
        keys: &Keys,
        step: impl FnOnce(&mut Window, At) -> Result<T, NotInitialized>,
    ) -> Result<T> {
        self.step(keys, step)?
            .map_err(|NotInitialized| not_initialized(keys))
    }
}

fn not_initialized(keys: &Keys) -> Error {
    Error::NotInitialized {
        name: keys.name.clone(),
    }
}

impl Settings {
    fn rate(self) -> Rate {
        Rate::from_stored(
            self.rate_type,
            self.rate as u64,
            self.interval as u64,
            self.keep_alive as u64,
        )
    }
}

#[async_trait]
impl Store for MemoryClient {
    fn is_cluster(&self) -> bool {
        false
    }

    fn for_limiter(&self, keys: &Keys) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self {
            store: self.store.clone(),
            clock: self.clock.clone(),
            limiter: Some(self.store.limiter(&keys.name)),
        }))
    }

    async fn acquire(
        &self,
        keys: &Keys,
        random: Random,
        requests: Requests,
        _summed_rate: Option<i64>,
    ) -> Result<Answer> {
        self.with(keys, |held, at| {
            let answer = held.decide(at, &keys.client_id, random, requests);
            answer.map_err(|NotInitialized| not_initialized(keys))
        })
    }

    fn take_offered(&self, permits: u32) -> Option<bool> {
        let limiter = self.limiter.as_ref()?;
        if !self.clock.is_the_stores() {
            return None;
        }
        limiter.offer.take(permits, || self.store.0.clock.now())
    }

    fn acquire_now(&self, keys: &Keys, permits: u32) -> Option<Result<(Random, Answer)>> {
        Some(self.with(keys, |held, at| held.decide_one(at, keys, permits)))
    }

    fn acquire_and_offer(&self, keys: &Keys, permits: u32) -> Option<Result<Answer>> {
        Some(self.with(keys, |held, at| {
            let (_, answer) = held.decide_one(at, keys, permits)?;
            held.offer(at, permits, &answer);
            Ok(answer)
        }))
    }

    async fn decide(&self, call: &Call) -> Result<Answers> {
        self.decide_call(call)
    }

    fn decide_now(&self, call: &Call) -> Option<Result<Answers>> {
        Some(self.decide_call(call))
    }

    async fn refund(&self, keys: &Keys, grant: &Grant, _summed_rate: Option<i64>) -> Result<u32> {
        self.with(keys, |held, at| {
            let summed_rate = held.summed_rate;
            let back = held.window.refund(at, &keys.client_id, grant, summed_rate);
            back.map_err(|NotInitialized| not_initialized(keys))
        })
    }

    async fn release(&self, keys: &Keys, permits: u32, _summed_rate: Option<i64>) -> Result<()> {
        self.with(keys, |held, at| {
            let summed_rate = held.summed_rate;
            let left = held
                .window
                .release(at, &keys.client_id, permits, summed_rate);
            left.map(drop)
                .map_err(|NotInitialized| not_initialized(keys))
        })
    }

    async fn available_permits(&self, keys: &Keys) -> Result<i64> {
        self.initialized(keys, |window, at| {
            window.available_permits(at, &keys.client_id)
        })
    }

    async fn try_set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<bool> {
        self.step(keys, |window, at| {
            window.try_set_rate(at, &keys.client_id, rate)
        })
    }

    async fn set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<()> {
        self.step(keys, |window, at| {
            window.set_rate(at, &keys.client_id, rate)
        })
    }

    async fn update_rate(
        &self,
        keys: &Keys,
        rate: ValidRate,
        state: State,
        if_missing: IfMissing,
    ) -> Result<bool> {
        self.step(keys, |window, at| {
            window.update_rate(
                at,
                &keys.client_id,
                rate,
                state == State::Keep,
                if_missing == IfMissing::DoNothing,
            )
        })
    }

    async fn config(&self, keys: &Keys) -> Result<Option<Rate>> {
        let settings = self.step(keys, |window, at| window.config(at.server))?;
        Ok(settings.map(Settings::rate))
    }

    async fn exists(&self, keys: &Keys) -> Result<bool> {
        self.step(keys, |window, at| window.exists(at.server))
    }

    async fn delete(&self, keys: &Keys) -> Result<bool> {
        self.step(keys, |window, at| window.delete(&keys.client_id, at.server))
    }

    async fn expire(&self, keys: &Keys, expiry: Expiry, condition: Condition) -> Result<bool> {
        self.step(keys, |window, at| {
            window.expire(&keys.client_id, at.server, expiry, condition)
        })
    }

    async fn clear_expire(&self, keys: &Keys) -> Result<bool> {
        self.step(keys, |window, at| {
            window.clear_expire(&keys.client_id, at.server)
        })
    }

    async fn remain_time_to_live(&self, keys: &Keys) -> Result<TimeToLive> {
        Ok(
            match self.step(keys, |window, at| window.remain_time_to_live(at.server))? {
                None => TimeToLive::Missing,
                Some(None) => TimeToLive::Unlimited,
                Some(Some(millis)) => {
                    TimeToLive::Remaining(Duration::from_millis(millis.max(0) as u64))
                }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limiters_that_expired_unasked_cost_no_memory_for_ever() {
        let store = MemoryStore::new();
        let backend = MemoryClient::new(&store, Clock::server());
        let rate = Rate::overall(1, Duration::from_secs(1)).keep_alive(Duration::from_secs(1));
        for i in 0..10 * SHARDS * SMALLEST_SWEEP {
            if i % 100 == 0 {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            let keys = Keys::new(&i.to_string(), "id");
            backend
                .try_set_rate(&keys, rate.validate().unwrap())
                .await
                .unwrap();
        }
        let held = |shard: &Mutex<Shard>| shard.lock().unwrap().by_name.len();
        let held: usize = store.0.shards.iter().map(held).sum();
        assert!(held <= SHARDS * SMALLEST_SWEEP, "{held} limiters are held");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_limiter_meets_others_on_it_however_often_it_was_gone_and_others_were_swept()
    {
        let store = MemoryStore::new();
        let backend = MemoryClient::new(&store, Clock::server());
        let rate = Rate::overall(1, Duration::from_secs(1)).validate().unwrap();
        let keys = Keys::new("kept", "id");
        let kept = backend.for_limiter(&keys).unwrap();
        for i in 0..SHARDS * SMALLEST_SWEEP * 2 {
            store.limiter(&i.to_string());
        }
        assert!(!kept.exists(&keys).await.unwrap());
        backend.set_rate(&keys, rate).await.unwrap();
        assert!(kept.exists(&keys).await.unwrap());
        assert!(kept.delete(&keys).await.unwrap());
        assert!(!backend.exists(&keys).await.unwrap());
    }
}
