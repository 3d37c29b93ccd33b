//! Acquires on many limiters in one call.
//!
//! A call costs the server about as much as the decision that it is for. So while many acquires of a runtime are in
//! flight, the next ones are not sent one by one. They join the pending batch, and a task, the flusher, sends the batch
//! when the runtime polls it. Each acquire is decided separately (`lua/multi_acquire.lua`). No acquire waits for the
//! answer to another one, and while few are in flight each is sent directly, without a task.
//!
//! Each runtime has its own batch, so that no acquire waits for another runtime to be polled.
//!
//! Only decisions are taken from such a call. If the call was refused, as a whole or for one limiter, or if its flusher
//! was dropped, the acquire is sent again alone, as one that may have run, and has its own error. This also works
//! behind a proxy that has limiters on several servers and sends the call to one of them.
//!
//! On a cluster the limiters are in different slots, so there is no such call.

mod batch;
mod sender;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::acquire_args::{call_args, call_key, list_args};
use super::connection::Connection;
use super::connection::per_runtime::PerRuntime;
use super::failure::Failure;
use super::server_time::ServerTime;
use crate::clock::Clock;
use crate::keys::Keys;
use crate::rate::RateType;
use crate::store::redis::script::Args;
use crate::window::Acquire;
use batch::{PendingAcquire, RuntimeAcquires};
use sender::Sender;

/// The next acquires share a call once this many are in flight.
const FEW: usize = 16;

/// The most limiters of one call: the server does nothing else while it runs.
const LARGEST_CALL: usize = 32;

/// The most runs of equal requests in the lists of one call, unless a single list has more.
const LARGEST_LISTS: usize = 1_000;

/// What came back, and the time that was sent along.
pub(super) struct AcquireReply {
    pub(super) answer: Value,
    pub(super) now: Option<i64>,
}

/// The outcome of an acquire in a shared call.
pub(super) enum SharedReply {
    Answered(Result<AcquireReply, Failure>),
    /// The call, or its part for this limiter, was refused and did nothing: it must be sent again alone.
    Refused,
}

/// The shared calls of one client.
pub(super) struct MultiAcquires {
    sender: Arc<Sender>,
    batches: PerRuntime<RuntimeAcquires>,
}

/// Counts an acquire as in flight until it is dropped.
pub(super) struct CountedAcquire {
    batch: Arc<RuntimeAcquires>,
    is_one_of_many: bool,
}

impl CountedAcquire {
    /// Whether it joins the pending batch.
    pub(super) fn is_one_of_many(&self) -> bool {
        self.is_one_of_many
    }
}

