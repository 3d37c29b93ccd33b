//! What the limiters of one client in Redis share: the connection, the clock, and what is known of
//! the server. How a call is made without a failure policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use redis::{Cmd, Value, from_redis_value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::audit_budget::AuditBudget;
use super::background::Background;
use super::failure::of_call;
use super::hints::HintCache;
use super::multi_acquire::AcquirePart;
use super::multi_check::CheckPart;
use super::shared_calls::{CallSender, SharedCalls};
use crate::breaker::{Breaker, Breakers, Patience, guarded};
use crate::clock::{Clock, after};
use crate::error::{Error, Result};
use crate::link::limits::Repeat;
use crate::link::retry::Attempts;
use crate::link::server_time::{self, ServerTime};
use crate::link::{Connecting, Connection, Message, Reached, SendsCommands, Subscriber, failure};
use crate::store::left_rates::LeftRates;

/// The most leases that are settled at a time. When the last handle of a limiter for keys is
/// dropped, all of its leases end at once, and the first attempt to settle each should be answered
/// in time.
pub(super) const MOST_SETTLED: usize = 512;

/// The store of one client in Redis. Clones are the same store.
#[derive(Clone)]
pub(crate) struct RedisStore(pub(super) Arc<RedisStoreInner>);

/// What the limiters of one client share.
pub(crate) struct RedisStoreInner {
    pub(super) connection: Arc<Connection>,
    pub(super) clock: Clock,
    pub(super) response_timeout: Duration,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) multi_acquires: SharedCalls<AcquirePart>,
    pub(super) multi_checks: SharedCalls<CheckPart>,
    pub(super) audit_budget: AuditBudget,
    /// Whether this client audits a limiter in pages.
    pub(super) is_auditing: AtomicBool,
    /// How many such audits have ended.
    pub(super) audits: AtomicU64,
    pub(super) hints: HintCache,
    pub(super) left_rates: LeftRates,
    pub(super) subscriber: Arc<Subscriber>,
    pub(super) background: Background,
    /// A permit for each lease that is being settled.
    pub(super) settling: Semaphore,
}

impl std::ops::Deref for RedisStore {
    type Target = RedisStoreInner;

    fn deref(&self) -> &RedisStoreInner {
        &self.0
    }
}

impl RedisStore {
    pub(crate) async fn connect(
        urls: &str,
        connecting: Connecting,
        breakers: Arc<Breakers>,
        clock: Clock,
    ) -> Result<Self> {
        let response_timeout = connecting.response_timeout;
        let server_time = Arc::new(ServerTime::unknown());
        let connection = Connection::open(urls, connecting, breakers, &server_time).await?;
        Ok(Self::new(connection, server_time, clock, response_timeout))
    }

    pub(crate) fn over(
        connection: impl SendsCommands,
        clock: Clock,
        response_timeout: Duration,
        breakers: Arc<Breakers>,
    ) -> Self {
        let server_time = Arc::new(ServerTime::unknown());
        let connection = Connection::over(connection, response_timeout, breakers);
        Self::new(connection, server_time, clock, response_timeout)
    }

    pub(super) fn new(
        connection: Connection,
        server_time: Arc<ServerTime>,
        clock: Clock,
        response_timeout: Duration,
    ) -> Self {
        let connection = Arc::new(connection);
        let subscriber = Subscriber::new(&connection);
        let sender = Arc::new(CallSender {
            connection: Arc::clone(&connection),
            clock: clock.clone(),
            server_time: Arc::clone(&server_time),
        });
        let left_rates = LeftRates::reporting_to(connection.events().clone());
        Self(Arc::new(RedisStoreInner {
            connection,
            clock,
            response_timeout,
            server_time,
            multi_acquires: SharedCalls::new(&sender),
            multi_checks: SharedCalls::new(&sender),
            audit_budget: AuditBudget::default(),
            is_auditing: AtomicBool::new(false),
            audits: AtomicU64::new(0),
            hints: HintCache::default(),
            left_rates,
            subscriber,
            background: Background::default(),
            settling: Semaphore::new(MOST_SETTLED),
        }))
    }

