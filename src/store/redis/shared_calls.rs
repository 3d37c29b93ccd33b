//! Calls on different keys that are sent as one.
//!
//! A call costs the server about as much as the decision that it is for. So while many calls of a
//! kind are in flight on a runtime, the next ones are not sent one by one. They join the pending
//! batch. A part that no longer fits into one call sends those before it, and a task, the flusher,
//! sends the rest when the runtime polls it. Each [part](Part) is decided separately. No call waits
//! for the answer to another one, and while few are in flight each is sent directly, without a
//! task. Parts are sent in the order in which they joined.
//!
//! Each runtime has its own batch, so that no call waits for another runtime to be polled. A call
//! that moves to another runtime joins the batch there, and outside of all runtimes none.
//!
//! Only a connection that leads to one server carries such calls ([`Connection::is_one_server`]).
//! On a cluster the keys are in different slots, so nothing is shared there.

mod batch;
mod sender;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use redis::{RedisError, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::script::{Args, Script};
use crate::link::PerRuntime;
use crate::link::failure::Failure;
use crate::link::limits::Repeat;
use batch::{Caller, PendingPart, RuntimeParts};
pub(super) use sender::CallSender;

/// The next calls share one once this many are in flight.
const FEW: usize = 16;

/// What a call does for one key.
pub(crate) trait Part: Sized + Send + Sync + 'static {
    const REPEAT: Repeat;

    fn script() -> &'static Script;

    /// The number of runs of requests, each of which takes the server time beside the decision
    /// itself.
    fn work(&self) -> usize;

    /// How many requests it carries, for events.
    fn requests(&self) -> u32;

    /// The parts of a call are sent in ascending order of this.
    fn rank(&self) -> usize {
        0
    }

    fn keys_and_args<'a>(
        parts: &[&'a Self],
        server_deadline: Option<i64>,
        now: Option<i64>,
    ) -> (Vec<&'a [u8]>, Args);

    /// What an error means that a script returned for one part.
    fn refused(error: RedisError) -> SharedReply;
}

/// The reply to a part, and the time in ms that was sent with it.
pub(crate) struct PartReply {
    pub(super) answer: Value,
    pub(super) now: Option<i64>,
}

/// The outcome of a part of a shared call.
pub(crate) enum SharedReply {
    Answered(Result<PartReply, Failure>),
    /// The call, or this part, was refused and did nothing: it must be sent again alone, and has
    /// its own error.
    Refused,
}

/// The shared calls of one kind of a client.
pub(super) struct SharedCalls<P: Part> {
    sender: Arc<CallSender>,
    batches: PerRuntime<RuntimeParts<P>>,
}

/// Counts a call as in flight until it is dropped.
pub(super) struct CountedCall<P> {
    batch: Arc<RuntimeParts<P>>,
    /// Whether it joins the pending batch.
    pub(super) is_one_of_many: bool,
}

impl<P> Drop for CountedCall<P> {
    fn drop(&mut self) {
        self.batch.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: Part> SharedCalls<P> {
    pub(super) fn new(sender: &Arc<CallSender>) -> Self {
        Self {
            sender: Arc::clone(sender),
            batches: PerRuntime::new(),
        }
    }

    /// Counts a call of the current runtime on a key.
    pub(super) fn enter(&self, key: &str) -> Result<CountedCall<P>, Failure> {
        let batch = self.batches.current(RuntimeParts::default)?;
        let in_flight = batch.in_flight.fetch_add(1, Ordering::Relaxed);
        let sender = &self.sender;
        Ok(CountedCall {
            batch,
            is_one_of_many: in_flight >= FEW
                && sender.server_time.is_known()
                && sender.connection.is_one_server(key),
        })
    }

    /// Sends the pending batch now if it has such a part, so that a call that is sent next does not
    /// overtake that part.
    pub(super) async fn send_before(&self, is_such: impl Fn(&P) -> bool) {
        let Ok(batch) = self.batches.current(RuntimeParts::default) else {
            return; // nothing is sent outside of a runtime
        };
        if let Some(entries) = batch.take_if_any(is_such) {
            send_now(&self.sender, entries).await;
        }
    }

    /// Sends a part with others, and waits until its deadline at most. `None` if no answer came: it
    /// may have run.
    pub(super) async fn send(
        &self,
        part: P,
        deadline: Instant,
        server_deadline: i64,
    ) -> Option<SharedReply> {
        let Ok(batch) = self.batches.current(RuntimeParts::default) else {
            return Some(SharedReply::Refused);
        };
        let (answer, receiver) = oneshot::channel();
        let caller = Caller {
            deadline,
            server_deadline,
            answer: Some(answer),
        };
        let (full, needs_flusher) = batch.push(PendingPart { part, caller });
        if needs_flusher {
            let flusher = SharedCallFlusher {
                sender: Arc::clone(&self.sender),
                batch,
                has_taken: false,
            };
            tokio::spawn(flusher.flush());
        }
        if !full.is_empty() {
            send_now(&self.sender, full).await;
        }
        receiver.await.ok()
    }
}

/// The task that sends the pending batch. If it is dropped before that, the parts are refused, and
/// their callers send them alone.
struct SharedCallFlusher<P: Part> {
    sender: Arc<CallSender>,
    batch: Arc<RuntimeParts<P>>,
    has_taken: bool,
}

impl<P: Part> SharedCallFlusher<P> {
    async fn flush(mut self) {
        yield_now().await; // tasks that are ready now may join the batch
        let entries = self.batch.take();
        self.has_taken = true;
        send_now(&self.sender, entries).await;
    }
}

/// Sends the entries as one call, and leaves their answers to a task. The future is ready when it
/// is first polled.
async fn send_now<P: Part>(sender: &Arc<CallSender>, entries: Vec<PendingPart<P>>) {
    let mut sending = Box::pin(Arc::clone(sender).send(entries));
    let is_sent = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context)));
    if is_sent.await.is_pending() {
        tokio::spawn(sending);
    }
}

