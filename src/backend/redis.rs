//! Limiters in Redis: a typed step becomes keys and arguments, a script runs, its answer becomes typed.
//!
//! A call lasts at most the response timeout. Within it, one that did not reach the server is sent again; one whose
//! answer was lost is sent again only where the script can tell a repetition, as acquire can by its random bytes, or
//! where it reads only. A call that the server gets after its deadline takes nothing, so giving up is safe.

#[cfg(test)]
mod against_model;
pub(crate) mod connection;
pub(crate) mod decide;
mod failure;
mod server_time;
mod shared_call;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionLike;
use redis::{Cmd, RedisError, RedisResult, Value, from_redis_value};
use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Backend, IfMissing, State, TimeToLive};
use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::limiters::call::{Answers, Call};
use crate::permit::{self, Random};
use crate::rate::{LARGEST_RATE, Rate, RateType, ValidRate};
use crate::script::{self, Args, Script};
use crate::window::{Acquire, Answer, Condition, Expiry, Requests, Run};
use connection::{Connected, Connection};
use failure::Failure;
use server_time::ServerTime;
use shared_call::{Sent, SharedCalls};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct RedisBackend {
    connection: Arc<dyn Connection>,
    is_cluster: bool,
    clock: Clock,
    response_timeout: Duration,
    server_time: Arc<ServerTime>,
    shared_calls: Arc<SharedCalls>,
}

/// May a call whose answer was lost be sent again?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Safe,
    Never,
}

/// One call while it is sent, perhaps more than once.
struct Attempts {
    deadline: Instant,
    pause: Duration,
    repeat: Repeat,
    /// Whether an earlier sending may have run.
    sent_before: bool,
}

