//! Acquires on many limiters in one call.
//!
//! A call costs the server about as much as the decision that it is for. So where many acquires of a client are under
//! way, the next ones do not go one by one: they are put down, and a task, the carrier, takes along all that is there
//! when its turn on the runtime comes. Each is decided by itself (`lua/acquire_each.lua`). Nobody waits for an answer
//! that is under way, and where there are few calls each goes by itself, without a task.
//!
//! Only a decision is taken from such a call. Where it was refused, as a whole or for one limiter, or its carrier's
//! runtime shut down, the acquire is made again by itself: then its error is its own. That
//! holds behind a proxy too that has limiters on several servers and sends the call to one of them.
//!
//! On a cluster the limiters lie in different slots, so there is no such call.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::acquire_args::{call_args, list_args};
use super::connection::Connection;
use super::failure::{self, Failure};
use super::server_time::ServerTime;
use crate::clock::Clock;
use crate::keys::Keys;
use crate::model::Acquire;
use crate::rate::RateType;
use crate::script::{self, Args};

/// So many calls may be under way before the next ones are shared.
const FEW: usize = 16;

/// How many limiters one call carries at most: the server does nothing else meanwhile.
const LARGEST_CALL: usize = 32;

/// What came back, and the time that was sent along.
pub(super) struct Sent {
    pub(super) answer: Value,
    pub(super) now: Option<i64>,
}

/// What became of an acquire in a shared call.
pub(super) enum Carried {
    Answered(RedisResult<Sent>),
    /// The server refused it, or the call that it was in, so it did nothing: it is to be made again by itself.
    Refused,
}

/// The calls of one client's acquires.
pub(super) struct SharedCalls {
    connection: Arc<dyn Connection>,
    clock: Clock,
    server_time: Arc<ServerTime>,
    /// Where the connection is at work. `None` where it was made outside of a runtime.
    runtime: Option<Handle>,
    /// The limiters may lie in different slots.
    is_spread: AtomicBool,
    under_way: AtomicUsize,
    stop: Mutex<Stop>,
}

/// Where passengers wait for the carrier.
#[derive(Default)]
struct Stop {
    passengers: Vec<Passenger>,
    carrier_comes: bool,
}

/// One acquire in a shared call.
struct Passenger {
    rate_type: RateType,
    /// The keys, then the arguments.
    words: Args,
    keys: usize,
    /// Unless there is one plain request: the runs and the options.
    list: Option<Args>,
    deadline: Instant,
    /// The same by the server's clock.
    server_deadline: i64,
    answer: oneshot::Sender<Carried>,
}

/// An acquire that is under way.
pub(super) struct UnderWay<'a> {
    shared_calls: &'a SharedCalls,
    is_one_of_many: bool,
}