impl<P: Part> Drop for SharedCallFlusher<P> {
    fn drop(&mut self) {
        if !self.has_taken {
            for entry in self.batch.take() {
                entry.caller.answer(SharedReply::Refused);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use redis::{Cmd, RedisResult};
    use tokio::runtime::{Builder, Runtime};
    use tokio::time::sleep;

    use super::super::multi_acquire::AcquirePart;
    use super::*;
    use crate::box_future::BoxFuture;
    use crate::clock::Clock;
    use crate::keys::Keys;
    use crate::link::server_time::ServerTime;
    use crate::link::{Connection, SendsCommands, Silent};
    use crate::rate::RateType;
    use crate::window::{Acquire, Requests};

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn over(connection: impl SendsCommands) -> Arc<SharedCalls<AcquirePart>> {
        let minute = Duration::from_secs(60);
        let connection = Arc::new(Connection::over(connection, minute, Arc::default()));
        let server_time = Arc::new(ServerTime::unknown());
        server_time.learn(0);
        Arc::new(SharedCalls::new(&Arc::new(CallSender {
            connection,
            clock: Clock::server(),
            server_time,
        })))
    }

    fn multi_acquires() -> Arc<SharedCalls<AcquirePart>> {
        over(Silent)
    }

    async fn acquire(
        multi_acquires: &Arc<SharedCalls<AcquirePart>>,
        timeout: Duration,
    ) -> Option<SharedReply> {
        let call = Acquire::first(Requests::one(1));
        let keys = Keys::new("limiter", "client");
        let deadline = Instant::now() + timeout;
        let part = AcquirePart::new(&keys, RateType::Overall, &call);
        multi_acquires.send(part, deadline, i64::MAX).await
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_call_that_another_runtime_polls_is_not_lost_when_its_own_ends() {
        for (polls_of_the_flusher, is_sent) in [(0, false), (10, true)] {
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
            match other.block_on(asking) {
                None => assert!(is_sent),
                Some(SharedReply::Refused) => assert!(!is_sent, "it is sent again alone"),
                Some(SharedReply::Answered(_)) => panic!("nothing comes back"),
            }
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

    /// A connection whose answers take a second.
    struct Slow;

    impl SendsCommands for Slow {
        fn send<'a>(&'a self, _command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
            Box::pin(async {
                sleep(Duration::from_secs(1)).await;
                Ok(Value::Array(vec![Value::Nil; 2]))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_with_little_time_does_not_end_the_others_of_its_call() {
        let multi_acquires = over(Slow);
        let (short, long) = tokio::join!(
            acquire(&multi_acquires, Duration::from_millis(10)),
            acquire(&multi_acquires, HOUR),
        );
        assert!(short.is_none());
        assert!(matches!(long, Some(SharedReply::Answered(Ok(_)))));
    }

    /// A connection whose server has this id.
    struct Server(&'static str);

    impl SendsCommands for Server {
        fn send<'a>(&'a self, _command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
            Box::pin(async { Ok(Value::BulkString(self.0.into())) })
        }
    }

    #[tokio::test]
    async fn acquires_share_a_call_while_many_are_in_flight() {
        let multi_acquires = over(Server("id"));
        let enter = || multi_acquires.enter("limiter").unwrap();
        let mut in_flight: Vec<_> = (0..FEW).map(|_| enter()).collect();
        assert!(in_flight.iter().all(|acquire| !acquire.is_one_of_many));
        // Until all keys are known to be on one server.
        while !enter().is_one_of_many {
            yield_now().await;
        }
        in_flight.pop();
        assert!(!enter().is_one_of_many);
    }

    #[test]
    fn outside_of_a_runtime_a_call_joins_no_batch_and_breaks_none() {
        let runtime = runtime();
        let multi_acquires = over(Server("id"));
        let mut asking = Box::pin(acquire(&multi_acquires, HOUR));
        let mut context = Context::from_waker(Waker::noop());
        let outside = asking.as_mut().poll(&mut context);
        assert!(matches!(outside, Poll::Ready(Some(SharedReply::Refused))));
        runtime.block_on(multi_acquires.send_before(|_| true));
        let answer = runtime.block_on(acquire(&multi_acquires, HOUR));
        assert!(matches!(answer, Some(SharedReply::Answered(_))));
    }

    /// Counts what is sent, and never answers.
    struct Counted(Arc<AtomicUsize>);

    impl SendsCommands for Counted {
        fn send<'a>(&'a self, _command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_full_call_is_sent_at_once_however_many_follow() {
        let sent = Arc::default();
        let multi_acquires = over(Counted(Arc::clone(&sent)));
        let mut context = Context::from_waker(Waker::noop());
        let mut asking = Vec::new();
        for calls in 0..3 {
            for _ in 0..32 {
                let mut asked = Box::pin(acquire(&multi_acquires, HOUR));
                assert!(asked.as_mut().poll(&mut context).is_pending());
                asking.push(asked);
            }
            assert_eq!(sent.load(Ordering::Relaxed), calls);
        }
    }
}
