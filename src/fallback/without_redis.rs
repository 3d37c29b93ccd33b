//! The failure policies over a store that goes away and comes back, with tokio's time paused: bounds are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::model::{Answer, Condition, Expiry};
use crate::policy::call::{Answers, Call};
use crate::rate::ValidRate;
use crate::store::breaker::Breaker;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::{
    AcquireCall, IfMissing, LimiterStore, OnDone, PermitsInUse, Store, Task, TimeToLive,
};
use crate::{
    Decision, FailurePolicy, FixedWindow, Granted, Limiter, LocalShare, Rate, RateLimiter,
    RedissonClient, TokenBucket,
};

const SECOND: Duration = Duration::from_secs(1);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A store in memory behind a breaker. Calls that come while it is away fail at their response timeout.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    memory: Arc<MemoryClient>,
    breaker: Arc<Breaker>,
    is_away: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct RemoteLimiter {
    remote: Remote,
    memory: Arc<dyn LimiterStore>,
}

impl Remote {
    pub(super) fn new() -> Self {
        Self {
            memory: Arc::new(MemoryClient::new(&MemoryStore::new(), Clock::server())),
            breaker: Breaker::new("remote".to_owned(), RESPONSE_TIMEOUT, Arc::default()),
            is_away: Arc::default(),
            calls: Arc::default(),
        }
    }

    pub(super) fn client(&self, policy: FailurePolicy) -> RedissonClient {
        let builder = RedissonClient::builder().failure_policy(policy);
        builder.build(self.clone())
    }

    /// The connection is lost, and cannot be made again.
    pub(super) fn go_away(&self) {
        self.is_away.store(true, Ordering::Relaxed);
        self.breaker.disconnected(&Error::not_sent());
    }

    fn come_back(&self) {
        self.is_away.store(false, Ordering::Relaxed);
        self.breaker.connected();
    }

    pub(super) fn take_calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        self.calls.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
        let result = if self.is_away.load(Ordering::Relaxed) {
            tokio::time::sleep_until(deadline).await;
            Err(Error::Indeterminate { source: None })
        } else {
            call.await
        };
        self.breaker.note(&result, deadline);
        result
    }
}

#[async_trait]
impl Store for Remote {
    fn is_cluster(&self) -> bool {
        false
    }

    fn breaker(&self, _key: &str) -> Option<Arc<Breaker>> {
        Some(Arc::clone(&self.breaker))
    }

    fn is_calm(&self) -> bool {
        self.breaker.is_calm()
    }

    fn limiter(&self, keys: Keys) -> Arc<dyn LimiterStore> {
        Arc::new(RemoteLimiter {
            remote: self.clone(),
            memory: self.memory.limiter(keys),
        })
    }

    async fn decide(&self, call: &Call, deadline: Instant) -> Result<Answers> {
        self.answer(self.memory.decide(call, deadline)).await
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + RESPONSE_TIMEOUT
    }
}

#[async_trait]
impl LimiterStore for RemoteLimiter {
    fn keys(&self) -> &Keys {
        self.memory.keys()
    }

    fn is_cluster(&self) -> bool {
        false
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + RESPONSE_TIMEOUT
    }

    fn may_have_peers(&self) -> bool {
        false
    }

    async fn acquire(&self, call: &AcquireCall, deadline: Instant) -> Result<Answer> {
        let asking = self.memory.acquire(call, deadline);
        self.remote.answer(asking).await
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        Arc::clone(&self.memory).refund_unclaimed(grant, on_done);
    }

    fn reclaim(self: Arc<Self>, _call: Arc<AcquireCall>, on_done: OnDone) {
        on_done();
    }

    fn run_in_background(&self, task: Task) {
        tokio::spawn(task);
    }

    async fn refund(&self, grant: &Grant) -> Result<u32> {
        self.remote.answer(self.memory.refund(grant)).await
    }

    async fn release(&self, permits: u32) -> Result<()> {
        self.remote.answer(self.memory.release(permits)).await
    }

    async fn available_permits(&self) -> Result<i64> {
        self.remote.answer(self.memory.available_permits()).await
    }

