//! One call by limiters of any policy: turns it into keys and arguments, sends it, and parses the
//! reply.

use std::sync::Arc;
use std::time::Duration;
use std::{iter, slice};

use redis::{RedisError, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::RedisStore;
use super::failure;
use super::multi_check::{CheckPart, own_numbers, runs};
use super::shared_calls::SharedReply;
use crate::error::{Error, Result};
use crate::link::failure::Failure;
use crate::link::limits::Repeat;
use crate::policies::call::{Call, Purpose, Target};
use crate::policies::reply::TargetReply;
use crate::store::redis::script::{self, Args, Script};

impl RedisStore {
    /// Makes a call by `deadline`, and returns what `read` finds in the replies. `read` returns
    /// `None` if they are not replies to this call.
    pub(super) async fn run_call<T>(
        &self,
        call: &Arc<Call>,
        deadline: Instant,
        read: impl Fn(&[TargetReply]) -> Option<T>,
    ) -> Result<T> {
        let name = call.limiters.first().map_or("", |first| &first.key);
        let answer = self.attempt_call(call, name, deadline, read).await;
        self.noted(name, answer, deadline)
    }

    async fn attempt_call<T>(
        &self,
        call: &Arc<Call>,
        name: &str,
        deadline: Instant,
        read: impl Fn(&[TargetReply]) -> Option<T>,
    ) -> Result<T> {
        // The state does not tell requests apart, so a call that may have charged something, or
        // given it back, is not sent again.
        let (repeat, requests) = match call.purpose {
            Purpose::Peek => (Repeat::Safe, 0),
            Purpose::Reset | Purpose::GiveBack { .. } => (Repeat::Never, 0),
            Purpose::Decide if call.limiters.len() > 1 => (Repeat::Never, 1), // decided jointly
            Purpose::Decide => (Repeat::Never, call.costs.len() as u32),
        };
        let mut attempts = self.attempts(name, deadline, repeat);
        let mut progress = Progress::default();
        let counted = self
            .multi_checks
            .enter(name)
            .map_err(|_| Error::NoRuntime)?;
        let part = counted.is_one_of_many.then(|| CheckPart::new(call));
        let mut part = part.flatten();
        let mut keys = Vec::new(); // of a call that is sent alone
        loop {
            attempts.ready(|| false).await?;
            let deadline = self.server_deadline(&attempts).await?;
            let now = progress.now.or_else(|| self.clock.now());
            call.note_sent()?;
            let result = if let Some(part) = part.take() {
                let entered = self.multi_checks.send(part, attempts.deadline, deadline);
                match entered.await {
                    Some(SharedReply::Answered(result)) => result.map(|sent| sent.answer),
                    Some(SharedReply::Refused) => {
                        call.note_not_run();
                        continue;
                    }
                    None => Err(Failure::Lost(None)),
                }
            } else {
                let (script, args) = script_and_args(call, now, Some(deadline), &progress.read);
                let limits = attempts.limits().at_once().for_requests(requests);
                if keys.is_empty() {
                    keys.extend(call.limiters.iter().flat_map(Target::all_keys));
                }
                let is_before = |part: &CheckPart| part.shares_a_key(&keys);
                self.multi_checks.send_before(is_before).await;
                // In a box of its own, so that a call that is shared has a small future.
                Box::pin(script.run(&self.connection, &keys, &args, limits)).await
            };
            if let Err(Failure::NotSent(_) | Failure::NotRun(_)) = result {
                call.note_not_run();
            }
            if let Err(Failure::Refused(error)) = result {
                let culprit = culprit(call, &error).map_or(name, |target| &target.key);
                return Err(failure::of_answer(culprit, error));
            }
            let Some(reply) = attempts.after(result).await? else {
                continue;
            };
            let bad_state = || Error::bad_state(name);
            let (server_millis, reply) = read_reply(&reply).ok_or_else(bad_state)?;
            self.server_time.learn(server_millis);
            match reply {
                CheckReply::Answered(replies) => {
                    for (target, reply) in call.limiters.iter().zip(&replies) {
                        let left = target.model.left_settings(&reply.state);
                        self.left_rates
                            .left(&target.key, target.model.set_up(), left);
                    }
                    return read(&replies).ok_or_else(bad_state);
                }
                // The permits of the expired grants are counted in several calls, each of which
                // goes on from the one before.
                CheckReply::Unfinished(read) => progress = read,
                // The server received it after its deadline. If the deadline has not passed here,
                // the server's clock was misjudged.
                CheckReply::DeadlineExceeded => attempts.again_after(Duration::ZERO).await?,
            }
        }
    }
}

/// The limiter that an error of a joint decision is about. The script names its place, from 1.
fn culprit<'a>(call: &'a Call, error: &RedisError) -> Option<&'a Target> {
    let (place, _) = error.detail()?.strip_prefix("limiter ")?.split_once(':')?;
    let place: usize = place.parse().ok()?;
    call.limiters.get(place.checked_sub(1)?)
}