impl UnderWay<'_> {
    /// Whether it is to share a call with others.
    pub(super) fn is_one_of_many(&self) -> bool {
        self.is_one_of_many
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.shared_calls.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SharedCalls {
    pub(super) fn new(
        connection: &Arc<dyn Connection>,
        clock: &Clock,
        server_time: &Arc<ServerTime>,
        is_cluster: bool,
    ) -> Self {
        Self {
            connection: Arc::clone(connection),
            clock: clock.clone(),
            server_time: Arc::clone(server_time),
            runtime: Handle::try_current().ok(),
            is_spread: AtomicBool::new(is_cluster),
            under_way: AtomicUsize::new(0),
            stop: Mutex::default(),
        }
    }

    pub(super) fn set_out(&self) -> UnderWay<'_> {
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay {
            shared_calls: self,
            is_one_of_many: under_way >= FEW
                && !self.is_spread.load(Ordering::Relaxed)
                && self.server_time.is_known(),
        }
    }

    /// Lets a shared call carry an acquire. `None` where nobody tells what became of it.
    pub(super) async fn ask(
        self: &Arc<Self>,
        keys: &Keys,
        rate_type: RateType,
        call: &Acquire,
        deadline: Instant,
        server_deadline: i64,
    ) -> Option<Carried> {
        let mut words = Args::new();
        let keys = keys.of_acquire(rate_type, call.set_up.is_some());
        for key in &keys {
            words = words.bytes(key.as_bytes());
        }
        let (answer, receiver) = oneshot::channel();
        let passenger = Passenger {
            rate_type,
            words: call_args(words, call),
            keys: keys.len(),
            list: list_args(call, None),
            deadline,
            server_deadline,
            answer,
        };
        let carrier_comes = {
            let mut stop = self.stop();
            stop.passengers.push(passenger);
            std::mem::replace(&mut stop.carrier_comes, true)
        };
        if !carrier_comes {
            let carrier = Carrier::of(self).carry();
            match &self.runtime {
                Some(runtime) => runtime.spawn(carrier),
                None => tokio::spawn(carrier),
            };
        }
        receiver.await.ok()
    }

    fn stop(&self) -> MutexGuard<'_, Stop> {
        // Nothing panics while the lock is held.
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who wait, once. Who comes later waits for the next carrier.
    fn board(&self) -> Vec<Passenger> {
        let mut stop = self.stop();
        stop.carrier_comes = false;
        std::mem::take(&mut stop.passengers)
    }

    /// One call. A passenger that is dropped unanswered goes on by itself.
    async fn call(self: Arc<Self>, mut passengers: Vec<Passenger>) {
        passengers.retain(|passenger| !passenger.answer.is_closed());
        passengers.sort_by_key(|passenger| passenger.rate_type == RateType::PerClient);
        let deadlines = passengers.iter();
        let deadlines = deadlines.map(|passenger| (passenger.deadline, passenger.server_deadline));
        let Some((deadline, server_deadline)) =
            deadlines.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
        else {
            return;
        };
        let now = self.clock.now();
        let (keys, args) = keys_and_args(&passengers, server_deadline, now);
        let sending = script::ACQUIRE_EACH.run(&*self.connection, &keys, &args);
        let Ok(result) = timeout_at(deadline, sending).await else {
            return;
        };
        match result {
            Ok(Value::Array(answers)) if answers.len() == passengers.len() => {
                for (passenger, answer) in passengers.into_iter().zip(answers) {
                    passenger.tell(match answer.extract_error() {
                        Ok(answer) => Carried::Answered(Ok(Sent { answer, now })),
                        Err(_its_own) => Carried::Refused,
                    });
                }
            }
            // It came too late for all, or is none that the script makes.
            Ok(answer) => {
                for passenger in passengers {
                    let answer = answer.clone();
                    passenger.tell(Carried::Answered(Ok(Sent { answer, now })));
                }
            }
            Err(error) => self.fail(passengers, &error),
        }
    }

    fn fail(&self, passengers: Vec<Passenger>, error: &RedisError) {
        if error.kind() == ErrorKind::Server(ServerErrorKind::CrossSlot) {
            self.is_spread.store(true, Ordering::Relaxed);
        }
        // For one of them, and nobody knows which.
        let is_refused = failure::classify(error) == Failure::Refused;
        for passenger in passengers {
            passenger.tell(match is_refused {
                true => Carried::Refused,
                false => Carried::Answered(Err(error.clone())),
            });
        }
    }
}

fn keys_and_args(
    passengers: &[Passenger],
    server_deadline: i64,
    now: Option<i64>,
) -> (Vec<&[u8]>, Args) {
    let overall = passengers
        .iter()
        .filter(|passenger| passenger.rate_type == RateType::Overall);
    let mut args = Args::new()
        .number(server_deadline)
        .optional(now)
        .number(passengers.len() as i64)
        .number(overall.count() as i64);
    let mut keys = Vec::with_capacity(passengers.len() * 3);
    for passenger in passengers {
        keys.extend(passenger.words.iter().take(passenger.keys));
        for arg in passenger.words.iter().skip(passenger.keys) {
            args = args.bytes(arg);
        }
    }
    for (place, passenger) in passengers.iter().enumerate() {
        if let Some(list) = &passenger.list {
            args = args
                .number(place as i64 + 1)
                .number(passenger.keys as i64)
                .number(list.len() as i64)
                .all(list);
        }
    }
    (keys, args)
}