    async fn try_set_rate(&self, rate: ValidRate) -> Result<bool> {
        self.remote.answer(self.memory.try_set_rate(rate)).await
    }

    async fn set_rate(&self, rate: ValidRate) -> Result<()> {
        self.remote.answer(self.memory.set_rate(rate)).await
    }

    async fn update_rate(
        &self,
        rate: ValidRate,
        in_use: PermitsInUse,
        if_missing: IfMissing,
    ) -> Result<bool> {
        let updating = self.memory.update_rate(rate, in_use, if_missing);
        self.remote.answer(updating).await
    }

    async fn config(&self) -> Result<Option<Rate>> {
        self.remote.answer(self.memory.config()).await
    }

    async fn exists(&self) -> Result<bool> {
        self.remote.answer(self.memory.exists()).await
    }

    async fn delete(&self) -> Result<bool> {
        self.remote.answer(self.memory.delete()).await
    }

    async fn expire(&self, expiry: Expiry, condition: Condition) -> Result<bool> {
        self.remote
            .answer(self.memory.expire(expiry, condition))
            .await
    }

    async fn clear_expire(&self) -> Result<bool> {
        self.remote.answer(self.memory.clear_expire()).await
    }

    async fn remain_time_to_live(&self) -> Result<TimeToLive> {
        self.remote.answer(self.memory.remain_time_to_live()).await
    }
}

fn one_of(clients: u32) -> FailurePolicy {
    FailurePolicy::Local(LocalShare::one_of(clients).unwrap())
}

/// How many single permits are granted now.
async fn granted_now(limiter: &RateLimiter) -> u32 {
    let mut granted = 0;
    while limiter.try_acquire(1).await.unwrap() {
        granted += 1;
    }
    granted
}

async fn with_rate(client: &RedissonClient, permits: u64) -> RateLimiter {
    let limiter = client.rate_limiter("limiter");
    let rate = Rate::overall(permits, 10 * SECOND);
    limiter.try_set_rate(rate).await.unwrap();
    limiter.config().await.unwrap();
    limiter
}