impl RedisBackend {
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
        }
    }

    fn attempts(&self, repeat: Repeat) -> Attempts {
        Attempts {
            deadline: Instant::now() + self.response_timeout,
            pause: FIRST_PAUSE,
            repeat,
            sent_before: false,
        }
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

impl Attempts {
    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// One attempt: its answer, `None` for another try, or the error that ends the call.
    async fn step(
        &mut self,
        name: &str,
        sending: impl Future<Output = RedisResult<Value>>,
    ) -> Result<Option<Value>> {
        match timeout_at(self.deadline, sending).await {
            Ok(result) => self.after(name, result).await,
            Err(_elapsed) => Err(Error::Indeterminate { source: None }),
        }
    }

    /// What follows from an attempt's result.
    async fn after<T>(&mut self, name: &str, result: RedisResult<T>) -> Result<Option<T>> {
        let error = match result {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        match failure::classify(&error) {
            Failure::Refused => return Err(failure::of_answer(name, error)),
            Failure::Lost => {
                self.sent_before = true;
                if self.repeat == Repeat::Never {
                    return Err(self.give_up(error));
                }
            }
            Failure::NotSent | Failure::NotRun => {}
        }
        if self.remaining() <= self.pause {
            return Err(self.give_up(error));
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(None)
    }

    fn give_up(&self, error: RedisError) -> Error {
        let source = Arc::new(error);
        if self.sent_before {
            Error::Indeterminate {
                source: Some(source),
            }
        } else {
            Error::StoreUnavailable { source }
        }
    }
}

fn acquire_args(
    call: &Acquire,
    rate_type: RateType,
    now: Option<i64>,
    deadline: Option<i64>,
) -> Args {
    let args = call_args(Args::new().optional(deadline), call)
        .optional(now)
        .mark(rate_type == RateType::PerClient)
        .mark(call.sent_before);
    if call.requests.is_lone() {
        return args.without_empty_end();
    }
    run_args(
        args.number(call.requests.runs_in_line as i64),
        &call.requests.runs,
    )
}

/// Member, summed rate, and permits of all requests together.
fn call_args(args: Args, call: &Acquire) -> Args {
    let runs = call.requests.runs.iter();
    let total: u64 = runs
        .map(|run| u64::from(run.permits) * u64::from(run.count))
        .sum();
    // A total that does not fit a member is never granted in full.
    args.bytes(&permit::encode(&call.random, total as u32))
        .optional(call.summed_rate)
        .number(total as i64)
}

fn run_args(args: Args, runs: &[Run]) -> Args {
    runs.iter()
        .fold(args, |args, run| args.number(run.permits).number(run.count))
}

/// What the acquire script returns.
struct AcquireAnswer {
    server_millis: i64,
    outcome: Outcome,
}

enum Outcome {
    Decided(Answer),
    /// The call came after its deadline, and did nothing.
    Late,
    /// The limiter is of this type and not of the one that the call was for, so it did nothing.
    OtherType(RateType),
}

impl AcquireAnswer {
    /// `passed` is the time that the call passed; without one the server's own scored the grants. An answer without
    /// a rate is for `summed_rate`.
    fn read(
        name: &str,
        value: Value,
        passed: Option<i64>,
        summed_rate: Option<i64>,
    ) -> Result<Self> {
        let bytes: Vec<u8> = read(name, value)?;
        let (doubles, rest) = bytes.as_chunks();
        // Whole numbers, up to 2^53.
        let numbers: SmallVec<[i64; 7]> = doubles
            .iter()
            .map(|&double| f64::from_le_bytes(double) as i64)
            .collect();
        let (server_millis, outcome) = match numbers[..] {
            [server_millis] if rest.is_empty() => (server_millis, Outcome::Late),
            [server_millis, 0] if rest.is_empty() => {
                (server_millis, Outcome::OtherType(RateType::Overall))
            }
            [server_millis, 1] if rest.is_empty() => {
                (server_millis, Outcome::OtherType(RateType::PerClient))
            }
            [server_millis, balance, reset, ref more @ ..]
                if rest.is_empty() && (summed_rate.is_some() || !more.is_empty()) =>
            {
                let score = passed.unwrap_or(server_millis);
                let rate = more.first().copied().or(summed_rate).unwrap_or_default();
                let mut answer = Answer::new(score, rate, balance, reset);
                if let [_rate, ahead, counted, ref score @ ..] = *more {
                    answer.ahead = ahead;
                    answer.counted = counted.unsigned_abs();
                    answer.score = score.first().copied().unwrap_or(answer.score);
                }
                (server_millis, Outcome::Decided(answer))
            }
            _ => {
                return Err(Error::BadState {
                    name: name.to_owned(),
                    source: None,
                });
            }
        };
        Ok(Self {
            server_millis,
            outcome,
        })
    }
}

/// Reads a script's answer.
fn read<T: redis::FromRedisValue>(name: &str, value: Value) -> Result<T> {
    from_redis_value(value).map_err(|error| Error::BadState {
        name: name.to_owned(),
        source: Some(Arc::new(error.into())),
    })
}

impl std::fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisBackend")
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
impl Backend for RedisBackend {
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
        let mut attempts = self.attempts(Repeat::Safe);
        let mut call = Acquire {
            random,
            sent_before: false,
            summed_rate,
            requests,
        };
        let under_way = self.shared_calls.set_out();
        let mut may_share = under_way.is_one_of_many();
        loop {
            call.sent_before = attempts.sent_before;
            let rate_type = keys.last_type.get();
            let sent = if std::mem::take(&mut may_share) {
                let carried = self
                    .shared_calls
                    .ask(keys, rate_type, &call, attempts.deadline);
                match carried.await {
                    Some(result) => attempts.after(&keys.name, result).await?,
                    // Nobody tells, so it may have run.
                    None if attempts.remaining().is_zero() => {
                        return Err(Error::Indeterminate { source: None });
                    }
                    None => {
                        attempts.sent_before = true;
                        continue;
                    }
                }
            } else {
                let remaining = attempts.remaining();
                let deadline = self.server_deadline(&keys.name, remaining).await?;
                let now = self.clock.now();
                let args = acquire_args(&call, rate_type, now, Some(deadline));
                let of_type = keys.of_type(rate_type);
                let sending = script::ACQUIRE.run(&*self.connection, &of_type, &args);
                let answer = attempts.step(&keys.name, sending).await?;
                answer.map(|answer| Sent { answer, now })
            };
            let Some(Sent { answer, now }) = sent else {
                continue;
            };
            let answer = AcquireAnswer::read(&keys.name, answer, now, summed_rate)?;
            self.server_time.learn(answer.server_millis);
            match answer.outcome {
                Outcome::Decided(answer) => return Ok(answer),
                // Asked anew below its other keys; the deadline sees to it that this ends.
                Outcome::OtherType(rate_type) => keys.last_type.set(rate_type),
                // The server got it after its deadline. Where that is not yet so here, its clock was misjudged.
                Outcome::Late if !attempts.remaining().is_zero() => {}
                Outcome::Late => return Err(Error::Indeterminate { source: None }),
            }
        }
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
