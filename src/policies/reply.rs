//! The answers to a call's requests, computed from the state that a script returns.
//!
//! A script decides how much is taken. The answer to each request follows from the state that the
//! script found, by the same steps that the store in memory takes.

use smallvec::SmallVec;

use super::algorithm::Algorithm;
use super::call::{Answers, Call, Opened, check_requests, spare_unless_all_grant};
use crate::window::{At, Timed};

/// What a script returns for one target, in ms.
#[derive(Debug)]
pub(crate) struct TargetReply {
    /// The clocks of the call; the server's is 0 if it was not read.
    pub(crate) at: At,
    /// For how long the target was locked out; `None` if it was not.
    pub(crate) locked_for: Option<i64>,
    /// The algorithm's state; empty if the target was locked out before it was read.
    pub(crate) state: SmallVec<[i64; 6]>,
}

/// The answers to all requests of a call; `None` if the reply lacks what they need.
pub(crate) fn answers(call: &Call, replies: &[TargetReply]) -> Option<Answers> {
    let score = replies.first()?.at.now;
    let mut each = call.limiters.iter().zip(replies);
    if !each.all(|(target, reply)| reply.can_be_counted_with(&target.model)) {
        return None;
    }
    if call.costs.len() > call.limiters.len() {
        let [reply] = replies else {
            return None;
        };
        return answers_to_list(call, reply);
    }
    let evaluate = |limiter: usize, cost| {
        let (model, reply) = (&call.limiters[limiter].model, &replies[limiter]);
        model.evaluate_reply(reply.at, &reply.state, cost)
    };
    let each = call.limiters.iter().zip(&call.costs).zip(replies);
    let answers = each.enumerate().map(|(limiter, ((target, &cost), reply))| {
        let cost = i64::from(cost);
        let answer = evaluate(limiter, cost)?;
        let target = target.by_ref();
        Some(target.answer(reply.locked_for, answer, cost))
    });
    let mut answers: SmallVec<[_; 1]> = answers.collect::<Option<_>>()?;
    let evaluate = |limiter, cost| evaluate(limiter, cost).ok_or(());
    spare_unless_all_grant(&mut answers, evaluate).ok()?;
    (answers.len() == call.costs.len()).then_some(Answers { score, answers })
}

/// The answers to a list of requests on one target.
fn answers_to_list(call: &Call, reply: &TargetReply) -> Option<Answers> {
    let [target] = &call.limiters[..] else {
        return None;
    };
    let at = reply.at;
    let mut lock = Timed::default();
    let mut state = match reply.locked_for {
        Some(left) => {
            lock.set(());
            lock.expire_at(at.server + left);
            target.model.new_state(())?
        }
        None => target.model.state_from_reply(at, &reply.state)?,
    };
    let mut opened = [Opened {
        target: target.by_ref(),
        paired: state.with(&target.model)?.0,
        lock: &mut lock,
    }];
    check_requests(&mut opened, at, &call.call_id, &call.costs).ok()
}

impl TargetReply {
    /// From the numbers that the script returns; `None` if they are too few.
    pub(crate) fn new(numbers: &[i64]) -> Option<Self> {
        match *numbers {
            [server, now, locked_for, ref state @ ..] => Some(Self {
                at: At { now, server },
                locked_for: (locked_for > 0).then_some(locked_for),
                state: state.into(),
            }),
            _ => None,
        }
    }

    /// Whether sums of these numbers, and a thousand times one of them, do not overflow: scripts
    /// read numbers up to 2^53, the largest that Lua counts exactly. The numbers of an RRateLimiter
    /// are not used in sums.
    fn can_be_counted_with(&self, model: &Algorithm) -> bool {
        const LARGEST: u64 = 1 << 53;
        let times = [self.at.server, self.at.now, self.locked_for.unwrap_or(0)];
        let state = self.state.iter().filter(|_| !model.is_rate());
        times
            .iter()
            .chain(state)
            .all(|number| number.unsigned_abs() <= LARGEST)
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value as Json, json};

    use super::super::answer::Outcome;
    use super::super::call::Target;
    use super::super::differential_tests::WithNumbers;
    use super::*;
    use crate::client_vectors::{hold, numbers, text};

    #[test]
    fn a_client_concludes_from_a_policy_s_reply_what_the_specification_says() {
        hold("policies", |given| {
            let model = policy(text(&given["policy"]), &numbers(&given["numbers"]));
            assert_eq!(model.numbers(), numbers(&given["numbers"]), "{given}");
            let target = Target {
                model,
                key: "target".into(),
                penalty: given["penalty"].as_i64(),
            };
            let costs = numbers(&given["costs"]).into_iter();
            let costs: Vec<u32> = costs.map(|cost| u32::try_from(cost).unwrap()).collect();
            let call = Call::new([target], costs);
            let reply = TargetReply::new(&numbers(&given["reply"]["doubles"])).unwrap();
            let answers = answers(&call, &[reply]).unwrap().answers;
            let requests = answers.iter().map(|answer| match answer.outcome {
                Outcome::Granted => json!({ "granted": true, "wait": answer.delay }),
                Outcome::Denied | Outcome::Spared | Outcome::LockedOut => {
                    json!({ "granted": false, "wait": answer.retry_after })
                }
                Outcome::Never => "error".into(),
            });
            json!({ "requests": requests.collect::<Vec<Json>>() })
        });
    }

    /// A policy with these numbers.
    fn policy(name: &str, numbers: &[i64]) -> Arc<Algorithm> {
        macro_rules! with_numbers {
            ([] $($policy:ident: $Policy:ident,)*) => {
                $(if name == stringify!($policy) {
                    return Arc::new(super::super::$Policy::with_numbers(numbers).into());
                })*
            };
        }
        policies!(with_numbers! {});
        panic!("no policy: {name}")
    }
}