    /// Makes a call that no failure policy decides, by `deadline`. Fails if the breaker refuses it.
    pub(super) async fn guarded<T>(
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

    /// Tells the breaker how a call ended, which had time until `deadline`. Returns the result; an
    /// error names the server.
    pub(super) fn noted<T>(&self, key: &str, result: Result<T>, deadline: Instant) -> Result<T> {
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
    pub(super) async fn ask(
        &self,
        server: &Reached,
        command: &Cmd,
        deadline: Instant,
        repeat: Repeat,
    ) -> Result<Value> {
        let asking = async {
            let mut attempts = self.attempts("", deadline, repeat);
            let send = |limits| self.connection.ask(server, command, limits);
            attempts.run(send).await
        };
        let Some(breaker) = self.connection.breaker_of(server) else {
            return asking.await; // it fails outside a runtime
        };
        let noted = async { self.noted_by(&breaker, "", asking.await, deadline) };
        guarded(&breaker, Patience::ResponseTimeout, noted).await
    }

    /// The servers, on a cluster the primaries.
    pub(crate) fn servers(&self) -> Result<Vec<Reached>> {
        self.connection.servers().map_err(|_| Error::NoRuntime)
    }

    /// Sends a command of the application to the server that has its keys, at most once.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value> {
        let mut attempts = self.attempts("", self.deadline(), Repeat::Never);
        let message = Message::Command(command);
        attempts
            .run(|limits| self.connection.send(message, limits))
            .await
    }

    /// Sends a command of the application to one server, at most once.
    pub(crate) async fn command_on(&self, server: &Reached, command: &Cmd) -> Result<Value> {
        self.ask(server, command, self.deadline(), Repeat::Never)
            .await
    }

    pub(super) fn deadline(&self) -> Instant {
        after(Instant::now(), self.response_timeout)
    }

    /// The attempts of a call on a limiter, or on another key.
    pub(super) fn attempts<'a>(
        &'a self,
        name: &'a str,
        deadline: Instant,
        repeat: Repeat,
    ) -> Attempts<'a> {
        Attempts::new(&self.connection, name, of_call, deadline, repeat)
    }

    /// The call's deadline by the server's clock.
    pub(super) async fn server_deadline(&self, attempts: &Attempts<'_>) -> Result<i64> {
        let now = self.server_now(attempts).await?;
        Ok(now + attempts.remaining().as_millis() as i64)
    }

    /// The server's time, which is requested if no connection knows it.
    pub(super) async fn server_now(&self, attempts: &Attempts<'_>) -> Result<i64> {
        match self.server_time.after(Duration::ZERO) {
            Some(now) => Ok(now),
            // In a box of its own: the future of each call has room for it.
            None => Box::pin(self.ask_server_time(attempts)).await,
        }
    }

    async fn ask_server_time(&self, attempts: &Attempts<'_>) -> Result<i64> {
        let command = redis::cmd("TIME");
        let message = Message::Command(&command);
        let mut asking = self.attempts(attempts.name, attempts.deadline, Repeat::Safe);
        let answer = asking.run(|limits| self.connection.send(message, limits));
        let answer = answer.await.map_err(|error| match error {
            // Nothing of the call itself was sent.
            Error::Indeterminate { source } if !attempts.sent_before => {
                Error::unavailable(source.unwrap_or_else(|| Arc::new(failure::timed_out())))
            }
            error => error,
        })?;
        let server_millis = server_time::millis(read(attempts.name, answer)?);
        self.server_time.learn(server_millis);
        Ok(server_millis)
    }
}

/// Reads a script's reply.
pub(super) fn read<T: redis::FromRedisValue>(name: &str, value: Value) -> Result<T> {
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
