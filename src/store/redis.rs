//! Limiters in Redis: a typed step becomes keys and arguments, a script runs, its answer becomes typed.
//!
//! A call lasts at most the response timeout. Within it, one that did not reach the server is sent again; one whose
//! answer was lost is sent again only where the script can tell a repetition, as acquire can by its random bytes, or
//! where it reads only. A call that the server gets after its deadline takes nothing, so giving up is safe.

mod acquire;
#[cfg(test)]
mod against_model;
pub(crate) mod background;
pub(crate) mod connection;
pub(crate) mod decide;
mod failure;
mod retry;
mod server_time;
mod shared_call;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionLike;
use redis::{Cmd, Value, from_redis_value};
use tokio::time::Instant;

use super::{IfMissing, State, Store, TimeToLive};
use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::model::{Answer, Condition, Expiry, Requests};
use crate::permit::Random;
use crate::policy::call::{Answers, Call};
use crate::rate::{LARGEST_RATE, Rate, RateType, ValidRate};
use crate::script::{self, Args, Script};
use background::Background;
use connection::{Connected, Connection};
use retry::{Attempts, Repeat};
use server_time::ServerTime;
use shared_call::SharedCalls;

pub(crate) struct RedisStore {
    connection: Arc<dyn Connection>,
    is_cluster: bool,
    clock: Clock,
    response_timeout: Duration,
    server_time: Arc<ServerTime>,
    shared_calls: Arc<SharedCalls>,
    background: Background,
}

impl RedisStore {
    pub(crate) async fn connect(
        urls: &str,
        clock: Clock,
        response_timeout: Duration,
    ) -> Result<Self> {
        let Connected {
            connection,
            is_cluster,
        } = connection::connect(urls, response_timeout).await?;
        Ok(Self::new(connection, is_cluster, clock, response_timeout))
    }

    pub(crate) fn over<C>(connection: C, clock: Clock, response_timeout: Duration) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let connection = Arc::new(connection::Shared(connection));
        Self::new(connection, false, clock, response_timeout)
    }

    fn new(
        connection: Arc<dyn Connection>,
        is_cluster: bool,
        clock: Clock,
        response_timeout: Duration,
    ) -> Self {
        let server_time = Arc::new(ServerTime::unknown());
        let shared_calls = SharedCalls::new(&connection, &clock, &server_time, is_cluster);
        Self {
            connection,
            is_cluster,
            clock,
            response_timeout,
            server_time,
            shared_calls: Arc::new(shared_calls),
            background: Background::default(),
        }
    }

    /// Where work runs that must not depend on a caller's runtime.
    #[allow(dead_code, reason = "cancelled calls are going to give their permits back there")]
    pub(crate) fn background(&self) -> &Background {
        &self.background
    }

    fn attempts(&self, repeat: Repeat) -> Attempts {
        Attempts::new(Instant::now() + self.response_timeout, repeat)
    }

    async fn run(
        &self,
        script: &Script,
        keys: &Keys,
        args: &Args,
        repeat: Repeat,
    ) -> Result<Value> {
        let mut attempts = self.attempts(repeat);
        let all_keys = keys.in_order();
        loop {
            let sending = script.run(&*self.connection, &all_keys, args);
            if let Some(answer) = attempts.step(&keys.name, sending).await? {
                return Ok(answer);
            }
        }
    }

    async fn send(&self, name: &str, command: &Cmd, repeat: Repeat) -> Result<Value> {
        let mut attempts = self.attempts(repeat);
        loop {
            let sending = self.connection.send(command);
            if let Some(answer) = attempts.step(name, sending).await? {
                return Ok(answer);
            }
        }
    }

    /// The call's deadline by the server's clock, which the first call has to ask for.
    async fn server_deadline(&self, name: &str, remaining: Duration) -> Result<i64> {
        if let Some(deadline) = self.server_time.after(remaining) {
            return Ok(deadline);
        }
        let answer = self.send(name, &redis::cmd("TIME"), Repeat::Safe).await?;
        let (seconds, micros): (i64, i64) = read(name, answer)?;
        self.server_time.learn(seconds * 1000 + micros / 1000);
        Ok(seconds * 1000 + micros / 1000 + remaining.as_millis() as i64)
    }
}

