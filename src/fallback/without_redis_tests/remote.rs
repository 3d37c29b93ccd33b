//! A store that goes down, falls silent or refuses, and comes back: the in-memory one behind a breaker.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use super::RESPONSE_TIMEOUT;
use crate::clock::Clock;
use crate::error::{Error, Refusal, Refused, Result};
use crate::grant::Grant;
use crate::keys::Keys;
use crate::permit::CallId;
use crate::policies::call::{Answers, Call};
use crate::rate::ValidRate;
use crate::store::acquire_call::Attempt;
use crate::store::breaker::Breaker;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::{
    AcquireCall, IfMissing, LimiterStore, OnDone, PermitsInUse, Store, Task, TimeToLive,
};
use crate::window::{Answer, Condition, Expiry, Settlement};
use crate::{FailurePolicy, LimiterOptions, Rate, RedissonClient};

/// A store in memory behind a breaker. Calls that arrive while it is down fail at their response timeout.
#[derive(Debug, Clone)]
pub(in super::super) struct Remote {
    store: MemoryStore,
    memory: Arc<MemoryClient>,
    pub(super) breaker: Arc<Breaker>,
    pub(super) is_away: Arc<AtomicBool>,
    /// Whether calls are executed, and not answered.
    pub(in super::super) is_silent: Arc<AtomicBool>,
    /// With which error calls end at their response timeout, if they do.
    refusal: Arc<Mutex<Option<Error>>>,
    calls: Arc<AtomicUsize>,
    /// What each acquire took.
    taken: Arc<Mutex<HashMap<CallId, Grant>>>,
    /// In ms.
    round_trip: Arc<AtomicU64>,
}

#[derive(Debug)]
struct RemoteLimiter {
    remote: Remote,
    memory: Arc<dyn LimiterStore>,
}

/// It is over when it has been executed.
const ATTEMPT: Attempt = Attempt {
    deadline: 0,
    from: 0,
};

impl Remote {
    pub(in super::super) fn new() -> Self {
        let store = MemoryStore::new();
        Self {
            memory: Arc::new(MemoryClient::new(&store, Clock::server())),
            store,
            breaker: Breaker::new("remote".to_owned(), RESPONSE_TIMEOUT, Arc::default()),
            is_away: Arc::default(),
            is_silent: Arc::default(),
            refusal: Arc::default(),
            calls: Arc::default(),
            taken: Arc::default(),
            round_trip: Arc::new(AtomicU64::new(1)),
        }
    }

    pub(in super::super) fn client(&self, policy: FailurePolicy) -> RedissonClient {
        let builder =
            RedissonClient::builder().default_options(LimiterOptions::new().failure_policy(policy));
        builder.build(self.clone())
    }

    /// A client of the same limiters whose calls take no time and are not counted.
    pub(in super::super) fn at_once(&self) -> RedissonClient {
        RedissonClient::builder().in_memory(&self.store)
    }

    /// The connection is lost, and cannot be made again.
    pub(in super::super) fn go_down(&self) {
        self.is_away.store(true, Ordering::Relaxed);
        self.breaker.disconnected(&Error::not_sent());
    }

    pub(super) fn come_back(&self) {
        self.is_away.store(false, Ordering::Relaxed);
        self.breaker.connected();
    }

    /// From now on calls are refused; with `None` they are not.
    pub(super) fn refuse(&self, refused: Option<Refused>) {
        let refusal = |refused| Refusal::new(refused, Arc::new(std::fmt::Error));
        let error = |refused| Error::unavailable(Arc::new(refusal(refused)));
        *self.refusal.lock().unwrap() = refused.map(error);
    }

    pub(in super::super) fn set_round_trip(&self, round_trip: Duration) {
        let millis = round_trip.as_millis() as u64;
        self.round_trip.store(millis, Ordering::Relaxed);
    }

    pub(in super::super) fn take_calls(&self) -> usize {
        self.calls.swap(0, Ordering::Relaxed)
    }

    async fn answer<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.answer_by(Instant::now() + RESPONSE_TIMEOUT, call)
            .await
    }

    async fn answer_by<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let round_trip = self.round_trip.load(Ordering::Relaxed);
        sleep(Duration::from_millis(round_trip)).await;
        let refusal = self.refusal.lock().unwrap().clone();
        let result = if self.is_away.load(Ordering::Relaxed) {
            sleep_until(deadline).await;
            Err(Error::Indeterminate { source: None })
        } else if let Some(refusal) = refusal {
            sleep_until(deadline).await;
            Err(refusal)
        } else {
            let answer = call.await;
            if self.is_silent.load(Ordering::Relaxed) {
                sleep_until(deadline).await;
                Err(Error::Indeterminate { source: None })
            } else {
                answer
            }
        };
        self.breaker.note(&result, deadline);
        result
    }
}

impl RemoteLimiter {
    /// Takes a step after a round trip, whether the store answers or not; at once after the end of the runtime.
    fn in_background(&self, step: impl FnOnce(Arc<dyn LimiterStore>) + Send + 'static) {
        let memory = Arc::clone(&self.memory);
        let round_trip = self.remote.round_trip.load(Ordering::Relaxed);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                sleep(Duration::from_millis(round_trip)).await;
                step(memory);
            })),
            Err(_) => step(memory),
        }
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

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(RemoteLimiter {
            remote: self.clone(),
            memory: self.memory.limiter(keys),
        })
    }

    fn is_healthy(&self) -> bool {
        self.breaker.is_healthy()
    }

    async fn check(&self, call: &Arc<Call>, deadline: Instant) -> Result<Answers> {
        call.note_sent(true);
        let checking = self.memory.check(call, deadline);
        self.answer_by(deadline, checking).await
    }

    async fn reset(&self, call: &Arc<Call>, deadline: Instant) -> Result<bool> {
        call.note_sent(true);
        self.answer_by(deadline, self.memory.reset(call, deadline))
            .await
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

    fn breaker(&self) -> Option<Arc<Breaker>> {
        Some(Arc::clone(&self.remote.breaker))
    }

    fn may_have_peers(&self) -> bool {
        false
    }

    async fn acquire(&self, call: &AcquireCall, deadline: Instant) -> Result<Answer> {
        let asking = async {
            call.note_attempt(ATTEMPT)?;
            let answer = self.memory.acquire(call, deadline).await?;
            let grant = Grant::new(answer.score, call.id, call.requests.taken(&answer) as u32);
            self.remote.taken.lock().unwrap().insert(call.id, grant);
            Ok(answer)
        };
        self.remote.answer_by(deadline, asking).await
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        self.in_background(move |memory| memory.refund_unclaimed(grant, on_done));
    }

    fn reclaim(self: Arc<Self>, call: Arc<AcquireCall>, on_done: OnDone) {
        let taken = Arc::clone(&self.remote.taken);
        self.in_background(move |memory| {
            let grant = taken.lock().unwrap().remove(&call.id);
            let grant = grant.filter(|it| call.claim() && call.granted_at() != Some(it.score));
            match grant {
                Some(grant) => memory.refund_unclaimed(grant, on_done),
                None => on_done(),
            }
        });
    }

    fn run_in_background(&self, task: Task) {
        // After the end of the runtime there is nobody left to serve.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(task);
        }
    }

    async fn refund(&self, grant: &Grant) -> Result<u32> {
        self.remote.answer(self.memory.refund(grant)).await
    }

    async fn settle(&self, lease: &Grant, settlement: Settlement) -> Result<u32> {
        self.remote
            .answer(self.memory.settle(lease, settlement))
            .await
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
