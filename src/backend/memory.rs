//! Limiters in this process: the pure model behind a lock, and a clock. What a limiter has left is taken without the lock
//! as long as the clock stands at one ms, see [`offer`].
//!
//! Each name's limiter has its own lock. Who holds a shard's lock may take a limiter's, never the other way round; who
//! needs several limiters at once has to find them all first and then lock them in the order of their names.

#[cfg(test)]
mod against_the_lock;
mod lock;
mod offer;
mod targets;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use lock::lock;
use offer::{Offer, Offered};

use super::{Backend, IfMissing, State, TimeToLive};
use crate::clock::{Clock, TokioClock};
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::limiters;
use crate::limiters::call::{Answers, Call};
use crate::permit::{Names, Random};
use crate::rate::{Rate, RateType, ValidRate};
use crate::window::{
    Acquire, Answer, At, Condition, Expiry, NotInitialized, Requests, Settings, Timed, Window,
};

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

/// One name's limiter, there or not. Whoever has it finds it without the map, and the map keeps it as long as anybody
/// has it: so a name never has two. On cache lines of its own, so that threads on different limiters do not meet.
#[derive(Debug)]
#[repr(align(64))]
struct Limiter {
    offer: Offer,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    window: Window,
    /// The rate at which the grants were summed. Nobody touches the state past this crate, so once a rate is enough.
    summed_rate: Option<i64>,
    names: Names,
    /// The state of another kind of limiter under this name.
    other: Option<Box<dyn limiters::model::State>>,
    /// Set while the target is locked out.
    lock: Timed<()>,
    /// The latest of the store's times at which a step was taken.
    latest: i64,
    /// What is offered to be taken without the lock.
    offered: Option<Offered>,
    /// How often the lock was had.
    times: u64,
    /// Which time it was, and when, that a request was last decided which an offer could have answered.
    last_plain: (u64, i64),
}

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

impl Limiter {
    fn new() -> Self {
        Self {
            offer: Offer::default(),
            held: Mutex::new(Held {
                window: Window::default(),
                summed_rate: None,
                names: Names::new(),
                other: None,
                lock: Timed::default(),
                latest: i64::MIN,
                offered: None,
                times: 0,
                last_plain: (0, 0),
            }),
        }
    }

    /// The limiter for this thread alone, with all that was granted written down.
    #[inline]
    fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = lock(&self.held);
        held.times += 1;
        if let Some(offered) = held.offered.take() {
            held.write_down(offered.millis, self.offer.withdraw(offered));
        }
        held
    }
}

/// A store as one client uses it, with the client's clock.
#[derive(Debug)]
pub(crate) struct MemoryBackend {
    store: MemoryStore,
    clock: Clock,
    /// The one that it is for, if it is for one alone.
    limiter: Option<Arc<Limiter>>,
}

impl MemoryBackend {
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

impl Held {
    /// The time of a step whose clock was read before the lock was had: others may have come in between, and in one
    /// limiter time never goes back.
    #[inline]
    fn time(&mut self, read: i64) -> i64 {
        self.latest = self.latest.max(read);
        self.latest
    }

    fn decide(
        &mut self,
        at: At,
        client: &str,
        random: Random,
        requests: Requests,
    ) -> Result<Answer, NotInitialized> {
        let call = Acquire {
            random,
            sent_before: false,
            summed_rate: self.summed_rate,
            requests,
        };
        let answer = self.window.acquire(at, client, &call)?;
        if answer.counted > 0 {
            self.summed_rate = Some(answer.rate);
        }
        Ok(answer)
    }

    /// Decides one request, and names it.
    fn decide_one(&mut self, at: At, keys: &Keys, permits: u32) -> Result<(Random, Answer)> {
        let random = self.names.next();
        let answer = self.decide(at, &keys.client_id, random, Requests::one(permits));
        let answer = answer.map_err(|NotInitialized| not_initialized(keys))?;
        Ok((random, answer))
    }

    /// Offers what a request left, where all clients share it and the time is the store's. It was decided for a bool, and
    /// the one before it in the same ms too: making an offer takes as long as deciding, and pays where more follow.
    fn offer(&mut self, at: At, permits: u32, answer: &Answer) {
        let this = (self.times, at.now);
        let last = std::mem::replace(&mut self.last_plain, this);
        if last != (self.times - 1, at.now) {
            return;
        }
        let settings = self.window.settings.get();
        let is_shared = settings.is_some_and(|it| it.rate_type == RateType::Overall);
        // Of a request above the rate the answer does not tell what is there.
        if is_shared && at.now == at.server && i64::from(permits) <= answer.rate {
            let taken = Requests::one(permits).taken(answer.balance, answer.rate);
            self.offered = Offered::new(at.now, answer.balance - taken);
        }
    }

