//! One limiter: the model, alone under its lock, and its fast path.
//!
//! The clock is read before the lock is taken, which keeps the lock for a shorter time. Another thread may hold the
//! lock in between with a later time. So a limiter remembers the latest time of a step, and makes no step at an earlier
//! one.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::fast_path::{FastPath, Reserved};
use super::lock::lock;
use crate::error::{Error, Result};
use crate::model::{Acquire, Answer, At, NotInitialized, Requests, SetUp, Timed, Window};
use crate::permit::{Names, Random};
use crate::policy::algorithm::State;
use crate::policy::target_keys::TargetKeys;
use crate::rate::RateType;
use crate::store::AcquireCall;

/// One limiter, whether it exists or not. Handles reach it without the map, and the map keeps it while a handle exists,
/// so that a name never has two.
#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) fast_path: FastPath,
    /// The number of drivers with waiters, of all clients.
    pub(super) drivers: AtomicUsize,
    held: Mutex<Held>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) window: Window,
    /// The rate at which the grants were summed, 0 for none. Only this crate changes the state, so once per rate is
    /// enough.
    audited_rate: i64,
    /// The rate of each client for which the permits left are stated, 0 for none.
    stated_rate: i64,
    names: Names,
    /// The state of the other kind of limiter that was last used under this name.
    pub(super) other: Option<Box<dyn State>>,
    /// What is left of other kinds that were used before.
    pub(super) closed: Option<Box<TargetKeys>>,
    /// Set while the target is locked out.
    pub(super) lock: Timed<()>,
    /// The latest time of a step, by the store's clock.
    pub(super) latest: i64,
    /// What the open fast path has reserved.
    pub(super) reserved: Option<Reserved>,
    /// How often the lock was taken.
    times: u32,
    /// The value of `times`, and the time, when a request was last decided that the fast path could have answered.
    last_plain: (u32, i64),
}

