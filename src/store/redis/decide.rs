//! One call of the other limiters: as keys and arguments, sent, its answer typed.

use tokio::time::Instant;

use super::retry::{Attempts, Repeat};
use super::{RedisStore, read};
use crate::error::{Error, Result};
use crate::policy::call::{Answer, Answers, Call, Outcome};
use crate::script::{self, Args, Script};

impl RedisStore {
    pub(super) async fn decide_call(&self, call: &Call, deadline: Instant) -> Result<Answers> {
        let [first, others @ ..] = &call.limiters[..] else {
            return Ok(Answers {
                score: 0,
                answers: Vec::new(),
            });
        };
        let script = if others.is_empty() {
            first.model.script()
        } else {
            &script::JOINT
        };
        // The state knows no single requests: one that may have been charged is not sent again.
        let attempts = Attempts::new(deadline, Repeat::Never);
        self.send_call(script, call, &first.key, attempts).await
    }

    async fn send_call(
        &self,
        script: &Script,
        call: &Call,
        name: &str,
        mut attempts: Attempts,
    ) -> Result<Answers> {
        let keys = call.limiters.iter().flat_map(|target| target.all_keys());
        let keys: Vec<String> = keys.collect();
        loop {
            let deadline = self.server_deadline(name, &mut attempts).await?;
            let args = args(call, self.clock.now(), Some(deadline));
            let sending = script.run(&self.connection, &keys, &args, attempts.limits());
            let Some(answer) = attempts.step(name, sending).await? else {
                continue;
            };
            let numbers: Vec<i64> = read(name, answer)?;
            if let Some(&server_millis) = numbers.first() {
                self.server_time.learn(server_millis);
            }
            match numbers[..] {
                // So many grants have expired that their permits are counted in several calls.
                [_, _] if !call.costs.is_empty() => {}
                [_, score, ref answers @ ..] => return read_answers(name, score, answers),
                // The server got it after its deadline. Where that is not yet so here, its clock was misjudged.
                _ if !attempts.remaining().is_zero() => {}
                _ => return Err(Error::Indeterminate { source: None }),
            }
        }
    }
}

pub(crate) fn args(call: &Call, now: Option<i64>, deadline: Option<i64>) -> Args {
    let mut args = Args::new()
        .optional(now)
        .optional(deadline)
        .bytes(&call.random)
        .number(call.limiters.len() as i64);
    for target in &call.limiters {
        let model = &target.model;
        let numbers = model.numbers();
        args = args
            .bytes(model.name().as_bytes())
            .optional(target.minded_lock())
            .number(model.keys(&target.key).len() as i64)
            .number(numbers.len() as i64);
        for number in numbers {
            args = args.number(number);
        }
    }
    for &cost in &call.costs {
        args = args.number(cost);
    }
    args
}

pub(crate) fn read_answers(name: &str, score: i64, numbers: &[i64]) -> Result<Answers> {
    let answers = numbers.chunks(6).map(|numbers| match *numbers {
        [outcome, limit, remaining, retry_after, reset, delay] => Some(Answer {
            outcome: match outcome {
                1 => Outcome::Granted,
                0 => Outcome::Denied,
                -1 => Outcome::LockedOut,
                -2 => Outcome::Never,
                _ => return None,
            },
            limit,
            remaining,
            retry_after,
            reset,
            delay,
        }),
        _ => None,
    });
    match answers.collect() {
        Some(answers) => Ok(Answers { score, answers }),
        None => Err(Error::BadState {
            name: name.to_owned(),
            source: None,
        }),
    }
}