/// What a script returned.
#[derive(Debug)]
pub(crate) enum CheckReply {
    Answered(SmallVec<[TargetReply; 1]>),
    /// So many grants have expired that the call must be made again before anything is decided.
    Unfinished(Progress),
    /// The call arrived after its deadline.
    DeadlineExceeded,
}

/// What the next call of an unfinished peek must know.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The time of the first call, in ms.
    pub(crate) now: Option<i64>,
    /// What has been read of each limiter.
    pub(crate) read: Vec<Vec<u8>>,
}

/// The script that decides this call, and its arguments.
pub(crate) fn script_and_args(
    call: &Call,
    now: Option<i64>,
    deadline: Option<i64>,
    progress: &[Vec<u8>],
) -> (&'static Script, Args) {
    match &call.limiters[..] {
        [target] if call.purpose == Purpose::Decide && !target.model.is_rate() => {
            let model = &target.model;
            let mut runs = runs(&call.costs);
            let (cost, count) = runs.next().unwrap_or_default();
            let numbers = [
                deadline,
                now,
                target.by_ref().honoured_lock(),
                Some(cost),
                Some(count),
            ];
            let args = Args::new()
                .doubles(numbers)
                .doubles(own_numbers(model))
                .doubles(runs.flat_map(|(cost, count)| [Some(cost), Some(count)]));
            let args = match model.properties().logs_requests {
                true => args.bytes(&call.call_id),
                false => args.without_empty_end(),
            };
            (script::of(model.name()), args)
        }
        _ => (&script::JOINT, joint_args(call, now, deadline, progress)),
    }
}

/// The arguments of the script of joint decisions, which one limiter may make too. `progress` is
/// what an earlier call of a peek returned for each limiter.
pub(crate) fn joint_args(
    call: &Call,
    now: Option<i64>,
    deadline: Option<i64>,
    progress: &[Vec<u8>],
) -> Args {
    let refund;
    let (purpose, mark): (&[u8], _) = match call.purpose {
        Purpose::Decide => (&call.call_id, None),
        Purpose::Peek => (b"peek", None),
        Purpose::Reset => (b"reset", None),
        Purpose::GiveBack { mark } => {
            refund = [b"refund", &call.call_id[..]].concat();
            (&refund, Some(Some(mark)))
        }
    };
    let args = Args::new().doubles([deadline, now]).bytes(purpose);
    let mut progress = progress.iter();
    let each = call.limiters.iter().zip(&call.costs);
    each.fold(args, |args, (target, &cost)| {
        let progress = progress.next().map_or(&[][..], Vec::as_slice);
        let key_count = target.model.keys(&target.key).len() as i64;
        let numbers = [
            target.by_ref().honoured_lock(),
            Some(key_count),
            Some(cost.into()),
        ];
        args.bytes(target.model.name().as_bytes())
            .doubles(numbers.into_iter().chain(mark))
            .doubles_and(own_numbers(&target.model), progress)
    })
}

/// Reads what the script of a call returned: the server's clock in ms, and the reply. `None` if no
/// script returns that.
pub(crate) fn read_reply(reply: &Value) -> Option<(i64, CheckReply)> {
    let values = match reply {
        Value::Array(each) => each,
        one => slice::from_ref(one),
    };
    let (first, others) = values.split_first()?;
    let first = numbers(first)?;
    let server_millis = *first.first()?;
    let reply = match first[..] {
        [_] => CheckReply::DeadlineExceeded,
        [_, now] => CheckReply::Unfinished(Progress {
            now: (!others.is_empty()).then_some(now),
            read: others.iter().map(bytes).collect::<Option<_>>()?,
        }),
        _ => {
            let others = others.iter().map(numbers);
            let each = iter::once(Some(first)).chain(others);
            let replies = each.map(|numbers| TargetReply::new(&numbers?));
            CheckReply::Answered(replies.collect::<Option<_>>()?)
        }
    };
    Some((server_millis, reply))
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// Reads little-endian doubles, all of which are whole numbers.
fn numbers(value: &Value) -> Option<SmallVec<[i64; 9]>> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let doubles = bytes.chunks(8);
    let number = |bytes: &[u8]| Some(f64::from_le_bytes(bytes.try_into().ok()?) as i64);
    doubles.map(number).collect()
}