    /// Has the model grant what was taken out of an offer: it would have done so then, and nobody has asked it since.
    fn write_down(&mut self, millis: i64, taken: u32) {
        if taken == 0 {
            return;
        }
        let at = At {
            now: millis,
            server: millis,
        };
        let random = self.names.next();
        // All clients share the permits, so it is no matter whose call it is.
        let answer = self.decide(at, "", random, Requests::one(taken));
        debug_assert!(answer.is_ok_and(|answer| answer.balance >= i64::from(taken)));
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

    fn for_limiter(&self, keys: &Keys) -> Option<Arc<dyn Backend>> {
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
    use crate::{Decision, RRateLimiter, RateLimiter, RedissonClient};

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

    #[test]
    fn who_reads_the_clock_early_and_gets_the_lock_late_is_decided_at_the_time_of_the_one_before() {
        let limiter = Limiter::new();
        let times = [1_000, 999, 1_001].map(|read| limiter.held().time(read));
        assert_eq!(times, [1_000, 1_000, 1_001]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_a_limiter_meets_others_on_it_however_often_it_was_gone_and_others_were_swept()
    {
        let store = MemoryStore::new();
        let backend = MemoryBackend::new(&store, Clock::server());
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

    /// A limiter at a time that stands still, and what holds it.
    async fn limiter(rate: Rate) -> (RateLimiter, Arc<Limiter>) {
        let store = MemoryStore::new();
        let client = RedissonClient::builder().in_memory(&store);
        let limiter = client.rate_limiter("limiter");
        assert!(limiter.try_set_rate(rate).await.unwrap());
        (limiter, store.limiter("limiter"))
    }

    /// The permits of each entry that stands in the books.
    fn entries(limiter: &Limiter) -> Vec<u32> {
        let held = limiter.held();
        let grants = held.window.overall.grants();
        grants
            .iter()
            .map(|(_, member)| crate::permit::decode(&member).unwrap().1)
            .collect()
    }

    async fn granted(limiter: &RateLimiter, permits: u32) -> Grant {
        match limiter.check(permits).await.unwrap() {
            Decision::Granted { grant, .. } => grant,
            denied => panic!("{denied:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn grants_of_one_ms_that_nobody_can_refund_share_an_entry_and_come_back_at_their_time() {
        let second = Duration::from_secs(1);
        let (limiter, held) = limiter(Rate::overall(1_000, second)).await;
        for _ in 0..2 {
            for _ in 0..100 {
                assert!(limiter.try_acquire(1).await.unwrap());
            }
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        // The second one that is decided makes the offer; the others are taken out of it.
        assert_eq!(entries(&held), [1, 1, 98, 1, 1, 98]);
        tokio::time::advance(second - Duration::from_millis(3)).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 800);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 900);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn an_offer_is_made_only_where_such_requests_follow_one_another_in_a_ms() {
        let (limiter, held) = limiter(Rate::overall(1_000, Duration::from_secs(1))).await;
        let is_offered = || lock(&held.held).offered.is_some();
        for _ in 0..5 {
            assert!(limiter.try_acquire(1).await.unwrap());
            assert!(!is_offered());
            granted(&limiter, 1).await;
        }
        for _ in 0..5 {
            assert!(limiter.try_acquire(1).await.unwrap());
            assert!(!is_offered());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(is_offered());
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_among_others_of_its_ms_is_refunded_exactly() {
        let (limiter, held) = limiter(Rate::overall(1_000, Duration::from_secs(1))).await;
        for _ in 0..10 {
            assert!(limiter.try_acquire(2).await.unwrap());
        }
        let grant = granted(&limiter, 3).await;
        for _ in 0..10 {
            assert!(limiter.try_acquire(2).await.unwrap());
        }
        assert_eq!(limiter.refund(grant).await.unwrap(), 3);
        assert_eq!(limiter.available_permits().await.unwrap(), 960);
        assert_eq!(entries(&held), [2, 2, 16, 2, 2, 16]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_in_one_ms_fits_its_entries_however_much_it_is() {
        let rate = Rate::overall(1 << 40, Duration::from_secs(1));
        let (limiter, held) = limiter(rate).await;
        let mut taken = 0;
        for permits in [u32::MAX, 1, u32::MAX, 1_000_000, 1_000_000, u32::MAX, 7] {
            assert!(limiter.try_acquire(permits).await.unwrap());
            taken += i64::from(permits);
            let entries: i64 = entries(&held).into_iter().map(i64::from).sum();
            assert_eq!(entries, taken);
        }
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            (1 << 40) - taken
        );
    }

    #[tokio::test(start_paused = true)]
    async fn one_above_the_rate_offers_nothing_and_is_told_so_though_nothing_is_left() {
        let (limiter, _) = limiter(Rate::overall(8, Duration::from_secs(1))).await;
        let is_above = |answer| matches!(answer, Err(Error::PermitsExceedRate { rate: 8, .. }));
        assert!(is_above(limiter.try_acquire(9).await));
        assert!(limiter.try_acquire(8).await.unwrap());
        assert!(!limiter.try_acquire(1).await.unwrap());
        assert!(is_above(limiter.try_acquire(9).await));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_clock_of_the_callers_decides_is_scored_by_it_and_by_no_other() {
        let store = MemoryStore::new();
        let now = store.0.clock.now();
        let own = [700, -700].map(|off| Clock::from_fn(move || now + off));
        let limiters = [own[0].clone(), Clock::server(), own[1].clone()].map(|clock| {
            let client = RedissonClient::builder().clock(clock).in_memory(&store);
            client.rate_limiter("limiter")
        });
        let rate = Rate::overall(1_000, Duration::from_secs(10));
        assert!(limiters[0].try_set_rate(rate).await.unwrap());
        for _ in 0..2 {
            for limiter in &limiters {
                assert!(limiter.try_acquire(1).await.unwrap());
            }
        }
        let limiter = store.limiter("limiter");
        let held = limiter.held();
        let grants = held.window.overall.grants();
        let scores: Vec<i64> = grants.iter().map(|(score, _)| score - now).collect();
        assert_eq!(scores, [-700, -700, 0, 0, 700, 700]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clients_own_permits_are_not_offered_to_others() {
        let store = MemoryStore::new();
        let limiters = [(); 2].map(|()| {
            let client = RedissonClient::builder().in_memory(&store);
            client.rate_limiter("limiter")
        });
        let rate = Rate::per_client(20, Duration::from_secs(1));
        assert!(limiters[0].try_set_rate(rate).await.unwrap());
        for limiter in &limiters {
            for _ in 0..20 {
                assert!(limiter.try_acquire(1).await.unwrap());
            }
            assert!(!limiter.try_acquire(1).await.unwrap());
        }
    }
}
