//! The store: its limiters, divided into shards.
//!
//! Expired limiters are dropped by requests, whichever limiter these are for, so that no caller
//! depends on another's runtime. A request sweeps the next shards, and when all have been swept the
//! next round begins a second later. A store without requests is not swept, see
//! [`MemoryStore::shrink`].

use std::array;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::limiter::StoredLimiter;
use super::lock::lock;
use super::shard::{Shard, Slot};
use crate::clock::TokioClock;
use crate::name_hash::NameHash;

/// Limiters in memory. Clones share the limiters, and so can several clients.
///
/// ```
/// use redisson_rate_limiter::{MemoryStore, Rate, RedissonClient};
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
#[derive(Clone)]
pub struct MemoryStore(pub(super) Arc<MemoryStoreInner>);

pub(super) struct MemoryStoreInner {
    pub(super) clock: TokioClock,
    /// A limiter is in the shard that the hash of its name selects, so that threads seldom wait for
    /// each other.
    shards: [Mutex<Shard>; SHARDS],
    /// When a request sweeps, in ms of the clock.
    next_sweep: AtomicI64,
    /// How many shards have been swept.
    swept: AtomicUsize,
}

const SHARDS: usize = 128;
/// Once a request has visited this many places of shards, which takes some 200 µs, it leaves the
/// other shards to a later request.
const MOST_VISITED: usize = 4_096;
/// So many places are visited in each millisecond on average, which takes some 10 µs.
const VISITED_EACH_MS: i64 = 256;
/// From the end of a round to the next, in ms.
const REST: i64 = 1_000;

