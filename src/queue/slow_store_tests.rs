//! The whole queue over a slow store: the in-memory one with a delay each way. Tokio's time is
//! paused, so that every run of a seed is the same.

mod call_counts;
mod leases;

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::WhileAway;
use crate::box_future::BoxFuture;
use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::keys::Keys;
use crate::leases::LeasedQueue;
use crate::lock::Lock;
use crate::permit::CallId;
use crate::rate::Rate;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::{
    AcquireCall, GivingBack, LimiterChange, LimiterStore, OnDone, Store, Task, TimeToLive,
};
use crate::window::{Acquired, Settings, Settlement};

const TRAVEL: Duration = Duration::from_millis(2);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct SlowStore {
    memory: Arc<dyn LimiterStore>,
    calls: AtomicUsize,
    is_away: AtomicBool,
    /// Whether leases cannot be settled, because the keys hold something else.
    has_bad_state: AtomicBool,
    /// For how long permits are missing after each task that gave some back.
    missing_for: Arc<Lock<Vec<Duration>>>,
    may_have_peers: AtomicBool,
    response_timeout: Duration,
    /// How late requests are, in ms.
    lateness: AtomicU64,
    /// The breaker of the waiters' connection, if it has one.
    breaker: OnceLock<Arc<Breaker>>,
}

impl SlowStore {
    fn new() -> Arc<Self> {
        Self::with_response_timeout(HOUR)
    }

    fn with_response_timeout(response_timeout: Duration) -> Arc<Self> {
        let memory = MemoryClient::new(&MemoryStore::new(), Clock::server());
        Arc::new(Self {
            memory: memory.limiter(Arc::new(Keys::new("limiter", "client"))),
            calls: AtomicUsize::new(0),
            is_away: AtomicBool::new(false),
            has_bad_state: AtomicBool::new(false),
            missing_for: Arc::default(),
            may_have_peers: AtomicBool::new(false),
            response_timeout,
            lateness: AtomicU64::new(0),
            breaker: OnceLock::new(),
        })
    }

    async fn queue(self: &Arc<Self>, rate: Rate) -> Arc<LeasedQueue> {
        let rate = Settings::valid(rate).unwrap();
        let change = LimiterChange::SetRate(rate);
        self.memory.change(change).await.unwrap();
        Arc::new(LeasedQueue::new(
            Arc::clone(self) as _,
            Box::new(|_, _, _| {}),
        ))
    }

    async fn available(&self) -> i64 {
        self.memory.available_permits().await.unwrap()
    }

    async fn travel(&self) -> Result<()> {
        sleep(TRAVEL).await;
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Error::Indeterminate { source: None });
        }
        Ok(())
    }
}

impl LimiterStore for SlowStore {
    fn keys(&self) -> &Keys {
        self.memory.keys()
    }

    fn client(&self) -> &dyn Store {
        self.memory.client()
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + self.response_timeout
    }

    fn breaker(&self) -> Option<Arc<Breaker>> {
        self.breaker.get().cloned()
    }

    fn unhealthy_breaker(&self) -> Option<Arc<Breaker>> {
        self.breaker().filter(|breaker| !breaker.is_healthy())
    }

    fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    fn wall_millis(&self) -> i64 {
        self.memory.wall_millis()
    }

    fn may_have_peers(&self) -> bool {
        self.may_have_peers.load(Ordering::Relaxed)
    }

    fn acquire<'a>(
        &'a self,
        call: &'a AcquireCall,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let unanswered = |_| Error::Indeterminate { source: None };
            let answered = timeout_at(deadline, async {
                sleep(Duration::from_millis(self.lateness.load(Ordering::Relaxed))).await;
                self.travel().await?;
                let answer = self.memory.acquire(call, deadline).await;
                self.travel().await?;
                answer
            });
            answered.await.map_err(unanswered)?
        })
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        tokio::spawn(async move {
            let _ = self.refund(&grant).await;
            on_done();
        });
    }

    fn reclaim(self: Arc<Self>, _call: Arc<AcquireCall>, on_done: OnDone) {
        on_done();
    }

    fn run_in_background(&self, task: Task) {
        tokio::spawn(task);
    }

    fn give_back_in_background(&self, task: GivingBack) {
        let missing_for = Arc::clone(&self.missing_for);
        tokio::spawn(async move {
            let missing = task.await;
            missing_for.lock().push(missing);
        });
    }

    fn refund<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            self.travel().await?;
            let answer = self.memory.refund(grant).await;
            self.travel().await?;
            answer
        })
    }

    fn settle<'a>(
        &'a self,
        lease: &'a Grant,
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move {
            self.travel().await?;
            if self.has_bad_state.load(Ordering::Relaxed) {
                let name = self.keys().name.clone();
                return Err(Error::BadState { name, source: None });
            }
            let answer = self.memory.settle(lease, settlement).await;
            self.travel().await?;
            answer
        })
    }

    fn release(&self, permits: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.memory.release(permits).await })
    }

    fn hold(&self, millis: i64, call_id: CallId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.memory.hold(millis, call_id).await })
    }

    fn available_permits(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move { self.memory.available_permits().await })
    }

    fn change(&self, change: LimiterChange) -> BoxFuture<'_, Result<bool>> {
        self.memory.change(change)
    }

    fn config(&self) -> BoxFuture<'_, Result<Option<Rate>>> {
        Box::pin(async move { self.memory.config().await })
    }

    fn remain_time_to_live(&self) -> BoxFuture<'_, Result<TimeToLive>> {
        Box::pin(async move { self.memory.remain_time_to_live().await })
    }
}

