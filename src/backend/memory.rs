//! Limiters in this process: the pure model behind a lock, and a clock.

mod targets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{Backend, IfMissing, State, TimeToLive};
use crate::clock::{Clock, TokioClock};
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::limiters::call::{Answers, Call};
use crate::permit::Random;
use crate::rate::{Rate, ValidRate};
use crate::window::{
    Acquire, Answer, At, Condition, Expiry, NotInitialized, Requests, Settings, Window,
};
use targets::Targets;

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
    targets: Mutex<Targets>,
}

const SHARDS: usize = 32;

#[derive(Debug, Default)]
struct Shard {
    by_name: HashMap<String, Held>,
    /// Expired limiters are looked for when there are this many, so that forgotten names cost no memory for ever.
    sweep_at: usize,
}

const SMALLEST_SWEEP: usize = 32;

#[derive(Debug, Default)]
struct Held {
    window: Window,
    /// The rate at which the grants were summed. Nobody touches the state past this crate, so once a rate is enough.
    summed_rate: Option<i64>,
}

impl MemoryStore {
    /// An empty store. Its clock is tokio's, so paused time holds in it.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            clock: TokioClock::start(),
            shards: Default::default(),
            targets: Mutex::default(),
        }))
    }

    /// Runs one step on one limiter, alone.
    fn with<T>(&self, name: &str, step: impl FnOnce(&mut Held, i64) -> T) -> T {
        // A step that panicked would be a bug; what it left behind is still the best state there is.
        let mut shard = self.0.shards[shard_of(name)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let server = self.0.clock.now();
        if let Some(held) = shard.by_name.get_mut(name) {
            return step(held, server);
        }
        let mut held = Held::default();
        let answer = step(&mut held, server);
        if !held.window.is_gone(server) {
            shard.insert(name, held, server);
        }
        answer
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
    fn insert(&mut self, name: &str, held: Held, server: i64) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, held| !held.window.is_gone(server));
            self.sweep_at = SMALLEST_SWEEP.max(self.by_name.len() * 2);
        }
        self.by_name.insert(name.to_owned(), held);
    }
}

/// A store as one client uses it, with the client's clock.
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    store: MemoryStore,
    clock: Clock,
}

impl MemoryBackend {
    pub(crate) fn new(store: &MemoryStore, clock: Clock) -> Self {
        Self {
            store: store.clone(),
            clock,
        }
    }

    fn with<T>(&self, keys: &Keys, step: impl FnOnce(&mut Held, At) -> T) -> T {
        let passed = self.clock.now();
        self.store.with(&keys.name, |held, server| {
            let now = passed.unwrap_or(server);
            step(held, At { now, server })
        })
    }

    fn step<T>(&self, keys: &Keys, step: impl FnOnce(&mut Window, At) -> T) -> T {
        self.with(keys, |held, at| step(&mut held.window, at))
    }

    fn initialized<T>(
        &self,
        keys: &Keys,
        step: impl FnOnce(&mut Window, At) -> Result<T, NotInitialized>,
    ) -> Result<T> {
        self.step(keys, step)
            .map_err(|NotInitialized| not_initialized(keys))
    }

    fn decide(&self, keys: &Keys, random: Random, requests: Requests) -> Result<Answer> {
        self.with(keys, |held, at| {
            let call = Acquire {
                random,
                sent_before: false,
                summed_rate: held.summed_rate,
                requests,
            };
            let answer = held
                .window
                .acquire(at, &keys.client_id, &call)
                .map_err(|NotInitialized| not_initialized(keys))?;
            if answer.counted > 0 {
                held.summed_rate = Some(answer.rate);
            }
            Ok(answer)
        })
    }
}

impl MemoryBackend {
    fn decide_targets(&self, call: &Call) -> Result<Answers> {
        let server = self.store.0.clock.now();
        let now = self.clock.now().unwrap_or(server);
        let mut targets = self
            .store
            .0
            .targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        targets.decide(call, At { now, server })
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
impl Backend for MemoryBackend {
    fn is_cluster(&self) -> bool {
        false
    }

    async fn acquire(
        &self,
        keys: &Keys,
        random: Random,
        requests: Requests,
        _summed_rate: Option<i64>,
    ) -> Result<Answer> {
        self.decide(keys, random, requests)
    }

    fn acquire_now(&self, keys: &Keys, random: Random, permits: u32) -> Option<Result<Answer>> {
        Some(self.decide(keys, random, Requests::one(permits)))
    }

    async fn decide(&self, call: &Call) -> Result<Answers> {
        self.decide_targets(call)
    }

    fn decide_now(&self, call: &Call) -> Option<Result<Answers>> {
        Some(self.decide_targets(call))
    }

    async fn refund(&self, keys: &Keys, grant: &Grant, _summed_rate: Option<i64>) -> Result<u32> {
        self.with(keys, |held, at| {
            let summed_rate = held.summed_rate;
            held.window.refund(at, &keys.client_id, grant, summed_rate)
        })
        .map_err(|NotInitialized| not_initialized(keys))
    }

    async fn release(&self, keys: &Keys, permits: u32, _summed_rate: Option<i64>) -> Result<()> {
        self.with(keys, |held, at| {
            let summed_rate = held.summed_rate;
            held.window
                .release(at, &keys.client_id, permits, summed_rate)
        })
        .map_err(|NotInitialized| not_initialized(keys))?;
        Ok(())
    }

    async fn available_permits(&self, keys: &Keys) -> Result<i64> {
        self.initialized(keys, |window, at| {
            window.available_permits(at, &keys.client_id)
        })
    }

    async fn try_set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<bool> {
        Ok(self.step(keys, |window, at| {
            window.try_set_rate(at, &keys.client_id, rate)
        }))
    }

    async fn set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<()> {
        self.step(keys, |window, at| {
            window.set_rate(at, &keys.client_id, rate)
        });
        Ok(())
    }

    async fn update_rate(
        &self,
        keys: &Keys,
        rate: ValidRate,
        state: State,
        if_missing: IfMissing,
    ) -> Result<bool> {
        Ok(self.step(keys, |window, at| {
            window.update_rate(
                at,
                &keys.client_id,
                rate,
                state == State::Keep,
                if_missing == IfMissing::DoNothing,
            )
        }))
    }

    async fn config(&self, keys: &Keys) -> Result<Option<Rate>> {
        Ok(self
            .step(keys, |window, at| window.config(at.server))
            .map(Settings::rate))
    }

    async fn exists(&self, keys: &Keys) -> Result<bool> {
        Ok(self.step(keys, |window, at| window.exists(at.server)))
    }

    async fn delete(&self, keys: &Keys) -> Result<bool> {
        Ok(self.step(keys, |window, at| window.delete(&keys.client_id, at.server)))
    }

    async fn expire(&self, keys: &Keys, expiry: Expiry, condition: Condition) -> Result<bool> {
        Ok(self.step(keys, |window, at| {
            window.expire(&keys.client_id, at.server, expiry, condition)
        }))
    }

    async fn clear_expire(&self, keys: &Keys) -> Result<bool> {
        Ok(self.step(keys, |window, at| {
            window.clear_expire(&keys.client_id, at.server)
        }))
    }

    async fn remain_time_to_live(&self, keys: &Keys) -> Result<TimeToLive> {
        Ok(
            match self.step(keys, |window, at| window.remain_time_to_live(at.server)) {
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
        let backend = MemoryBackend::new(&store, Clock::server());
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
}
