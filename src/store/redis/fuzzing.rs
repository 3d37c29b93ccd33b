//! What a server may answer, read as each of the expected answers.

use redis::Value;

use super::acquire_answer::{AcquireAnswer, Meaning};
use super::check::{CheckReply, read_reply};
use super::steps::read_config;
use crate::decision::decision_alone;
pub use crate::link::fuzzing::read_url;
use crate::policies::call::{Call, Target};
use crate::policies::every_kind::every_kind;
use crate::policies::reply::answers;
use crate::rate::RateType;
use crate::window::Requests;

const NAME: &str = "limiter";

/// Reads an answer as each of the expected ones.
pub fn read_answer(answer: Value) {
    for (passed, rate_type) in [(None, RateType::Overall), (Some(0), RateType::PerClient)] {
        let acquired = AcquireAnswer::read(NAME, answer.clone(), passed, Some(1), rate_type);
        if let Ok(AcquireAnswer {
            meaning: Meaning::Decided(decided),
            ..
        }) = acquired
        {
            // Do with the answer what the callers of a call do.
            decided.wait();
            let _ = decision_alone(NAME, [0; 16], 3, &decided);
            for requests in [
                Requests::one(u32::MAX),
                Requests::plain([3, 1, 1, 4].into_iter()),
            ] {
                requests.taken(&decided);
            }
        }
    }
    let _ = AcquireAnswer::read_reclaim(NAME, answer.clone());
    for call in decisions() {
        if let Some((_, CheckReply::Answered(replies))) = read_reply(&answer)
            && let Some(answers) = answers(&call, &replies)
        {
            let _ = answers.decision(&call, 0);
            let _ = answers.decisions(&call);
        }
    }
    let _ = read_config(NAME, answer.clone());
    crate::link::fuzzing::read_answer(answer);
}

/// By one limiter of each kind, and by all of them together.
fn decisions() -> Vec<Call> {
    let targets: Vec<Target> = every_kind("client")
        .map(|model| Target {
            model,
            key: NAME.into(),
            penalty: None,
        })
        .collect();
    let mut calls = vec![Call::new(targets.clone(), vec![1; targets.len()])];
    calls.extend(targets.into_iter().map(|target| {
        // A call of an RRateLimiter decides one request.
        let costs = match target.model.is_rate() {
            true => vec![3],
            false => vec![3, 3, 1],
        };
        Call::new([target], costs)
    }));
    calls
}