/// Runs a future with tokio's time paused, in a runtime of its own.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(future)
}

/// A caller: the permits that it asks for, the ms after which it asks, and the ms after which it
/// gives up, if it does.
type Caller = (u32, u64, Option<u64>);

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let caller = (1..4_u32, 0..30_u64, prop::option::of(0..30_u64));
    prop::collection::vec(caller, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_in_one_call_get_what_they_would_have_got_one_by_one(
        rate in 1..40_u64,
        permits in prop::collection::vec(1..8_u32, 1..50),
    ) {
        run(async {
            let store = SlowStore::new();
            let queue = store.queue(Rate::overall(rate, HOUR)).await;
            let mut asking = Vec::new();
            for &permits in &permits {
                let queue = Arc::clone(&queue);
                asking.push(tokio::spawn(async move { queue.check(permits, None).await }));
            }
            let alone = SlowStore::new();
            let queue_of_one = alone.queue(Rate::overall(rate, HOUR)).await;
            for (&permits, combined) in permits.iter().zip(asking) {
                let combined = combined.await.unwrap();
                let one_by_one = queue_of_one.check(permits, None).await;
                match (combined, one_by_one) {
                    (Ok(combined), Ok(one_by_one)) => {
                        assert_eq!(combined.is_granted(), one_by_one.is_granted());
                    }
                    (Err(Error::ExceedsLimit { .. }), Err(Error::ExceedsLimit { .. })) => {}
                    (combined, one_by_one) => panic!("{combined:?} but alone {one_by_one:?}"),
                }
            }
            assert_eq!(store.available().await, alone.available().await);
            let calls = store.calls.load(Ordering::Relaxed);
            assert!(calls <= 2, "{calls} calls: the first one's own, and one for all others");
        });
    }

    #[test]
    fn a_caller_that_gives_up_at_any_moment_keeps_nothing_and_holds_up_nobody(
        rate in 1..60_u64,
        callers in callers(),
    ) {
        run(async {
            let store = SlowStore::new();
            let queue = store.queue(Rate::overall(rate, HOUR)).await;
            let mut asking = JoinSet::new();
            for (permits, after, patience) in callers {
                let permits = permits.min(rate as u32);
                let queue = Arc::clone(&queue);
                asking.spawn(async move {
                    sleep(Duration::from_millis(after)).await;
                    // A caller that never gives up ends after 5 s if nothing is left for it.
                    let patience = Duration::from_millis(patience.unwrap_or(5_000));
                    let granted = timeout(patience, queue.wait(queue.take_place(), permits, None, None, false, WhileAway::Fail)).await;
                    match granted {
                        Ok(granted) => i64::from(permits) * i64::from(granted.unwrap().is_some()),
                        Err(_given_up) => 0,
                    }
                });
            }
            let mut held = 0;
            while let Some(permits) = asking.join_next().await {
                held += permits.unwrap();
            }
            // Permits on their way back arrive.
            sleep(4 * TRAVEL).await;
            assert_eq!(store.available().await, rate as i64 - held);
        });
    }

    #[test]
    fn with_permits_coming_back_everybody_who_waits_is_served(
        rate in 3..10_u64,
        callers in callers(),
    ) {
        run(async {
            let store = SlowStore::new();
            let queue = store.queue(Rate::overall(rate, Duration::from_millis(50))).await;
            let mut asking = JoinSet::new();
            for (permits, after, patience) in callers {
                let queue = Arc::clone(&queue);
                asking.spawn(async move {
                    sleep(Duration::from_millis(after)).await;
                    match patience {
                        None => assert!(queue.wait(queue.take_place(), permits, None, None, false, WhileAway::Fail).await.unwrap().is_some()),
                        Some(patience) => {
                            let until = Instant::now() + Duration::from_millis(patience);
                            queue.wait(queue.take_place(), permits, Some(until), None, false, WhileAway::Fail).await.unwrap();
                        }
                    }
                });
            }
            // No more than 60 callers of 3 permits, 3 permits per 50 ms, and the queue's extra
            // wait.
            let all = async { while let Some(done) = asking.join_next().await { done.unwrap() } };
            timeout(Duration::from_secs(60), all).await.expect("all callers are served");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn all_waiters_get_the_error_of_the_store_and_the_next_one_asks_again() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(1, HOUR)).await;
    assert!(
        queue
            .wait(queue.take_place(), 1, None, None, false, WhileAway::Fail)
            .await
            .unwrap()
            .is_some()
    );
    let mut waiting = JoinSet::new();
    for _ in 0..10 {
        let queue = Arc::clone(&queue);
        waiting.spawn(async move {
            queue
                .wait(queue.take_place(), 1, None, None, false, WhileAway::Fail)
                .await
        });
    }
    sleep(Duration::from_millis(100)).await;
    store.is_away.store(true, Ordering::Relaxed);
    while let Some(answer) = waiting.join_next().await {
        assert!(matches!(answer.unwrap(), Err(Error::Indeterminate { .. })));
    }
    store.is_away.store(false, Ordering::Relaxed);
    assert!(!queue.check(1, None).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn waiters_that_are_served_together_share_their_next_call() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(100, HOUR)).await;
    let mut asking = JoinSet::new();
    for _ in 0..3 {
        let queue = Arc::clone(&queue);
        asking.spawn(async move {
            for _ in 0..4 {
                let place = queue.take_place();
                let waiting = queue.wait(place, 1, None, None, false, WhileAway::Fail);
                assert!(waiting.await.unwrap().is_some());
            }
        });
    }
    asking.join_all().await;
    // Calls: the first one's own, three for all, and one for the two that came behind it.
    assert_eq!(store.calls.load(Ordering::Relaxed), 5);
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_waiters_is_dropped() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(1, HOUR)).await;
    assert!(
        queue
            .wait(queue.take_place(), 1, None, None, false, WhileAway::Fail)
            .await
            .unwrap()
            .is_some()
    );
    let waited = timeout(
        Duration::from_millis(100),
        queue.wait(queue.take_place(), 1, None, None, false, WhileAway::Fail),
    )
    .await;
    assert!(waited.is_err(), "there is no permit for an hour");
    sleep(2 * super::state::LONGEST_SLEEP).await;
    let handles = Arc::strong_count(&queue);
    assert_eq!(handles, 1, "the driver still holds the queue");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_handed_over_and_not_picked_up_goes_back() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(3, HOUR)).await;
    let direct = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.check(1, None).await }
    });
    tokio::task::yield_now().await; // it is in flight, so the next two share a call
    let (first, second) = {
        let ask = |queue: &Arc<LeasedQueue>| {
            let queue = Arc::clone(queue);
            async move {
                queue
                    .check(1, None)
                    .await
                    .map(|decision| decision.is_granted())
            }
        };
        let (first, second) = (ask(&queue), ask(&queue));
        let (abort, aborted) = tokio::sync::oneshot::channel::<tokio::task::AbortHandle>();
        let first = tokio::spawn(async move {
            let second = aborted.await.unwrap();
            let granted = first.await;
            second.abort(); // its answer came with ours, and it has not seen it yet
            granted
        });
        let second = tokio::spawn(second);
        abort.send(second.abort_handle()).unwrap();
        (first, second)
    };
    assert!(direct.await.unwrap().unwrap().is_granted());
    assert!(first.await.unwrap().unwrap());
    assert!(second.await.unwrap_err().is_cancelled());
    sleep(4 * TRAVEL).await;
    assert_eq!(store.available().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_polled_once_and_kept_fails_no_other() {
    for millis in [12, 50, 100, 499, 500, 3_000] {
        let response_timeout = Duration::from_millis(millis);
        let store = SlowStore::with_response_timeout(response_timeout);
        let queue = store.queue(Rate::overall(2, HOUR)).await;
        let mut kept =
            Box::pin(queue.wait(queue.take_place(), 1, None, None, false, WhileAway::Fail));
        let once = poll_fn(|context| Poll::Ready(kept.as_mut().poll(context).is_pending()));
        assert!(once.await);
        let start = Instant::now();
        let waited = queue
            .wait(queue.take_place(), 1, None, None, false, WhileAway::Fail)
            .await;
        assert!(waited.unwrap().is_some(), "{millis}");
        assert!(start.elapsed() <= response_timeout, "{millis}");
        assert!(kept.await.unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_with_a_short_keep_alive_lives_while_waiters_ask_late() {
    for interval in [400, 700, 1_000, 1_600] {
        for longer in [0, 3, 4, 50, 149, 151] {
            let [interval, keep_alive] = [interval, interval + longer].map(Duration::from_millis);
            let store = SlowStore::new();
            let rate = Rate::overall(1, interval).keep_alive(keep_alive);
            let queue = store.queue(rate).await;
            let wait = || queue.wait(queue.take_place(), 1, None, None, false, WhileAway::Fail);
            assert!(wait().await.unwrap().is_some());
            // From the denial on, each request is late.
            let late = async {
                sleep(4 * TRAVEL).await;
                store.lateness.store(150, Ordering::Relaxed);
            };
            let (waited, ()) = tokio::join!(wait(), late);
            assert!(waited.unwrap().is_some(), "{keep_alive:?}");
        }
    }
}
