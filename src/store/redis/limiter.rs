//! One limiter in Redis: what the client remembers about it, and how its calls are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};

use super::audit::Audit;
use super::client::{RedisStore, read};
use super::hints::Hint;
use super::large_audit;
use crate::error::Result;
use crate::escaped::Escaped;
use crate::event::Event;
use crate::keys::Keys;
use crate::link::Message;
use crate::link::failure::Failure;
use crate::link::limits::{Limits, Repeat};
use crate::link::retry::Attempts;
use crate::rate::RateType;
use crate::store::redis::script::{Args, Script};
use crate::window::Acquired;

#[derive(Debug)]
pub(super) struct RedisLimiter {
    pub(super) store: RedisStore,
    pub(super) keys: Arc<Keys>,
    /// The code of the limiter's type when it was last seen; 2 before that. An acquire names the
    /// keys of this type, and a wrong guess costs a round trip.
    seen_type: AtomicI64,
    /// The interval in ms that the last answer had; 0 before the first one.
    pub(super) interval: AtomicI64,
    audit: Audit,
    has_warned_of_clocks: AtomicBool,
    /// How many attempts of the last acquire took too long. The first attempt of the next acquire
    /// gets as much time as the last attempt of that one.
    pub(super) late_attempts: AtomicU32,
}

impl RedisLimiter {
    pub(super) fn new(store: RedisStore, keys: Arc<Keys>) -> Self {
        let hint = store.hints.take(&keys.name);
        Self {
            seen_type: AtomicI64::new(hint.as_ref().map_or(2, |hint| hint.rate_type.code())),
            interval: AtomicI64::new(0),
            audit: hint.map(|hint| hint.audit).unwrap_or_default(),
            late_attempts: AtomicU32::new(0),
            has_warned_of_clocks: AtomicBool::new(false),
            store,
            keys,
        }
    }

    /// The limiter's type when it was last seen, or overall.
    pub(super) fn rate_type(&self) -> RateType {
        self.seen_type().unwrap_or(RateType::Overall)
    }

    pub(super) fn seen_type(&self) -> Option<RateType> {
        RateType::of_code(self.seen_type.load(Ordering::Relaxed))
    }

    pub(super) fn learn_type(&self, rate_type: RateType) {
        self.seen_type.store(rate_type.code(), Ordering::Relaxed);
    }

    /// The rate at which the grants were last audited; with `None` the next call audits them.
    pub(super) fn audited_rate(&self) -> Option<i64> {
        self.audit.audited_rate(&self.store.audit_budget)
    }

    /// Makes the next calls be for this audited rate.
    #[cfg(test)]
    pub(super) fn set_audited_rate(&self, audited_rate: Option<i64>) {
        self.audit.set(audited_rate);
    }

    pub(super) fn note_audit(&self, audited_rate: Option<i64>, answer: &Acquired) {
        self.audit.note(audited_rate, answer);
        if answer.audit_due {
            large_audit::start(&self.store, &self.keys, self.rate_type());
        }
    }

    /// Reports a grant whose score is ahead of the clock.
    pub(super) fn note_clocks(&self, answer: &Acquired) {
        let Ok(ahead @ 1..) = u64::try_from(answer.clock_ahead()) else {
            return;
        };
        if !self.has_warned_of_clocks.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                limiter = %Escaped(&self.keys.name),
                ahead_ms = ahead,
                "a peer's clock is ahead: its permits come back late, for all"
            );
        }
        let ahead = Duration::from_millis(ahead);
        self.store
            .connection
            .events()
            .tell(|| Event::ClockAhead { ahead });
    }

    /// The attempts of a call that starts now.
    pub(super) fn attempts(&self, repeat: Repeat) -> Attempts<'_> {
        let deadline = self.store.deadline();
        self.store.attempts(&self.keys.name, deadline, repeat)
    }

    pub(super) async fn run_on<T: FromRedisValue>(
        &self,
        keys: &[&str],
        script: &Script,
        args: &Args,
        attempts: &mut Attempts<'_>,
    ) -> Result<T> {
        let connection = &self.store.connection;
        self.call(attempts, |limits| {
            script.run(connection, keys, args, limits)
        })
        .await
    }

    /// Sends a command that only reads.
    pub(super) async fn send<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let (connection, message) = (&self.store.connection, Message::Command(command));
        let attempts = &mut self.attempts(Repeat::Safe);
        self.call(attempts, |limits| connection.send(message, limits))
            .await
    }

    /// Makes the attempts of a call, unless the breaker refuses it, and reads the answer.
    async fn call<T, F>(
        &self,
        attempts: &mut Attempts<'_>,
        send: impl FnMut(Limits) -> F,
    ) -> Result<T>
    where
        T: FromRedisValue,
        F: Future<Output = Result<Value, Failure>>,
    {
        let (name, deadline) = (&self.keys.name, attempts.deadline);
        let call = attempts.run(send);
        read(name, self.store.guarded(name, deadline, call).await?)
    }
}

impl Drop for RedisLimiter {
    fn drop(&mut self) {
        let (audit, rate_type) = (std::mem::take(&mut self.audit), self.rate_type());
        if audit.rate().is_some() {
            let hint = Hint { audit, rate_type };
            self.store.hints.insert(&self.keys.name, hint);
        }
    }
}