impl Limiter {
    pub(super) fn new() -> Self {
        Self {
            fast_path: FastPath::default(),
            drivers: AtomicUsize::new(0),
            held: Mutex::new(Held {
                window: Window::default(),
                audited_rate: 0,
                stated_rate: 0,
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

    /// Whether nothing is left of it. Permits may have been taken from an open fast path; what follows from these
    /// expires no later than what the request before left.
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
        held.state_client_rate();
        held
    }

    /// Runs one step of an RRateLimiter of this name under the lock. `passed` is the time by the client's clock if it
    /// has its own, `read` by the store's.
    #[inline]
    pub(super) fn with<T>(
        &self,
        name: &str,
        passed: Option<i64>,
        read: i64,
        step: impl FnOnce(&mut Held, At) -> Result<T>,
    ) -> Result<T> {
        let mut held = self.held();
        let server = held.time(read);
        let now = passed.unwrap_or(server);
        if held.other.is_some() || held.closed.is_some() {
            held.check_kind(name, server)?;
        }
        let answer = step(&mut held, At { now, server });
        if let Some(reserved) = held.reserved {
            self.fast_path.open(reserved);
        }
        answer
    }
}

impl Held {
    /// The time of a step whose clock was read before the lock was taken: within a limiter, time never goes back.
    #[inline]
    pub(super) fn time(&mut self, read: i64) -> i64 {
        self.latest = self.latest.max(read);
        self.latest
    }

    /// Decides requests without a call.
    #[inline]
    fn decide(
        &mut self,
        at: At,
        client: &str,
        random: Random,
        requests: Requests,
        set_up: Option<SetUp>,
    ) -> Result<Answer, NotInitialized> {
        self.acquire(
            at,
            client,
            Acquire {
                random,
                audited_rate: self.audited_rate(),
                requests,
                newer_than: None,
                set_up,
            },
        )
    }

    pub(super) fn decide_call(
        &mut self,
        at: At,
        client: &str,
        call: &AcquireCall,
    ) -> Result<Answer, NotInitialized> {
        self.acquire(
            at,
            client,
            Acquire {
                random: call.id,
                audited_rate: self.audited_rate(),
                requests: call.requests.clone(),
                newer_than: call.newer_than,
                set_up: call.set_up,
            },
        )
    }

    #[inline]
    pub(super) fn audited_rate(&self) -> Option<i64> {
        Some(self.audited_rate).filter(|&rate| rate > 0)
    }

    /// Restates the permits left of each client after another one has changed the rate. Here all of them are known; in
    /// Redis each client finds the new rate in its next call.
    #[inline]
    fn state_client_rate(&mut self) {
        let Some(settings) = self.window.settings.get() else {
            return;
        };
        let rate = settings.rate;
        if settings.rate_type == RateType::PerClient && self.stated_rate != rate {
            self.window.state_client_rate(rate);
            self.stated_rate = rate;
        }
    }

    #[inline]
    fn acquire(&mut self, at: At, client: &str, call: Acquire) -> Result<Answer, NotInitialized> {
        let answer = self.window.acquire(at, client, &call)?;
        if answer.counted > 0 || answer.audit_due {
            self.audited_rate = answer.rate;
        }
        Ok(answer)
    }

    /// Decides one request, and names it.
    pub(super) fn decide_one(
        &mut self,
        at: At,
        name: &str,
        client: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<(Random, Answer)> {
        let random = self.names.next();
        let requests = Requests::one(permits);
        let answer = self.decide(at, client, random, requests, set_up);
        let answer = answer.map_err(|NotInitialized| not_initialized(name))?;
        Ok((random, answer))
    }

    /// Reserves what a request left, if all clients share it and the time is the store's. The request was decided for a
    /// bool, like the one before it in the same millisecond: opening the fast path takes as long as deciding, and pays
    /// off when more follow.
    pub(super) fn reserve(&mut self, at: At, permits: u32, answer: &Answer) {
        let this = (self.times, at.now);
        let last = std::mem::replace(&mut self.last_plain, this);
        if last != (self.times.wrapping_sub(1), at.now) {
            return;
        }
        let settings = self.window.settings.get();
        let is_shared = settings.is_some_and(|it| it.rate_type == RateType::Overall);
        // For a request above the rate, or if more grants have expired, the answer does not say what is available.
        let is_exact = !answer.has_more && i64::from(permits) <= answer.rate;
        if is_shared && at.now == at.server && is_exact {
            let taken = Requests::one(permits).taken(answer);
            self.reserved = Reserved::new(at.now, answer.available - taken);
        }
    }

    /// Has the model grant what was taken on the fast path: it would have done so at that time, and nothing was decided
    /// since.
    fn write_down(&mut self, millis: i64, taken: u32) {
        if taken == 0 {
            return;
        }
        let at = At {
            now: millis,
            server: millis,
        };
        let random = self.names.next();
        // All clients share the permits, so any client will do.
        let answer = self.decide(at, "", random, Requests::one(taken), None);
        debug_assert!(answer.is_ok_and(|answer| answer.available >= i64::from(taken)));
    }
}

pub(super) fn not_initialized(name: &str) -> Error {
    Error::NotInitialized {
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::{Clock, Decision, Grant, Granted, MemoryStore, Rate, RateLimiter, RedissonClient};

    #[test]
    fn who_reads_the_clock_early_and_gets_the_lock_late_is_decided_at_the_time_of_the_one_before() {
        let limiter = Limiter::new();
        let times = [1_000, 999, 1_001].map(|read| limiter.held().time(read));
        assert_eq!(times, [1_000, 1_000, 1_001]);
    }

    /// A limiter whose clock stands still, and its state.
    async fn limiter(rate: Rate) -> (RateLimiter, Arc<Limiter>) {
        let store = MemoryStore::new();
        let client = RedissonClient::builder().in_memory(&store);
        let limiter = client.rate_limiter("limiter");
        assert!(limiter.try_set_rate(rate).await.unwrap());
        (limiter, store.limiter("limiter"))
    }

    /// The permits of each grant that is recorded.
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
            Decision::Granted(Granted { grant, .. }) => grant,
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
        // The second request that is decided opens the fast path; the others take from it.
        assert_eq!(entries(&held), [1, 1, 98, 1, 1, 98]);
        tokio::time::advance(second - Duration::from_millis(3)).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 800);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 900);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(limiter.available_permits().await.unwrap(), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_fast_path_opens_only_if_such_requests_follow_each_other_within_a_ms() {
        let (limiter, held) = limiter(Rate::overall(1_000, Duration::from_secs(1))).await;
        let is_reserved = || lock(&held.held).reserved.is_some();
        for _ in 0..5 {
            assert!(limiter.try_acquire(1).await.unwrap());
            assert!(!is_reserved());
            granted(&limiter, 1).await;
        }
        for _ in 0..5 {
            assert!(limiter.try_acquire(1).await.unwrap());
            assert!(!is_reserved());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(limiter.try_acquire(1).await.unwrap());
        assert!(is_reserved());
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
        let mut taken = 0_i64;
        for permits in [u32::MAX, 1, u32::MAX, 1_000_000, 1_000_000, u32::MAX, 7] {
            assert!(limiter.try_acquire(permits).await.unwrap());
            taken += i64::from(permits);
            let entries: i64 = entries(&held).into_iter().map(i64::from).sum();
            assert_eq!(entries, taken);
        }
        assert_eq!(
            limiter.available_permits().await.unwrap(),
            (1 << 40) - taken.unsigned_abs()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_above_the_rate_opens_no_fast_path_and_is_an_error_even_if_no_permits_are_left()
     {
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
    async fn a_clients_own_permits_are_not_reserved_for_others() {
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

    /// With one permit each, so that they are more grants than a call sums.
    #[tokio::test(start_paused = true)]
    async fn a_rate_for_each_client_that_one_client_lowers_holds_for_what_the_others_have_in_use() {
        let store = MemoryStore::new();
        let [one, other] = [(); 2].map(|()| {
            let client = RedissonClient::builder().in_memory(&store);
            client.rate_limiter("limiter")
        });
        let interval = Duration::from_secs(1);
        let rate = Rate::per_client(20, interval);
        assert!(one.try_set_rate(rate).await.unwrap());
        for _ in 0..10 {
            granted(&other, 1).await;
        }
        tokio::time::advance(interval / 2).await;
        for _ in 0..10 {
            granted(&other, 1).await;
        }
        one.set_rate(Rate::per_client(12, interval)).await.unwrap();
        assert!(!other.try_acquire(1).await.unwrap());
        tokio::time::advance(interval / 2).await;
        assert_eq!(other.available_permits().await.unwrap(), 2);
        granted(&other, 2).await;
        assert!(!other.try_acquire(1).await.unwrap());
    }
}
