//! Limiters in Redis: a typed step becomes keys and arguments, a script runs, and its reply becomes
//! typed.
//!
//! A call takes at most the response timeout. Within it, a call that did not reach the server is
//! sent again. A call whose answer was lost is sent again only if the script recognizes the
//! repetition, as acquire does by its call id, or if it only reads. A call that reaches the server
//! after its deadline takes nothing, so giving up is safe.

mod acquire;
mod acquire_answer;
mod acquire_args;
#[cfg(test)]
mod attempt_tests;
mod audit;
mod audit_budget;
mod audit_pages;
pub(crate) mod background;
pub(crate) mod check;
pub(crate) mod commands;
#[cfg(test)]
mod differential_tests;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod hints;
mod large_audit;
mod limiter;
mod multi_acquire;
pub(crate) mod multi_check;
pub(crate) mod script;
mod script_keys;
pub(crate) mod shared_calls;
#[cfg(test)]
mod time_budget_tests;
#[cfg(test)]
mod unsent_acquire_tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionLike;
use redis::{Cmd, Value, from_redis_value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{GivingBack, LimiterStore, Store};
use crate::breaker::{Breaker, Breakers, Patience, guarded};
use crate::clock::{Clock, after};
use crate::error::{Error, Result};
use crate::health::ServerHealth;
use crate::keys::Keys;
use crate::link::limits::Repeat;
use crate::link::retry::Attempts;
use crate::link::server_time::{self, ServerTime};
use crate::link::{Connecting, Connection, Message, Reached, Subscriber, failure};
use crate::policies::call::{Answers, Call};
use crate::store::left_rates::LeftRates;
use crate::window::{SetUp, Settings};
use audit_budget::AuditBudget;
use background::Background;
use hints::HintCache;
use limiter::RedisLimiter;
use multi_acquire::AcquirePart;
use multi_check::CheckPart;
use shared_calls::SharedCalls;

/// The most leases that are settled at a time. With the last handle of a limiter for keys end all
/// of its leases, and the first attempt of each is to have its answer in time.
const MOST_SETTLED: usize = 512;

/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub(crate) struct RedisStore(Arc<RedisStoreInner>);

/// What the limiters of one client share.
pub(crate) struct RedisStoreInner {
    connection: Arc<Connection>,
    clock: Clock,
    response_timeout: Duration,
    server_time: Arc<ServerTime>,
    multi_acquires: SharedCalls<AcquirePart>,
    multi_checks: SharedCalls<CheckPart>,
    audit_budget: AuditBudget,
    /// Whether this client audits a limiter in pages.
    is_auditing: AtomicBool,
    /// How many such audits have ended.
    audits: AtomicU64,
    hints: HintCache,
    left_rates: LeftRates,
    subscriber: Arc<Subscriber>,
    background: Background,
    /// Whose turn it is to settle a lease.
    settling: Semaphore,
}

impl std::ops::Deref for RedisStore {
    type Target = RedisStoreInner;

    fn deref(&self) -> &RedisStoreInner {
        &self.0
    }
}

impl RedisStore {
    pub(crate) async fn connect(urls: &str, connecting: Connecting, clock: Clock) -> Result<Self> {
        let response_timeout = connecting.response_timeout;
        let server_time = Arc::new(ServerTime::unknown());
        let connection = Connection::open(urls, connecting, &server_time).await?;
        Ok(Self::new(connection, server_time, clock, response_timeout))
    }

    pub(crate) fn over<C>(
        connection: C,
        clock: Clock,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let server_time = Arc::new(ServerTime::unknown());
        let connection = Connection::given(connection, response_timeout, breakers);
        Self::new(connection, server_time, clock, response_timeout)
    }

    fn new(
        connection: Connection,
        server_time: Arc<ServerTime>,
        clock: Clock,
        response_timeout: Duration,
    ) -> Self {
        let connection = Arc::new(connection);
        let subscriber = Subscriber::new(&connection);
        let multi_acquires = SharedCalls::new(&connection, &clock, &server_time);
        let multi_checks = SharedCalls::new(&connection, &clock, &server_time);
        Self(Arc::new(RedisStoreInner {
            connection,
            clock,
            response_timeout,
            server_time,
            multi_acquires,
            multi_checks,
            audit_budget: AuditBudget::default(),
            is_auditing: AtomicBool::new(false),
            audits: AtomicU64::new(0),
            hints: HintCache::default(),
            left_rates: LeftRates::default(),
            subscriber,
            background: Background::default(),
            settling: Semaphore::new(MOST_SETTLED),
        }))
    }

    /// Reports what a request has left of the settings of this limiter.
    fn note_left(&self, name: &str, set_up: Option<SetUp>, left: Option<Settings>) {
        if let (Some(set_up), Some(left)) = (set_up, left) {
            let events = self.connection.events();
            self.left_rates.note(events, name, set_up.settings, left);
        }
    }

    /// Runs work that must not depend on a caller's runtime.
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    /// Makes a call without a failure policy, by `deadline`.
    async fn guarded<T>(
        &self,
        key: &str,
        deadline: Instant,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let breaker = match self.connection.is_healthy() {
            true => None,
            false => self.connection.breaker(key),
        };
        let noted = async {
            let result = call.await;
            self.noted(key, result, deadline)
        };
        match breaker {
            None => noted.await,
            Some(breaker) => guarded(&breaker, Patience::ResponseTimeout, noted).await,
        }
    }

    /// Tells the breaker how a call ended that had time until `deadline`. An error names the
    /// server.
    fn noted<T>(&self, key: &str, result: Result<T>, deadline: Instant) -> Result<T> {
        let is_answered = !matches!(&result, Err(error) if error.is_unavailable());
        if is_answered && self.connection.is_healthy() {
            return result;
        }
        match self.connection.breaker(key) {
            Some(breaker) => self.noted_by(&breaker, key, result, deadline),
            None => result,
        }
    }

    fn noted_by<T>(
        &self,
        breaker: &Breaker,
        key: &str,
        result: Result<T>,
        deadline: Instant,
    ) -> Result<T> {
        // A call ends when no other attempt could be answered in its time.
        let answer_time = self.connection.answer_time(key.as_bytes());
        breaker.note(
            &result,
            deadline.checked_sub(answer_time).unwrap_or(deadline),
        );
        result.map_err(|error| breaker.name_server(error))
    }

    /// Sends a command to one server.
    async fn ask(
        &self,
        server: &Reached,
        command: &Cmd,
        deadline: Instant,
        repeat: Repeat,
    ) -> Result<Value> {
        let asking = async {
            let mut attempts = self.attempts("", deadline, repeat);
            let send = |limits| self.connection.ask(server, command, limits);
            let result = attempts.run(send).await;
            self.noted_by(&server.breaker, "", result, deadline)
        };
        guarded(&server.breaker, Patience::ResponseTimeout, asking).await
    }

    fn deadline(&self) -> Instant {
        after(Instant::now(), self.response_timeout)
    }

    /// The attempts of a call on a limiter, or on another key.
    fn attempts<'a>(&'a self, name: &'a str, deadline: Instant, repeat: Repeat) -> Attempts<'a> {
        Attempts::new(&self.connection, name, deadline, repeat)
    }

    /// The call's deadline by the server's clock.
    async fn server_deadline(&self, name: &str, attempts: &Attempts<'_>) -> Result<i64> {
        let now = self.server_now(name, attempts).await?;
        Ok(now + attempts.remaining().as_millis() as i64)
    }

    /// The server's time, which is requested if no connection knows it.
    async fn server_now(&self, name: &str, attempts: &Attempts<'_>) -> Result<i64> {
        match self.server_time.after(Duration::ZERO) {
            Some(now) => Ok(now),
            // In a box of its own: the future of each call has room for it.
            None => Box::pin(self.ask_server_time(name, attempts)).await,
        }
    }

    async fn ask_server_time(&self, name: &str, attempts: &Attempts<'_>) -> Result<i64> {
        let command = redis::cmd("TIME");
        let message = Message::Command(&command);
        let mut asking = self.attempts(name, attempts.deadline, Repeat::Safe);
        let answer = asking.run(|limits| self.connection.send(message, limits));
        let answer = answer.await.map_err(|error| match error {
            // Nothing of the call itself was sent.
            Error::Indeterminate { source } if !attempts.sent_before => {
                Error::unavailable(source.unwrap_or_else(|| Arc::new(failure::timed_out())))
            }
            error => error,
        })?;
        let server_millis = server_time::millis(read(name, answer)?);
        self.server_time.learn(server_millis);
        Ok(server_millis)
    }
}

/// Reads a script's reply.
fn read<T: redis::FromRedisValue>(name: &str, value: Value) -> Result<T> {
    from_redis_value(value).map_err(|error| Error::BadState {
        name: name.to_owned(),
        source: Some(Arc::new(error)),
    })
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("is_cluster", &self.connection.is_cluster())
            .field("clock", &self.clock)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedisStore {
    fn is_cluster(&self) -> bool {
        self.connection.is_cluster()
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(RedisLimiter::new(self.clone(), keys))
    }

    fn breaker(&self, key: &str) -> Option<Arc<Breaker>> {
        self.connection.breaker(key)
    }

    fn is_healthy(&self) -> bool {
        self.connection.is_healthy()
    }

    async fn check(&self, call: &Arc<Call>, deadline: Instant) -> Result<Answers> {
        self.check_call(call, deadline).await
    }

    async fn undo(&self, call: &Arc<Call>, deadline: Instant) -> Result<u32> {
        self.undo_call(call, deadline).await
    }

    fn call_deadline(&self) -> Instant {
        self.deadline()
    }

    fn health(&self) -> Vec<ServerHealth> {
        let breakers = self.connection.breakers();
        breakers.iter().map(|breaker| breaker.health()).collect()
    }

    async fn ping(&self) -> Result<()> {
        let deadline = self.deadline();
        let servers = self.connection.servers().map_err(|_| Error::NoRuntime)?;
        for server in &servers {
            let ping = redis::cmd("PING");
            self.ask(server, &ping, deadline, Repeat::Safe).await?;
        }
        Ok(())
    }

    fn close(&self) {
        self.subscriber.close();
    }

    async fn given_back(&self) -> bool {
        self.background.given_back().await
    }

    fn give_back_in_background(&self, task: GivingBack) {
        self.background.give_back(task);
    }

    fn redis(&self) -> Option<&RedisStore> {
        Some(self)
    }
}
