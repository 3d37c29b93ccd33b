//! The acquire script's call: its arguments, its answer typed, and its retries.

use redis::Value;
use smallvec::SmallVec;

use tokio::time::Instant;

use super::limiter::RedisLimiter;
use super::multi_acquire::Sent;
use super::read;
use super::retry::{Attempts, Repeat};
use crate::error::{Error, Result};
use crate::model::{Acquire, Answer, Run};
use crate::permit;
use crate::rate::RateType;
use crate::script::{self, Args};
use crate::store::AcquireCall;

impl RedisLimiter {
    pub(super) async fn acquire_call(
        &self,
        acquire: &AcquireCall,
        deadline: Instant,
    ) -> Result<Answer> {
        let (store, keys) = (&self.store, &self.keys);
        let audited_rate = self.audited_rate();
        let mut attempts = Attempts::new(deadline, Repeat::Safe);
        attempts.sent_before = acquire.may_have_run();
        let mut call = Acquire {
            random: acquire.id,
            sent_before: false,
            summed_rate: audited_rate,
            requests: acquire.requests.clone(),
        };
        let in_flight = store.multi_acquires.enter().map_err(|_| Error::NoRuntime)?;
        let mut may_share = in_flight.is_one_of_many();
        loop {
            call.sent_before = attempts.sent_before;
            let rate_type = self.rate_type();
            let sent = if std::mem::take(&mut may_share) {
                acquire.note_attempt();
                let deadline = attempts.deadline;
                let shared = store
                    .multi_acquires
                    .acquire(&in_flight, keys, rate_type, &call, deadline);
                match shared.await {
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
                let deadline = store.server_deadline(&keys.name, &mut attempts).await?;
                let now = store.clock.now();
                let args = acquire_args(&call, rate_type, now, Some(deadline));
                let of_type = keys.of_type(rate_type);
                acquire.note_attempt();
                let sending =
                    script::ACQUIRE.run(&store.connection, &of_type, &args, attempts.limits());
                let answer = attempts.step(&keys.name, sending).await?;
                answer.map(|answer| Sent { answer, now })
            };
            let Some(Sent { answer, now }) = sent else {
                continue;
            };
            let answer = AcquireAnswer::read(&keys.name, answer, now, audited_rate)?;
            store.server_time.learn(answer.server_millis);
            match answer.outcome {
                Outcome::Decided(answer) => {
                    self.note_audit(audited_rate, &answer);
                    return Ok(answer);
                }
                // Asked anew below its other keys; the deadline sees to it that this ends.
                Outcome::OtherType(rate_type) => self.learn_type(rate_type),
                // The server got it after its deadline. Where that is not yet so here, its clock was misjudged.
                Outcome::Late if !attempts.remaining().is_zero() => {}
                Outcome::Late => return Err(Error::Indeterminate { source: None }),
            }
        }
    }
}

pub(super) fn acquire_args(
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
pub(super) fn call_args(args: Args, call: &Acquire) -> Args {
    let runs = call.requests.runs.iter();
    let total: u64 = runs
        .map(|run| u64::from(run.permits) * u64::from(run.count))
        .sum();
    // A total that does not fit a member is never granted in full.
    args.bytes(&permit::encode(&call.random, total as u32))
        .optional(call.summed_rate)
        .number(total as i64)
}

pub(super) fn run_args(args: Args, runs: &[Run]) -> Args {
    runs.iter()
        .fold(args, |args, run| args.number(run.permits).number(run.count))
}

/// What the acquire script returns.
pub(super) struct AcquireAnswer {
    pub(super) server_millis: i64,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    Decided(Answer),
    /// The call came after its deadline, and did nothing.
    Late,
    /// The limiter is of this type and not of the one that the call was for, so it did nothing.
    OtherType(RateType),
}

impl AcquireAnswer {
    /// `passed` is the time that the call passed; without one the server's own scored the grants. An answer without
    /// a rate is for `summed_rate`.
    pub(super) fn read(
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
