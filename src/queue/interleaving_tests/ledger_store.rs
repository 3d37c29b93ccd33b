//! A store for interleavings: a [`Ledger`], with other threads between every two of its steps. A
//! thread of the test runs its background work.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::yield_now;
use tokio::time::Instant;

use super::super::ledger_in_tests::{Ledger, RATE};
use super::*;
use crate::box_future::BoxFuture;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::interleaving::let_others_run;
use crate::keys::Keys;
use crate::lock::Lock;
use crate::permit::CallId;
use crate::rate::Rate;
use crate::store::acquire_call::Attempt;
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::store::{
    AcquireCall, GivingBack, LimiterChange, LimiterStore, OnDone, Store, Task, TimeToLive,
};
use crate::window::{Acquired, Settlement};

/// When the test begins. By the clock of the callers, time stands still.
const START: i64 = 0;

pub(super) struct LedgerStore {
    keys: Keys,
    /// Has no limiters and no server, and so no breaker.
    client: MemoryClient,
    kept: Lock<Kept>,
    jobs: Lock<Vec<Job>>,
    /// How many jobs are not done.
    unfinished: AtomicUsize,
}

struct Kept {
    ledger: Ledger,
    /// The score of the next grant: no two have the same.
    now: i64,
    /// Calls whose attempts no longer do anything.
    ended: Vec<CallId>,
}

enum Job {
    Refund(Grant, OnDone),
    Reclaim(Arc<AcquireCall>, OnDone),
}

impl LedgerStore {
    /// All permits are taken by others.
    pub(super) fn new() -> Arc<Self> {
        let mut ledger = Ledger::new(3_600_000);
        ledger.take_for_another(RATE as u32, START);
        Arc::new(Self {
            keys: Keys::new("limiter", "client"),
            client: MemoryClient::new(&MemoryStore::new(), Clock::server()),
            kept: Lock::new(Kept {
                ledger,
                now: START,
                ended: Vec::new(),
            }),
            jobs: Lock::default(),
            unfinished: AtomicUsize::new(0),
        })
    }

    /// The others give all permits back.
    pub(super) fn free(&self) {
        self.kept.lock().ledger.take_back_all_of_others();
    }

    /// Callers of this process give theirs back.
    pub(super) fn release_own(&self) {
        self.kept.lock().ledger.take_back_own();
    }

    pub(super) fn in_use(&self) -> u32 {
        self.kept.lock().ledger.in_use().map(|it| it.2).sum()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) == 0
    }

    fn push(&self, job: Job) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        self.jobs.lock().push(job);
    }

    pub(super) fn run_a_job(&self) {
        let job = self.jobs.lock().pop();
        let Some(job) = job else {
            return;
        };
        match job {
            Job::Refund(grant, on_done) => {
                self.kept.lock().ledger.refund(&grant);
                on_done();
            }
            Job::Reclaim(call, on_done) => {
                if call.claim() {
                    let mut kept = self.kept.lock();
                    kept.ended.push(call.id);
                    kept.ledger.reclaim(call.id, call.granted_at());
                }
                on_done();
            }
        }
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for LedgerStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerStore").finish_non_exhaustive()
    }
}

impl LimiterStore for LedgerStore {
    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn client(&self) -> &dyn Store {
        &self.client
    }

    fn call_deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(3)
    }

    fn wall_millis(&self) -> i64 {
        START
    }

    fn may_have_peers(&self) -> bool {
        false
    }

    fn acquire<'a>(
        &'a self,
        call: &'a AcquireCall,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            call.note_attempt(Attempt {
                deadline: START,
                from: START,
            })?;
            yield_now().await;
            let answer = {
                let mut kept = self.kept.lock();
                if kept.ended.contains(&call.id) {
                    return Err(Error::Indeterminate { source: None });
                }
                kept.now += 1;
                let now = kept.now;
                kept.ledger.execute(call, now)
            };
            yield_now().await;
            let_others_run();
            Ok(answer)
        })
    }

    fn refund_unclaimed(self: Arc<Self>, grant: Grant, on_done: OnDone) {
        self.push(Job::Refund(grant, on_done));
    }

    fn reclaim(self: Arc<Self>, call: Arc<AcquireCall>, on_done: OnDone) {
        self.push(Job::Reclaim(call, on_done));
    }

    fn run_in_background(&self, _task: Task) {
        // The task would wait for time to pass, and time stands still.
    }

    fn give_back_in_background(&self, _task: GivingBack) {
        // The task would wait for time to pass, and time stands still.
    }

    fn refund<'a>(&'a self, _grant: &'a Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn settle<'a>(
        &'a self,
        _lease: &'a Grant,
        _settlement: Settlement,
    ) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn release(&self, _permits: u32) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn hold(&self, _millis: i64, _call_id: CallId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn available_permits(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn change(&self, _: LimiterChange) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn config(&self) -> BoxFuture<'_, Result<Option<Rate>>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }

    fn remain_time_to_live(&self) -> BoxFuture<'_, Result<TimeToLive>> {
        Box::pin(async move { unreachable!("no test asks for it") })
    }
}