#[tokio::test(start_paused = true)]
async fn all_clients_together_grant_no_more_than_the_rate_in_any_window_without_redis() {
    let remote = Remote::new();
    let clients = [(); 4].map(|()| remote.client(one_of(4)));
    let mut limiters = Vec::new();
    for client in &clients {
        limiters.push(with_rate(client, 100).await);
    }
    remote.go_away();
    let mut windows = Vec::new();
    for _ in 0..5 {
        let mut granted = 0;
        for limiter in &limiters {
            granted += granted_now(limiter).await;
        }
        windows.push(granted);
        advance(10 * SECOND).await;
    }
    assert_eq!(windows, [100; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_lone_client_exceeds_the_rate_in_no_window_in_which_redis_goes_away() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let limiter = with_rate(&client, 100).await;
    assert_eq!(granted_now(&limiter).await, 100);
    let start = Instant::now();
    remote.go_away();
    // What Redis granted counts, for no more than a part of the window longer than in Redis.
    while granted_now(&limiter).await == 0 {
        advance(Duration::from_millis(1)).await;
    }
    let waited = start.elapsed();
    assert!(waited >= 9 * SECOND && waited <= 10 * SECOND, "{waited:?}");
    assert_eq!(granted_now(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_window_in_which_redis_goes_away_holds_the_rate_and_the_shares_of_those_that_had_nothing()
{
    let remote = Remote::new();
    let clients = [(); 4].map(|()| remote.client(one_of(4)));
    let mut limiters = Vec::new();
    for client in &clients {
        limiters.push(with_rate(client, 100).await);
    }
    assert_eq!(granted_now(&limiters[0]).await, 100);
    remote.go_away();
    let mut granted = Vec::new();
    for limiter in &limiters {
        granted.push(granted_now(limiter).await);
    }
    assert_eq!(granted, [0, 25, 25, 25]); // 100 * (2 - 1/4) with those of Redis
}

#[tokio::test(start_paused = true)]
async fn a_rate_below_the_number_of_clients_becomes_a_longer_interval() {
    let remote = Remote::new();
    let client = remote.client(one_of(4));
    let limiter = with_rate(&client, 1).await;
    remote.go_away();
    let start = Instant::now();
    assert!(limiter.try_acquire(1).await.unwrap());
    while !limiter.try_acquire(1).await.unwrap() {
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(start.elapsed(), 40 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_whose_rate_is_unknown_here_denies() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    remote.go_away();
    let decision = client.rate_limiter("limiter").check(1).await.unwrap();
    assert!(!decision.is_granted() && decision.is_by_failure_policy());
}

#[tokio::test(start_paused = true)]
async fn a_limiter_whose_rate_another_client_set_is_known_from_the_first_request() {
    let remote = Remote::new();
    with_rate(&remote.client(FailurePolicy::Error), 100).await;
    let limiter = remote.client(one_of(4)).rate_limiter("limiter");
    assert!(limiter.try_acquire(5).await.unwrap());
    remote.go_away();
    assert_eq!(granted_now(&limiter).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_another_client_changes_is_known_from_the_second_request() {
    let remote = Remote::new();
    let other = with_rate(&remote.client(FailurePolicy::Error), 100).await;
    let limiter = remote.client(one_of(4)).rate_limiter("limiter");
    assert!(limiter.try_acquire(1).await.unwrap());
    other.set_rate(Rate::overall(40, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(limiter.try_acquire(1).await.unwrap());
    remote.go_away();
    advance(2 * SECOND).await;
    assert_eq!(granted_now(&limiter).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_refund_goes_where_the_grant_was_made() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let grant = |decision| match decision {
        Decision::Granted(Granted { grant, .. }) => grant,
        denied => panic!("{denied:?}"),
    };
    let of_redis = grant(limiter.check(1).await.unwrap());
    remote.go_away();
    advance(20 * SECOND).await;
    let local = grant(limiter.check(5).await.unwrap());
    assert_eq!(granted_now(&limiter).await, 0);
    assert_eq!(limiter.refund(local).await.unwrap(), 5);
    let of_local = grant(limiter.check(5).await.unwrap());
    let lenient = limiter.clone().with_failure_policy(FailurePolicy::Allow);
    let of_nobody = grant(lenient.check(5).await.unwrap());
    remote.come_back();
    assert_eq!(limiter.refund(of_local).await.unwrap(), 5);
    assert_eq!(limiter.refund(of_nobody).await.unwrap(), 0);
    assert_eq!(limiter.refund(of_redis).await.unwrap(), 0); // its window has passed
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_redis_goes_to_the_local_limiter() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    remote.go_away();
    assert_eq!(granted_now(&limiter).await, 5);
    limiter.release(3).await.unwrap();
    assert_eq!(granted_now(&limiter).await, 3);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_by_the_local_limiter_and_then_by_redis_again() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 2).await;
    assert_eq!(granted_now(&limiter).await, 2);
    let mut waiting = JoinSet::new();
    for number in 0..6 {
        let limiter = limiter.clone();
        waiting.spawn(async move { limiter.acquire(1).await.map(|()| number) });
        sleep(Duration::from_millis(1)).await;
    }
    advance(20 * SECOND).await; // two each window: the first four, but for the times of asking
    let mut served = Vec::new();
    for _ in 0..2 {
        served.push(waiting.join_next().await.unwrap().unwrap().unwrap());
    }
    remote.go_away();
    for _ in 0..2 {
        served.push(waiting.join_next().await.unwrap().unwrap().unwrap());
    }
    remote.come_back();
    while let Some(next) = waiting.join_next().await {
        served.push(next.unwrap().unwrap());
    }
    // The first one to ask after Redis is back may overtake.
    served[4..].sort_unstable();
    assert_eq!(served, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn denied_waiters_wait_for_redis_or_their_timeout() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Deny);
    let limiter = with_rate(&client, 10).await;
    remote.go_away();
    let start = Instant::now();
    assert!(!limiter.try_acquire_timeout(1, SECOND).await.unwrap());
    assert_eq!(start.elapsed(), SECOND);
    let waiting = tokio::spawn(async move { limiter.acquire(1).await });
    sleep(100 * SECOND).await;
    assert!(!waiting.is_finished());
    remote.come_back();
    timeout(SECOND, waiting).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_and_in_line_are_decided_by_the_policy_when_the_breaker_opens() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 1_000).await;
        remote.is_away.store(true, Ordering::Relaxed);
        let mut callers = JoinSet::new();
        for number in 0..100 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                match number % 2 {
                    0 => limiter.try_acquire(1).await.unwrap(),
                    _ => limiter.try_acquire_timeout(1, 100 * SECOND).await.unwrap(),
                }
            });
        }
        let start = Instant::now();
        sleep(Duration::from_millis(10)).await;
        remote.go_away();
        while let Some(granted) = callers.join_next().await {
            assert!(granted.unwrap());
        }
        assert_eq!(start.elapsed(), Duration::from_millis(10));
    }
}

#[tokio::test(start_paused = true)]
async fn half_open_one_call_goes_out_at_a_time_and_the_policy_decides_the_others_at_once() {
    for policy in [FailurePolicy::Deny, FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 1_000).await;
        let keyed = client.limiter(FixedWindow::new(100, SECOND)).unwrap();
        remote.go_away();
        let _ = limiter.check(1).await.unwrap();
        let _ = keyed.check("key", 1).await.unwrap();
        assert_eq!(remote.take_calls(), 2); // the rate was set and read
        remote.breaker.connected(); // and it does not answer
        let mut callers = JoinSet::new();
        for number in 0..100 {
            let (limiter, keyed) = (limiter.clone(), keyed.clone());
            callers.spawn(async move {
                let decision = match number % 2 {
                    0 => limiter.check(1).await,
                    _ => keyed.check(&number.to_string(), 1).await,
                };
                assert!(decision.unwrap().is_by_failure_policy());
            });
        }
        let start = Instant::now();
        for _ in 0..99 {
            callers.join_next().await.unwrap().unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        // The probe ends with its response timeout, and the policy decides it.
        callers.join_next().await.unwrap().unwrap();
        assert!(start.elapsed() >= RESPONSE_TIMEOUT);
        assert_eq!(remote.take_calls(), 1);
        let _ = limiter.check(1).await.unwrap();
        assert_eq!(remote.take_calls(), 0); // open again
        remote.is_away.store(false, Ordering::Relaxed);
        sleep(SECOND).await;
        assert!(!limiter.check(1).await.unwrap().is_by_failure_policy());
        assert!(!keyed.check("key", 1).await.unwrap().is_by_failure_policy());
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_leaves_its_place_to_the_next_request() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Deny);
    let limiter = with_rate(&client, 10).await;
    remote.go_away();
    remote.breaker.connected();
    let impatient = timeout(SECOND, limiter.try_acquire(1)).await;
    assert!(impatient.is_err());
    remote.is_away.store(false, Ordering::Relaxed);
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_error_comes_at_once_when_redis_has_been_away_for_the_response_timeout() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = with_rate(&client, 10).await;
    remote.go_away();
    remote.take_calls();
    let start = Instant::now();
    assert!(limiter.try_acquire(1).await.is_err());
    assert!(start.elapsed() >= RESPONSE_TIMEOUT);
    assert_eq!(remote.take_calls(), 1);
    let start = Instant::now();
    let policy = client
        .limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let errors = [
        limiter.try_acquire(1).await.map(drop),
        limiter.acquire(1).await,
        policy.check("key", 1).await.map(drop),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::StoreUnavailable { .. })));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(remote.take_calls(), 0);
    remote.come_back();
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn three_calls_in_a_row_without_an_answer_open_the_breaker() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Allow);
    let limiter = with_rate(&client, 10).await;
    remote.is_away.store(true, Ordering::Relaxed);
    remote.take_calls();
    for _ in 0..10 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    assert_eq!(remote.take_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn mistakes_are_errors_whatever_the_policy() {
    for policy in [FailurePolicy::Deny, FailurePolicy::Allow, one_of(2)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let missing = client.rate_limiter("missing").try_acquire(1).await;
        assert!(matches!(missing, Err(Error::NotInitialized { .. })));
        let limiter = with_rate(&client, 10).await;
        let keyed = client
            .keyed_rate_limiter("keyed:", Rate::overall(10, SECOND))
            .unwrap();
        let fixed = client.limiter(FixedWindow::new(10, SECOND)).unwrap();
        remote.go_away();
        let above = [
            limiter.try_acquire(11).await,
            limiter.try_acquire_timeout(11, SECOND).await,
        ];
        for above in above {
            assert!(matches!(
                above,
                Err(Error::PermitsExceedRate { rate: 10, .. })
            ));
        }
        for above in [keyed.check("key", 11).await, fixed.check("key", 11).await] {
            assert!(matches!(
                above,
                Err(Error::CostExceedsLimit { limit: 10, .. })
            ));
        }
        let nothing = [
            limiter.try_acquire(0).await.map(drop),
            limiter.acquire(0).await,
        ];
        for nothing in nothing {
            assert!(matches!(nothing, Err(Error::InvalidArgument { .. })));
        }
        assert!(keyed.check("key", 0).await.is_err());
        assert!(client.check_all([]).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn policies_and_keys_have_their_shares() {
    let remote = Remote::new();
    let client = remote.client(one_of(4));
    let fixed = client.limiter(FixedWindow::new(10, SECOND)).unwrap();
    let bucket = client
        .limiter(TokenBucket::per_second(4).with_capacity(40))
        .unwrap();
    let small = client.limiter(FixedWindow::new(3, SECOND)).unwrap();
    let keyed = client
        .keyed_rate_limiter("keyed:", Rate::overall(10, SECOND))
        .unwrap();
    remote.go_away();
    let limiters: [(&dyn Limiter, u64, usize); 4] = [
        (&fixed, 2, 2),
        (&bucket, 10, 10),
        (&small, 0, 0),
        (&keyed, 2, 2),
    ];
    for (number, (limiter, limit, expected)) in limiters.into_iter().enumerate() {
        let mut granted = 0;
        for _ in 0..20 {
            let decision = limiter.check(&format!("key{number}"), 1).await.unwrap();
            assert!(decision.is_by_failure_policy());
            granted += usize::from(decision.is_granted());
            if let Decision::Granted(Granted {
                grant, limit: of, ..
            }) = decision
            {
                assert_eq!((of, grant.permits()), (limit, 1));
            }
        }
        assert_eq!(granted, expected, "{limiter:?}");
    }
    keyed.acquire("key3", 1).await.unwrap(); // waits for its turn here
}

#[tokio::test(start_paused = true)]
async fn several_limiters_decide_together_without_redis() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let fixed = client.limiter(FixedWindow::new(6, SECOND)).unwrap();
    let lenient = client.limiter(TokenBucket::per_second(1)).unwrap();
    let lenient = lenient.with_failure_policy(FailurePolicy::Allow);
    remote.go_away();
    let ask = async || {
        let charges = [
            limiter.charge(1).unwrap(),
            fixed.charge("fixed", 1).unwrap(),
            lenient.charge("bucket", 1).unwrap(),
        ];
        client.check_all(charges).await.unwrap()
    };
    for expected in [true, true, true, false] {
        let decision = ask().await;
        assert!(decision.is_by_failure_policy());
        assert_eq!(decision.is_granted(), expected);
        assert_eq!(decision.decisions().len(), 3);
    }
    // The denied one charged nobody: 2 of 5 are left.
    assert_eq!(granted_now(&limiter).await, 2);
    for (policy, fails) in [(FailurePolicy::Error, true), (FailurePolicy::Deny, false)] {
        sleep(RESPONSE_TIMEOUT).await;
        let other = client.limiter(FixedWindow::new(6, SECOND)).unwrap();
        let other = other.with_failure_policy(policy);
        let charges = [
            other.charge("other", 1).unwrap(),
            fixed.charge("fixed", 1).unwrap(),
        ];
        match client.check_all(charges).await {
            Ok(decision) => assert!(!fails && !decision.is_granted()),
            Err(_) => assert!(fails),
        }
    }
}