impl Passenger {
    fn tell(self, carried: Carried) {
        // Whoever is gone needs no answer.
        let _ = self.answer.send(carried);
    }
}

/// The task that takes along whoever waits. Where its runtime shuts down before, they go by themselves.
struct Carrier {
    shared_calls: Arc<SharedCalls>,
    has_left: bool,
}

impl Carrier {
    fn of(shared_calls: &Arc<SharedCalls>) -> Self {
        Self {
            shared_calls: Arc::clone(shared_calls),
            has_left: false,
        }
    }

    async fn carry(mut self) {
        yield_now().await; // whoever can run now may come along
        let mut passengers = self.shared_calls.board();
        self.has_left = true;
        while passengers.len() > LARGEST_CALL {
            let first = passengers.drain(..LARGEST_CALL).collect();
            tokio::spawn(Arc::clone(&self.shared_calls).call(first));
        }
        Arc::clone(&self.shared_calls).call(passengers).await;
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        if !self.has_left {
            drop(self.shared_calls.board());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use redis::Cmd;
    use tokio::runtime::{Builder, Runtime};

    use super::super::connection::Sending;
    use super::*;
    use crate::model::Requests;

    /// A connection over which nothing comes back.
    struct Silent;

    impl Connection for Silent {
        fn send<'a>(&'a self, _command: &'a Cmd) -> Sending<'a> {
            Box::pin(pending())
        }
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn shared_calls(runtime: &Runtime) -> Arc<SharedCalls> {
        let _entered = runtime.enter();
        let connection: Arc<dyn Connection> = Arc::new(Silent);
        let server_time = Arc::new(ServerTime::unknown());
        server_time.learn(0);
        let calls = SharedCalls::new(&connection, &Clock::server(), &server_time, false);
        Arc::new(calls)
    }

    async fn ask(shared_calls: &Arc<SharedCalls>) -> Option<Carried> {
        let call = Acquire {
            random: [1; 16],
            summed_rate: None,
            requests: Requests::one(1),
            newer_than: None,
            set_up: None,
        };
        let keys = Keys::new("limiter", "client");
        let deadline = Instant::now() + Duration::from_secs(3600);
        let asked = shared_calls.ask(&keys, RateType::Overall, &call, deadline, i64::MAX);
        asked.await
    }

    /// Asks in a runtime that lives on, lets the connection's runtime `work`, and ends that.
    fn answer_where_the_runtime_ends(work: impl FnOnce(&Runtime)) -> Option<Carried> {
        let (first, other) = (runtime(), runtime());
        let shared_calls = shared_calls(&first);
        let asking = other.spawn(async move { ask(&shared_calls).await });
        other.block_on(tokio::task::yield_now()); // it is put down
        work(&first);
        drop(first);
        other.block_on(asking).unwrap()
    }

    #[test]
    fn a_runtime_that_ends_before_its_carrier_left_leaves_nobody_behind() {
        assert!(answer_where_the_runtime_ends(|_| ()).is_none());
    }

    #[test]
    fn a_runtime_that_ends_while_the_call_is_under_way_leaves_nobody_behind() {
        let work = |runtime: &Runtime| {
            runtime.block_on(async {
                for _ in 0..10 {
                    yield_now().await;
                }
            });
        };
        assert!(answer_where_the_runtime_ends(work).is_none());
    }

    #[test]
    fn one_who_comes_after_the_runtime_has_ended_is_not_left_waiting() {
        let (first, other) = (runtime(), runtime());
        let shared_calls = shared_calls(&first);
        drop(first);
        for _ in 0..2 {
            assert!(other.block_on(ask(&shared_calls)).is_none());
        }
    }

    #[test]
    fn acquires_are_shared_where_many_are_under_way_and_as_long_as_they_are() {
        let runtime = runtime();
        let shared_calls = shared_calls(&runtime);
        let mut under_way: Vec<_> = (0..FEW).map(|_| shared_calls.set_out()).collect();
        assert!(under_way.iter().all(|acquire| !acquire.is_one_of_many()));
        assert!(shared_calls.set_out().is_one_of_many());
        under_way.pop();
        assert!(!shared_calls.set_out().is_one_of_many());
    }
}
