//! One call of the other limiters: turns it into keys and arguments, sends it, and parses the reply.

use redis::{RedisError, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::RedisStore;
use super::failure::{self, Failure};
use super::retry::Repeat;
use crate::error::{Error, Result};
use crate::policies::algorithm::AnyModel;
use crate::policies::call::{Answers, Call, Target};
use crate::policies::reply::{self, TargetReply};
use crate::store::redis::script::{self, Args, Script};

impl RedisStore {
    pub(super) async fn check_call(&self, call: &Call, deadline: Instant) -> Result<Answers> {
        let Some(first) = call.limiters.first() else {
            return Ok(Answers {
                score: 0,
                answers: Vec::new(),
            });
        };
        let name = &first.key;
        // The state does not know single requests: one that may have been charged is not sent again.
        let mut attempts = self.attempts(name, deadline, Repeat::Never);
        let keys = call.limiters.iter().flat_map(|target| target.all_keys());
        let keys: Vec<String> = keys.collect();
        loop {
            if let Err(failure) = self.connection.ready(name, attempts.deadline).await {
                attempts.after::<Value>(Err(failure)).await?;
                continue;
            }
            let deadline = self.server_deadline(name, &attempts).await?;
            let (script, args) = script_and_args(call, self.clock.now(), Some(deadline));
            let limits = attempts.limits().at_once();
            call.note_sent(true);
            let result = script.run(&self.connection, &keys, &args, limits).await;
            if let Err(Failure::NotSent(_) | Failure::NotRun(_)) = result {
                call.note_sent(false);
            }
            if let Err(Failure::Refused(error)) = result {
                let target = culprit(call, &error).unwrap_or(first);
                return Err(failure::of_answer(&target.key, error));
            }
            let Some(reply) = attempts.after(result).await? else {
                continue;
            };
            let reply = read_reply(call, &reply).ok_or_else(|| Error::BadState {
                name: name.to_string(),
                source: None,
            })?;
            self.server_time.learn(reply.server_millis());
            match reply {
                Reply::Decided { answers, .. } => return Ok(answers),
                // Its permits are counted in several calls. What was done so far stays.
                Reply::Unfinished { .. } => {}
                // The server received it after its deadline. If the deadline has not passed here, the server's clock
                // was misjudged.
                Reply::DeadlineExceeded { .. } if !attempts.remaining().is_zero() => {}
                Reply::DeadlineExceeded { .. } => {
                    return Err(Error::Indeterminate { source: None });
                }
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

/// What a script returned, with the server's clock in ms.
#[derive(Debug)]
pub(crate) enum Reply {
    Decided {
        server_millis: i64,
        answers: Answers,
    },
    /// So many grants have expired that the call must be made again before anything is decided.
    Unfinished { server_millis: i64 },
    /// The call arrived after its deadline.
    DeadlineExceeded { server_millis: i64 },
}

impl Reply {
    fn server_millis(&self) -> i64 {
        match *self {
            Self::Decided { server_millis, .. }
            | Self::Unfinished { server_millis }
            | Self::DeadlineExceeded { server_millis } => server_millis,
        }
    }
}

/// The script that decides this call, and its arguments.
pub(crate) fn script_and_args(
    call: &Call,
    now: Option<i64>,
    deadline: Option<i64>,
) -> (&'static Script, Args) {
    match &call.limiters[..] {
        [target] if !target.model.properties().is_on_the_window => {
            let model = &*target.model;
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
                .bytes(&doubles(numbers))
                .bytes(&own_numbers(model))
                .bytes(&doubles(
                    runs.flat_map(|(cost, count)| [Some(cost), Some(count)]),
                ));
            let args = match model.properties().logs_requests {
                true => args.bytes(&call.call_id),
                false => args.without_empty_end(),
            };
            (script::of(model.name()), args)
        }
        _ => (&script::JOINT, joint_args(call, now, deadline)),
    }
}

/// The arguments of the script by which several limiters decide one request, or a single one does.
pub(crate) fn joint_args(call: &Call, now: Option<i64>, deadline: Option<i64>) -> Args {
    let args = Args::new()
        .bytes(&doubles([deadline, now]))
        .bytes(&call.call_id);
    let each = call.limiters.iter().zip(&call.costs);
    each.fold(args, |args, (target, &cost)| {
        let key_count = target.model.keys(&target.key).len() as i64;
        let numbers = [
            target.by_ref().honoured_lock(),
            Some(key_count),
            Some(cost.into()),
        ];
        args.bytes(target.model.name().as_bytes())
            .bytes(&doubles(numbers))
            .bytes(&own_numbers(&*target.model))
    })
}

/// Consecutive equal costs: the cost, and their number.
fn runs(costs: &[u32]) -> impl Iterator<Item = (i64, i64)> {
    let runs = costs.chunk_by(|one, next| one == next);
    runs.map(|run| (run[0].into(), run.len() as i64))
}

fn own_numbers(model: &dyn AnyModel) -> Doubles {
    doubles(model.numbers().into_iter().map(Some))
}

type Doubles = SmallVec<[u8; 64]>;

/// Numbers in the form that the scripts take, concatenated; NaN for `None`.
fn doubles(numbers: impl IntoIterator<Item = Option<i64>>) -> Doubles {
    let numbers = numbers.into_iter();
    // All are exact as doubles: larger ones are refused before.
    let doubles = numbers.map(|number| number.map_or(f64::NAN, |number| number as f64));
    doubles.flat_map(f64::to_le_bytes).collect()
}

/// Reads what the script of a call returned; `None` if it is not a reply to the call.
pub(crate) fn read_reply(call: &Call, reply: &Value) -> Option<Reply> {
    let values = match reply {
        Value::Array(each) => each.iter().map(numbers).collect::<Option<Vec<_>>>()?,
        one => vec![numbers(one)?],
    };
    let server_millis = *values.first()?.first()?;
    Some(match &values[..] {
        [only] if only.len() == 1 => Reply::DeadlineExceeded { server_millis },
        [only] if only.len() == 2 => Reply::Unfinished { server_millis },
        each => {
            let replies: Option<Vec<_>> = each
                .iter()
                .map(|numbers| TargetReply::new(numbers))
                .collect();
            Reply::Decided {
                server_millis,
                answers: reply::answers(call, &replies?)?,
            }
        }
    })
}

/// Little-endian doubles, all of them whole numbers.
fn numbers(value: &Value) -> Option<SmallVec<[i64; 9]>> {
    let Value::BulkString(bytes) = value else {
        return None;
    };
    let doubles = bytes.chunks(8);
    let number = |bytes: &[u8]| Some(f64::from_le_bytes(bytes.try_into().ok()?) as i64);
    doubles.map(number).collect()
}