/// Reads a script's answer.
fn read<T: redis::FromRedisValue>(name: &str, value: Value) -> Result<T> {
    from_redis_value(value).map_err(|error| Error::BadState {
        name: name.to_owned(),
        source: Some(Arc::new(error.into())),
    })
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore")
            .field("is_cluster", &self.is_cluster)
            .field("clock", &self.clock)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

fn rate_args(args: Args, rate: &ValidRate) -> Args {
    args.number(rate.permits)
        .number(rate.interval)
        .number(rate.rate_type.code())
        .number(rate.keep_alive)
}

#[async_trait]
impl Store for RedisStore {
    fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    async fn acquire(
        &self,
        keys: &Keys,
        random: Random,
        requests: Requests,
        summed_rate: Option<i64>,
    ) -> Result<Answer> {
        self.acquire_call(keys, random, requests, summed_rate).await
    }

    async fn decide(&self, call: &Call) -> Result<Answers> {
        self.decide_call(call).await
    }

    async fn refund(&self, keys: &Keys, grant: &Grant, summed_rate: Option<i64>) -> Result<u32> {
        let args = Args::new()
            .optional(self.clock.now())
            .number(grant.score)
            .bytes(&grant.random)
            .number(grant.permits)
            .optional(summed_rate);
        let answer = self.run(&script::REFUND, keys, &args, Repeat::Never).await;
        read(&keys.name, answer?)
    }

    async fn release(&self, keys: &Keys, permits: u32, summed_rate: Option<i64>) -> Result<()> {
        let args = Args::new()
            .optional(self.clock.now())
            .number(permits)
            .optional(summed_rate);
        self.run(&script::RELEASE, keys, &args, Repeat::Never)
            .await?;
        Ok(())
    }

    async fn available_permits(&self, keys: &Keys) -> Result<i64> {
        let args = Args::new().optional(self.clock.now());
        let answer = self
            .run(&script::AVAILABLE_PERMITS, keys, &args, Repeat::Safe)
            .await?;
        read(&keys.name, answer)
    }

    async fn try_set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<bool> {
        let args = rate_args(Args::new(), &rate);
        let answer = self
            .run(&script::TRY_SET_RATE, keys, &args, Repeat::Never)
            .await?;
        let is_set = read(&keys.name, answer)?;
        if is_set {
            keys.last_type.set(rate.rate_type);
        }
        Ok(is_set)
    }

    async fn set_rate(&self, keys: &Keys, rate: ValidRate) -> Result<()> {
        let args = rate_args(Args::new(), &rate);
        self.run(&script::SET_RATE, keys, &args, Repeat::Never)
            .await?;
        keys.last_type.set(rate.rate_type);
        Ok(())
    }

    async fn update_rate(
        &self,
        keys: &Keys,
        rate: ValidRate,
        state: State,
        if_missing: IfMissing,
    ) -> Result<bool> {
        let args = rate_args(Args::new().optional(self.clock.now()), &rate)
            .flag(state == State::Keep)
            .flag(if_missing == IfMissing::DoNothing);
        let answer = self
            .run(&script::UPDATE_RATE, keys, &args, Repeat::Never)
            .await?;
        let is_set = read(&keys.name, answer)?;
        if is_set {
            keys.last_type.set(rate.rate_type);
        }
        Ok(is_set)
    }

    async fn config(&self, keys: &Keys) -> Result<Option<Rate>> {
        let mut command = redis::cmd("HMGET");
        command
            .arg(&keys.name)
            .arg(&["rate", "interval", "type", "keepAliveTime"]);
        let fields: [Option<String>; 4] = read(
            &keys.name,
            self.send(&keys.name, &command, Repeat::Safe).await?,
        )?;
        let [Some(rate), Some(interval), Some(rate_type), keep_alive] = fields else {
            return Ok(None);
        };
        let bad_state = || Error::BadState {
            name: keys.name.clone(),
            source: None,
        };
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| *number <= LARGEST_RATE);
            number.ok_or_else(bad_state)
        };
        let rate_type = match rate_type.as_str() {
            "0" => RateType::Overall,
            "1" => RateType::PerClient,
            _ => return Err(bad_state()),
        };
        keys.last_type.set(rate_type);
        Ok(Some(Rate::from_stored(
            rate_type,
            number(&rate)?,
            number(&interval)?,
            number(keep_alive.as_deref().unwrap_or("0"))?,
        )))
    }

    async fn exists(&self, keys: &Keys) -> Result<bool> {
        let mut command = redis::cmd("EXISTS");
        command.arg(&keys.name);
        read(
            &keys.name,
            self.send(&keys.name, &command, Repeat::Safe).await?,
        )
    }

    async fn delete(&self, keys: &Keys) -> Result<bool> {
        let mut command = redis::cmd("DEL");
        command.arg(&keys.in_order());
        let deleted: i64 = read(
            &keys.name,
            self.send(&keys.name, &command, Repeat::Never).await?,
        )?;
        Ok(deleted > 0)
    }

    async fn expire(&self, keys: &Keys, expiry: Expiry, condition: Condition) -> Result<bool> {
        let (command, time) = match expiry {
            Expiry::In(millis) => ("pexpire", millis),
            Expiry::At(millis) => ("pexpireat", millis),
        };
        let condition = match condition {
            Condition::Always => "",
            Condition::IfNotSet => "nx",
            Condition::IfSet => "xx",
            Condition::IfGreater => "gt",
            Condition::IfLess => "lt",
        };
        let args = Args::new()
            .bytes(command.as_bytes())
            .number(time)
            .bytes(condition.as_bytes());
        let answer = self.run(&script::EXPIRE, keys, &args, Repeat::Never).await;
        read(&keys.name, answer?)
    }

    async fn clear_expire(&self, keys: &Keys) -> Result<bool> {
        let answer = self
            .run(&script::CLEAR_EXPIRE, keys, &Args::new(), Repeat::Never)
            .await?;
        read(&keys.name, answer)
    }

    async fn remain_time_to_live(&self, keys: &Keys) -> Result<TimeToLive> {
        let mut command = redis::cmd("PTTL");
        command.arg(&keys.name);
        let left: i64 = read(
            &keys.name,
            self.send(&keys.name, &command, Repeat::Safe).await?,
        )?;
        Ok(match left {
            -2 => TimeToLive::Missing,
            -1 => TimeToLive::Unlimited,
            millis => TimeToLive::Remaining(Duration::from_millis(millis.max(0) as u64)),
        })
    }
}
