//! Limiters in this process: the pure model behind a lock, and a clock. What a limiter has left is taken without the lock
//! as long as the clock stands at one ms, see [`offer`].
//!
//! Each name's limiter has its own lock. Who holds a shard's lock may take a limiter's, never the other way round; who
//! needs several limiters at once has to find them all first and then lock them in the order of their names.

#[cfg(test)]
mod against_the_lock;
mod client_limiter;
mod limiter;
mod lock;
mod offer;
mod targets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use client_limiter::MemoryLimiter;
use limiter::{Held, Limiter};

use super::{LimiterStore, Store};
use crate::clock::{Clock, TokioClock};
use crate::error::Result;
use crate::keys::Keys;
use crate::policy::call::{Answers, Call};

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
}

impl MemoryClient {
    pub(crate) fn new(store: &MemoryStore, clock: Clock) -> Self {
        Self {
            store: store.clone(),
            clock,
        }
    }
}

#[async_trait]
impl Store for MemoryClient {
    fn is_cluster(&self) -> bool {
        false
    }

    fn limiter(&self, keys: Keys) -> Arc<dyn LimiterStore> {
        Arc::new(MemoryLimiter::new(&self.store, &self.clock, keys))
    }

    async fn decide(&self, call: &Call, _deadline: Instant) -> Result<Answers> {
        self.decide_call(call)
    }

    fn decide_now(&self, call: &Call) -> Option<Result<Answers>> {
        Some(self.decide_call(call))
    }

    fn call_deadline(&self) -> Instant {
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rate::Rate;

    #[tokio::test(start_paused = true)]
    async fn limiters_that_expired_unasked_cost_no_memory_for_ever() {
        let store = MemoryStore::new();
        let client = MemoryClient::new(&store, Clock::server());
        let rate = Rate::overall(1, Duration::from_secs(1)).keep_alive(Duration::from_secs(1));
        for i in 0..10 * SHARDS * SMALLEST_SWEEP {
            if i % 100 == 0 {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            let keys = Keys::new(&i.to_string(), "id");
            client
                .limiter(keys)
                .try_set_rate(rate.validate().unwrap())
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
        let client = MemoryClient::new(&store, Clock::server());
        let rate = Rate::overall(1, Duration::from_secs(1)).validate().unwrap();
        let keys = Keys::new("kept", "id");
        let kept = client.limiter(keys.clone());
        let other = client.limiter(keys);
        for i in 0..SHARDS * SMALLEST_SWEEP * 2 {
            store.limiter(&i.to_string());
        }
        assert!(!kept.exists().await.unwrap());
        other.set_rate(rate).await.unwrap();
        assert!(kept.exists().await.unwrap());
        assert!(kept.delete().await.unwrap());
        assert!(!other.exists().await.unwrap());
    }
}
