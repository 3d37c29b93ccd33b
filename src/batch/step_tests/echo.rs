//! A store for requests that share calls, which answers when the test says so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::super::*;

pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const CAPACITY: usize = 3;
/// Requests with a cost from this to twice this have two calls in flight at once.
pub(super) const LARGE: u32 = 100;

/// A store that answers each request with its cost.
pub(super) struct Echo<const IS_REPEATABLE: bool> {
    /// How long a call that is made now takes.
    pub(super) takes: Mutex<Duration>,
    pub(super) timeout: Mutex<Duration>,
    /// Nothing is sent until this is `true`.
    pub(super) is_reachable: watch::Sender<bool>,
    made: Mutex<Vec<Vec<u32>>>,
    sent: Arc<Mutex<Vec<Vec<u32>>>>,
    abandoned: Mutex<Vec<Vec<u32>>>,
    pub(super) overdue: Mutex<Vec<(Vec<u32>, Instant)>>,
    unclaimed: Mutex<Vec<u32>>,
}

pub(super) struct EchoCall {
    costs: Vec<u32>,
    is_sent: AtomicBool,
}

impl<const IS_REPEATABLE: bool> Calls for Echo<IS_REPEATABLE> {
    type Key = ();
    type Request = u32;
    type Answer = u32;
    type Call = Arc<EchoCall>;

    const CAPACITY: usize = CAPACITY;
    const IS_REPEATABLE: bool = IS_REPEATABLE;

    fn calls_at_once(request: &u32) -> usize {
        1 + usize::from((LARGE..2 * LARGE).contains(request))
    }

    fn cost(request: &u32) -> u32 {
        *request
    }

    fn deadline(&self) -> Instant {
        Instant::now() + *self.timeout.lock().unwrap()
    }

    fn call<'a>(&self, requests: impl Iterator<Item = &'a u32> + Clone) -> Arc<EchoCall> {
        let costs = requests.copied().collect::<Vec<_>>();
        self.made.lock().unwrap().push(costs.clone());
        let is_sent = AtomicBool::new(false);
        Arc::new(EchoCall { costs, is_sent })
    }

    fn run(
        &self,
        call: Arc<EchoCall>,
        deadline: Instant,
    ) -> impl Future<Output = Result<CallAnswers<Self>>> + Send + 'static {
        let takes = *self.takes.lock().unwrap();
        let sent = Arc::clone(&self.sent);
        let mut is_reachable = self.is_reachable.subscribe();
        async move {
            let sending = async {
                is_reachable
                    .wait_for(|is_reachable| *is_reachable)
                    .await
                    .unwrap();
                call.is_sent.store(true, Ordering::Relaxed);
                sent.lock().unwrap().push(call.costs.clone());
                sleep(takes).await;
            };
            let answered = timeout_at(deadline, sending).await;
            answered.map_err(|_| unanswered::<Self>(&call))?;
            Ok(call.costs.iter().copied().map(Ok).collect())
        }
    }

    fn may_have_run(call: &Arc<EchoCall>) -> bool {
        call.is_sent.load(Ordering::Relaxed)
    }

    fn abandon(&self, call: &Arc<EchoCall>) {
        self.abandoned.lock().unwrap().push(call.costs.clone());
    }

    fn abandon_overdue(&self, call: &Arc<EchoCall>, deadline: Instant) {
        let overdue = (call.costs.clone(), deadline);
        self.overdue.lock().unwrap().push(overdue);
    }

    fn unclaimed(&self, answers: Vec<u32>) {
        self.unclaimed.lock().unwrap().extend(answers);
    }
}

pub(super) type Asking = JoinHandle<Result<u32>>;

pub(super) struct Requests<const IS_REPEATABLE: bool = true>(
    pub(super) Arc<Batcher<Echo<IS_REPEATABLE>>>,
);

impl Requests<true> {
    pub(super) fn taking(takes: Duration) -> Self {
        Self::over(takes)
    }
}

impl Requests<false> {
    /// Requests that cannot be made again.
    pub(super) fn unrepeatable(takes: Duration) -> Self {
        Self::over(takes)
    }
}

impl<const IS_REPEATABLE: bool> Requests<IS_REPEATABLE> {
    fn over(takes: Duration) -> Self {
        Self(Arc::new(Batcher::new(Echo {
            takes: Mutex::new(takes),
            timeout: Mutex::new(TIMEOUT),
            is_reachable: watch::Sender::new(true),
            made: Mutex::default(),
            sent: Arc::default(),
            abandoned: Mutex::default(),
            overdue: Mutex::default(),
            unclaimed: Mutex::default(),
        })))
    }

    /// Makes a request, which is direct, in flight or pending when this returns.
    pub(super) async fn ask(&self, cost: u32) -> Asking {
        let batcher = Arc::clone(&self.0);
        let asking = tokio::spawn(async move { batcher.ask(&(), &cost).await });
        run_until_stalled().await;
        asking
    }

    pub(super) fn made(&self) -> Vec<Vec<u32>> {
        self.0.calls.made.lock().unwrap().clone()
    }

    /// The calls that the store has received, of those that were made.
    pub(super) fn sent(&self) -> Vec<Vec<u32>> {
        self.0.calls.sent.lock().unwrap().clone()
    }

    pub(super) fn abandoned(&self) -> Vec<Vec<u32>> {
        self.0.calls.abandoned.lock().unwrap().clone()
    }

    pub(super) fn unclaimed(&self) -> Vec<u32> {
        self.0.calls.unclaimed.lock().unwrap().clone()
    }

    /// Waits until all requests are done, and asserts that none is left.
    pub(super) async fn end(&self) {
        sleep(10 * TIMEOUT).await;
        assert!(self.0.flights().is_empty());
    }
}

/// Polls all tasks until none makes progress without time passing. Paused time stands still.
pub(super) async fn run_until_stalled() {
    for _ in 0..5 {
        yield_now().await;
    }
}
