//! One name's limiter: the model, alone under its lock, and what it offers.
//!
//! The clock is read before the lock is had, so that it is not held meanwhile; whoever had it in between may have come
//! later in time. So a limiter knows the latest time at which a step was taken, and takes none before it.

use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::client_limiter::not_initialized;
use super::lock::lock;
use super::offer::{Offer, Offered};
use crate::error::Result;
use crate::keys::Keys;
use crate::model::{Acquire, Answer, At, NotInitialized, Requests, SetUp, Timed, Window};
use crate::permit::{Names, Random};
use crate::policy::algorithm::State;
use crate::policy::target_keys::TargetKeys;
use crate::rate::RateType;
use crate::store::AcquireCall;

/// One name's limiter, there or not. Whoever has it finds it without the map, and the map keeps it as long as anybody
/// has it: so a name never has two.
#[derive(Debug)]
pub(super) struct Limiter {
    pub(super) offer: Offer,
    /// How many drivers ask for waiters, of all clients.
    pub(super) drivers: AtomicUsize,
    held: Mutex<Held>,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) window: Window,
    /// The rate at which the grants were summed. Nobody touches the state past this crate, so once a rate is enough.
    pub(super) summed_rate: Option<i64>,
    names: Names,
    /// The state of the other kind of limiter that was asked last under this name.
    pub(super) other: Option<Box<dyn State>>,
    /// What is left of others that were asked before.
    pub(super) closed: Option<Box<TargetKeys>>,
    /// Set while the target is locked out.
    pub(super) lock: Timed<()>,
    /// The latest of the store's times at which a step was taken.
    pub(super) latest: i64,
    /// What is offered to be taken without the lock.
    pub(super) offered: Option<Offered>,
    /// How often the lock was had.
    times: u32,
    /// Which time it was, and when, that a request was last decided which an offer could have answered.
    last_plain: (u32, i64),
}

impl Limiter {
    pub(super) fn new() -> Self {
        Self {
            offer: Offer::default(),
            drivers: AtomicUsize::new(0),
            held: Mutex::new(Held {
                window: Window::default(),
                summed_rate: None,
                names: Names::new(),
                other: None,
                closed: None,
                lock: Timed::default(),
                latest: i64::MIN,
                offered: None,
                times: 0,
                last_plain: (0, 0),
            }),
        }
    }

    /// Whether nothing is left of it. An offer that stands may have been taken from; what follows of that is gone no later
    /// than what the request before it left.
    pub(super) fn is_gone(&mut self, server: i64) -> bool {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        held.is_gone(server)
    }

    /// The limiter for this thread alone, with all that was granted written down.
    #[inline]
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        let mut held = lock(&self.held);
        held.times = held.times.wrapping_add(1);
        if let Some(offered) = held.offered.take() {
            held.write_down(offered.millis, self.offer.withdraw(offered));
        }
        held
    }
}

impl Held {
    /// The time of a step whose clock was read before the lock was had: others may have come in between, and in one
    /// limiter time never goes back.
    #[inline]
    pub(super) fn time(&mut self, read: i64) -> i64 {
        self.latest = self.latest.max(read);
        self.latest
    }

    /// Decides requests that no call carries.
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
                summed_rate: self.summed_rate,
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
                summed_rate: self.summed_rate,
                requests: call.requests.clone(),
                newer_than: call.newer_than,
                set_up: call.set_up,
            },
        )
    }

    #[inline]
    fn acquire(&mut self, at: At, client: &str, call: Acquire) -> Result<Answer, NotInitialized> {
        let answer = self.window.acquire(at, client, &call)?;
        if answer.counted > 0 || answer.audit_due {
            self.summed_rate = Some(answer.rate);
        }
        Ok(answer)
    }

    /// Decides one request, and names it.
    pub(super) fn decide_one(
        &mut self,
        at: At,
        keys: &Keys,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<(Random, Answer)> {
        let random = self.names.next();
        let requests = Requests::one(permits);
        let answer = self.decide(at, &keys.client_id, random, requests, set_up);
        let answer = answer.map_err(|NotInitialized| not_initialized(keys))?;
        Ok((random, answer))
    }

    /// Offers what a request left, where all clients share it and the time is the store's. It was decided for a bool, and
    /// the one before it in the same ms too: making an offer takes as long as deciding, and pays where more follow.
    pub(super) fn offer(&mut self, at: At, permits: u32, answer: &Answer) {
        let this = (self.times, at.now);
        let last = std::mem::replace(&mut self.last_plain, this);
        if last != (self.times.wrapping_sub(1), at.now) {
            return;
        }
        let settings = self.window.settings.get();
        let is_shared = settings.is_some_and(|it| it.rate_type == RateType::Overall);
        // Of a request above the rate, or where more grants have expired, the answer does not tell what is there.
        let is_exact = !answer.has_more && i64::from(permits) <= answer.rate;
        if is_shared && at.now == at.server && is_exact {
            let taken = Requests::one(permits).taken(answer);
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
        let answer = self.decide(at, "", random, Requests::one(taken), None);
        debug_assert!(answer.is_ok_and(|answer| answer.balance >= i64::from(taken)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::{
        Clock, Decision, Error, Grant, Granted, MemoryStore, Rate, RateLimiter, RedissonClient,
    };

    #[test]
    fn who_reads_the_clock_early_and_gets_the_lock_late_is_decided_at_the_time_of_the_one_before() {
        let limiter = Limiter::new();
        let times = [1_000, 999, 1_001].map(|read| limiter.held().time(read));
        assert_eq!(times, [1_000, 1_000, 1_001]);
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