/// Shows no names: a log that shows a client has none of its users' keys.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store. Its clock is tokio's, so that paused time applies.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().in_memory(&MemoryStore::new());
    /// assert!(!client.rate_limiter("orders").exists().await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new() -> Self {
        let clock = TokioClock::start();
        Self(Arc::new(MemoryStoreInner {
            next_sweep: AtomicI64::new(clock.now() + REST),
            swept: AtomicUsize::new(0),
            shards: array::from_fn(|_| Mutex::default()),
            clock,
        }))
    }

    /// Drops all limiters that have expired, and gives back the memory that they took.
    ///
    /// Requests do the same bit by bit, whichever limiter they are for, and visit every limiter
    /// every few seconds. So this is for a store that receives no requests. It takes some 100 ns
    /// for each limiter in the store.
    ///
    /// ```
    /// use redisson_rate_limiter::{FixedWindow, MemoryStore, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let store = MemoryStore::new();
    /// let client = RedissonClient::builder().in_memory(&store);
    /// let limiter = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(1)))?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// tokio::time::advance(Duration::from_secs(2)).await;
    /// store.shrink(); // the store is empty again
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    pub fn shrink(&self) {
        for shard in 0..SHARDS {
            self.0.shard(shard).shrink(self.0.clock.now());
        }
    }

    /// Moves the clock of this store on, by whole milliseconds: with the feature `test-util`, for
    /// tests that do not pause tokio's time. Windows pass, permits come back, and keys and
    /// penalties end. Requests that wait for permits sleep by tokio's clock: a test with such
    /// requests pauses tokio's time, and `tokio::time::advance` moves both clocks.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let store = MemoryStore::new();
    /// let client = RedissonClient::builder().in_memory(&store);
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// assert!(logins.check("alice", 1).await?.is_granted());
    /// assert!(!logins.check("alice", 1).await?.is_granted());
    /// store.advance(Duration::from_secs(60));
    /// assert!(logins.check("alice", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "test-util")]
    pub fn advance(&self, time: std::time::Duration) {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.0.clock.advance(millis);
    }

    /// Does what [`shrink`](Self::shrink) does, and lets other tasks run between two shards.
    pub(super) async fn shrink_in_parts(&self) {
        for shard in 0..SHARDS {
            self.0.shard(shard).shrink(self.0.clock.now());
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn limiter(&self, name: &str) -> Arc<StoredLimiter> {
        self.with_limiter(name, self.0.clock.now(), |limiter| Arc::clone(limiter))
    }

    /// Calls `step` with the limiter of this name, whose shard is locked: `step` must not use the
    /// store.
    #[inline]
    pub(super) fn with_limiter<T>(
        &self,
        name: &str,
        now: i64,
        step: impl FnOnce(&mut Arc<StoredLimiter>) -> T,
    ) -> T {
        let hash = NameHash::of(name);
        let mut shard = self.0.shard_of(hash);
        let new = || Slot::Limiter(Arc::new(StoredLimiter::new(name.into())));
        step(shard.slot(name, hash, now, new).limiter())
    }
}

impl MemoryStoreInner {
    fn shard(&self, place: usize) -> MutexGuard<'_, Shard> {
        // A shard stays consistent whatever panics elsewhere.
        lock(&self.shards[place])
    }

    /// The shard that has the name with this hash.
    #[inline]
    pub(super) fn shard_of(&self, hash: NameHash) -> MutexGuard<'_, Shard> {
        // A table chooses its places by the lowest bits of the hash and the highest seven. Whatever
        // its size, it does not get as far as these.
        self.shard((hash.bits() >> 48) as usize % SHARDS)
    }

    /// The time of a request, in ms. If it is time to, sweeps some shards. The caller holds no
    /// lock.
    #[inline]
    pub(super) fn request_time(&self) -> i64 {
        let now = self.clock.now();
        let due = self.next_sweep.load(Ordering::Relaxed);
        if now >= due {
            self.sweep(due, now);
        }
        now
    }

    #[cold]
    fn sweep(&self, due: i64, now: i64) {
        // In the meantime no other request sweeps.
        let (next, relaxed) = (&self.next_sweep, Ordering::Relaxed);
        let claimed = next.compare_exchange(due, now + REST, relaxed, relaxed);
        if claimed.is_err() {
            return;
        }
        let (mut visited, mut rest) = (0, 0);
        while visited < MOST_VISITED && rest == 0 {
            let place = self.swept.fetch_add(1, Ordering::Relaxed) % SHARDS;
            visited += self.shard(place).sweep(now);
            if place == SHARDS - 1 {
                rest = REST;
            }
        }
        let pause = visited as i64 / VISITED_EACH_MS;
        self.next_sweep.store(now + pause + rest, Ordering::Relaxed);
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::keys::Keys;
    use crate::rate::Rate;
    use crate::store::memory::MemoryClient;
    use crate::store::{LimiterChange, Store};
    use crate::window::Settings;
    use crate::{FixedWindow, RedissonClient};

    impl MemoryStore {
        /// The number of limiters.
        pub(in crate::store::memory) fn held(&self) -> usize {
            (0..SHARDS).map(|shard| self.0.shard(shard).len()).sum()
        }

        /// The number of limiters that there is room for.
        fn room(&self) -> usize {
            (0..SHARDS)
                .map(|shard| self.0.shard(shard).capacity())
                .sum()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// A store with expired limiters of this many targets.
    async fn expired(count: usize) -> (MemoryStore, RedissonClient) {
        let store = MemoryStore::new();
        let client = RedissonClient::builder().in_memory(&store);
        let limiter = client.policy_limiter(FixedWindow::new(1, SECOND)).unwrap();
        for i in 0..count {
            let _ = limiter.check(&i.to_string(), 1).await.unwrap();
        }
        assert_eq!(store.held(), count);
        tokio::time::advance(2 * SECOND).await;
        (store, client)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_for_one_limiter_free_the_memory_of_expired_others() {
        let (store, client) = expired(20_000).await;
        let limiter = client.rate_limiter("other");
        limiter.set_rate(Rate::overall(1, SECOND)).await.unwrap();
        for _ in 0..100 {
            limiter.try_acquire(1).await.unwrap();
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert_eq!(store.held(), 1);
        assert!(store.room() <= SHARDS * 128, "room for {}", store.room());
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_by_a_policy_free_the_memory_of_expired_limiters() {
        let (store, client) = expired(20_000).await;
        let limiter = client.policy_limiter(FixedWindow::new(1, SECOND)).unwrap();
        for _ in 0..100 {
            let _ = limiter.check("other", 1).await.unwrap();
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(store.held() <= 1, "{} are held", store.held());
    }

    #[tokio::test(start_paused = true)]
    async fn sweeping_keeps_up_with_a_flood_of_new_names_within_a_ms() {
        let (store, client) = expired(20_000).await;
        let limiter = client.policy_limiter(FixedWindow::new(1, SECOND)).unwrap();
        for i in 0..20_000 {
            let _ = limiter.check(&format!("new {i}"), 1).await.unwrap();
        }
        assert!(store.held() <= 21_000, "{} are held", store.held());
    }

    #[tokio::test(start_paused = true)]
    async fn shrinking_drops_what_expired_and_keeps_what_lives_or_is_in_use() {
        let (store, client) = expired(5_000).await;
        let had = client.rate_limiter("had");
        let limiter = client.policy_limiter(FixedWindow::new(1, SECOND)).unwrap();
        assert!(limiter.check("lives", 1).await.unwrap().is_granted());
        store.shrink();
        assert_eq!(store.held(), 2);
        assert!(store.room() < 64, "room for {}", store.room());
        assert!(!limiter.check("lives", 1).await.unwrap().is_granted());
        assert!(!had.exists().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn sweeping_keeps_what_lives() {
        let (store, client) = expired(1_000).await;
        let limiter = client
            .policy_limiter(FixedWindow::new(1, 100 * SECOND))
            .unwrap();
        for i in 0..1_000 {
            assert!(limiter.check(&i.to_string(), 1).await.unwrap().is_granted());
        }
        for _ in 0..20 {
            tokio::time::advance(SECOND).await;
            let _ = limiter.check("other", 1).await.unwrap();
        }
        assert_eq!(store.held(), 1_001);
        for i in 0..1_000 {
            assert!(!limiter.check(&i.to_string(), 1).await.unwrap().is_granted());
        }
    }

    #[cfg(feature = "test-util")]
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_moved_on_as_far_as_possible_still_shows_a_time() {
        let store = MemoryStore::new();
        let client = RedissonClient::builder().in_memory(&store);
        let limiter = client.policy_limiter(FixedWindow::new(1, SECOND)).unwrap();
        for time in [
            Duration::from_millis(i64::MAX as u64),
            SECOND,
            Duration::MAX,
        ] {
            store.advance(time);
            let _ = limiter.check("name", 1).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn expired_limiters_that_nobody_asks_for_do_not_keep_their_memory() {
        let store = MemoryStore::new();
        let client = MemoryClient::new(&store, Clock::server());
        let rate = Rate::overall(1, Duration::from_secs(1)).keep_alive(Duration::from_secs(1));
        for i in 0..10_000 {
            if i % 100 == 0 {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            let keys = Arc::new(Keys::new(&i.to_string(), "id"));
            client
                .limiter(keys)
                .change(LimiterChange::TrySetRate(Settings::of(rate)))
                .await
                .unwrap();
        }
        assert!(store.held() <= 1_000, "{} limiters are held", store.held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handle_meets_others_on_its_limiter_however_often_that_was_swept() {
        let store = MemoryStore::new();
        let client = MemoryClient::new(&store, Clock::server());
        let rate = Settings::of(Rate::overall(1, Duration::from_secs(1)));
        let keys = Arc::new(Keys::new("kept", "id"));
        let kept = client.limiter(Arc::clone(&keys));
        let other = client.limiter(keys);
        for i in 0..2_000 {
            store.limiter(&i.to_string());
        }
        assert!(kept.config().await.unwrap().is_none());
        other.change(LimiterChange::SetRate(rate)).await.unwrap();
        assert!(kept.config().await.unwrap().is_some());
        assert!(kept.change(LimiterChange::DELETE).await.unwrap());
        assert!(other.config().await.unwrap().is_none());
    }
}