impl Drop for CountedAcquire {
    fn drop(&mut self) {
        self.batch.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl MultiAcquires {
    pub(super) fn new(
        connection: &Arc<Connection>,
        clock: &Clock,
        server_time: &Arc<ServerTime>,
    ) -> Self {
        Self {
            sender: Arc::new(Sender {
                connection: Arc::clone(connection),
                clock: clock.clone(),
                server_time: Arc::clone(server_time),
                is_spread: AtomicBool::new(connection.is_cluster()),
            }),
            batches: PerRuntime::new(),
        }
    }

    /// Counts an acquire of the current runtime.
    pub(super) fn enter(&self) -> Result<CountedAcquire, Failure> {
        let batch = self.batches.current(RuntimeAcquires::default)?;
        let in_flight = batch.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(CountedAcquire {
            batch,
            is_one_of_many: in_flight >= FEW
                && !self.sender.is_spread.load(Ordering::Relaxed)
                && self.sender.server_time.is_known(),
        })
    }

    /// Sends an acquire with others, and waits until its deadline at most. `None` if no answer came: it may have run.
    pub(super) async fn acquire(
        &self,
        counted: &CountedAcquire,
        keys: &Keys,
        rate_type: RateType,
        call: &Acquire,
        deadline: Instant,
        server_deadline: i64,
    ) -> Option<SharedReply> {
        let mut words = Args::new();
        let of_call = call_key(keys, call);
        let sets_up = call.set_up.is_some();
        let keys = keys.of_acquire(rate_type, sets_up, of_call.as_deref());
        for key in &keys {
            words = words.bytes(key.as_bytes());
        }
        let (answer, receiver) = oneshot::channel();
        let entry = PendingAcquire {
            rate_type,
            words: call_args(words, call),
            keys: keys.len(),
            list: list_args(call, None),
            runs: call.requests.runs.len(),
            requests: call.requests.count(),
            deadline,
            server_deadline,
            answer,
        };
        if counted.batch.push(entry) {
            let flusher = MultiAcquireFlusher {
                sender: Arc::clone(&self.sender),
                batch: Arc::clone(&counted.batch),
                has_taken: false,
            };
            tokio::spawn(flusher.flush());
        }
        timeout_at(deadline, receiver).await.ok()?.ok()
    }
}

/// The task that sends the pending batch. If it is dropped before, the acquires are sent alone.
struct MultiAcquireFlusher {
    sender: Arc<Sender>,
    batch: Arc<RuntimeAcquires>,
    has_taken: bool,
}

impl MultiAcquireFlusher {
    async fn flush(mut self) {
        yield_now().await; // tasks that are ready now may join the batch
        let mut entries = self.batch.take();
        self.has_taken = true;
        loop {
            let of_one_call = of_one_call(entries.iter().map(|entry| entry.runs));
            if of_one_call == entries.len() {
                break;
            }
            let first = entries.drain(..of_one_call).collect();
            tokio::spawn(Arc::clone(&self.sender).send(first));
        }
        Arc::clone(&self.sender).send(entries).await;
    }
}

/// How many acquires, from the front, one call takes, if their lists have so many runs.
fn of_one_call(runs: impl Iterator<Item = usize>) -> usize {
    let mut all = 0;
    let fit = runs.enumerate().take_while(|&(place, runs)| {
        all += runs;
        place == 0 || (place < LARGEST_CALL && all <= LARGEST_LISTS)
    });
    fit.count()
}

impl Drop for MultiAcquireFlusher {
    fn drop(&mut self) {
        if !self.has_taken {
            drop(self.batch.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};

    use super::super::connection::Silent;
    use super::*;
    use crate::window::Requests;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn multi_acquires() -> Arc<MultiAcquires> {
        let connection = Arc::new(Connection::over(
            Silent,
            Duration::from_secs(60),
            Arc::default(),
        ));
        let server_time = Arc::new(ServerTime::unknown());
        server_time.learn(0);
        Arc::new(MultiAcquires::new(
            &connection,
            &Clock::server(),
            &server_time,
        ))
    }

    async fn acquire(
        multi_acquires: &Arc<MultiAcquires>,
        timeout: Duration,
    ) -> Option<SharedReply> {
        let call = Acquire::first(Requests::one(1));
        let keys = Keys::new("limiter", "client");
        let deadline = Instant::now() + timeout;
        let counted = multi_acquires.enter().unwrap();
        multi_acquires
            .acquire(
                &counted,
                &keys,
                RateType::Overall,
                &call,
                deadline,
                i64::MAX,
            )
            .await
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_call_that_another_runtime_polls_is_not_lost_when_its_own_ends() {
        for polls_of_the_flusher in [0, 10] {
            let (own, other) = (runtime(), runtime());
            let multi_acquires = multi_acquires();
            let mut asking = Box::pin(acquire(&multi_acquires, HOUR));
            own.block_on(async {
                let mut context = Context::from_waker(Waker::noop());
                assert!(asking.as_mut().poll(&mut context).is_pending());
                for _ in 0..polls_of_the_flusher {
                    yield_now().await;
                }
            });
            drop(own);
            assert!(other.block_on(asking).is_none());
        }
    }

    #[test]
    fn a_runtime_that_is_not_polled_holds_up_no_other() {
        let (idle, other) = (runtime(), runtime());
        let multi_acquires = multi_acquires();
        let mut waiting = Box::pin(acquire(&multi_acquires, HOUR));
        idle.block_on(async {
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        });
        // The other one's batch has its own flusher, whose call ends at its deadline.
        let answer = other.block_on(acquire(&multi_acquires, Duration::from_millis(1)));
        assert!(matches!(
            answer,
            None | Some(SharedReply::Answered(Err(Failure::Lost(None))))
        ));
    }

    #[test]
    fn a_silent_connection_costs_no_more_than_the_deadline() {
        let runtime = runtime();
        let multi_acquires = multi_acquires();
        let answer = runtime.block_on(acquire(&multi_acquires, Duration::from_millis(1)));
        assert!(matches!(
            answer,
            None | Some(SharedReply::Answered(Err(Failure::Lost(None))))
        ));
    }

    #[test]
    fn limiters_and_lists_of_a_call_are_at_most_what_a_few_ms_decide() {
        let of_one_call = |runs: &[usize]| of_one_call(runs.iter().copied());
        assert_eq!(of_one_call(&[]), 0);
        assert_eq!(of_one_call(&[1; 100]), LARGEST_CALL);
        assert_eq!(of_one_call(&[31; LARGEST_CALL]), LARGEST_CALL);
        assert_eq!(of_one_call(&[300; 5]), 3);
        assert_eq!(of_one_call(&[999, 1, 1]), 2);
        assert_eq!(of_one_call(&[4_096, 1]), 1);
        assert_eq!(of_one_call(&[1, 4_096]), 1);
    }

    #[test]
    fn acquires_share_a_call_while_many_are_in_flight() {
        let runtime = runtime();
        let _entered = runtime.enter();
        let multi_acquires = multi_acquires();
        let enter = || multi_acquires.enter().unwrap();
        let mut in_flight: Vec<_> = (0..FEW).map(|_| enter()).collect();
        assert!(in_flight.iter().all(|acquire| !acquire.is_one_of_many()));
        assert!(enter().is_one_of_many());
        in_flight.pop();
        assert!(!enter().is_one_of_many());
    }
}
