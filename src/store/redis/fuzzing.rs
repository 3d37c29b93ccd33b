//! What a server answers, whatever it is, read as each of the answers that are expected.

use redis::Value;

use super::acquire_answer::{AcquireAnswer, Outcome};
pub use super::connection::fuzzing::read_url;
use super::decide::read_answers;
use super::limiter::read_config;
use super::{connection, read};
use crate::decision::decision_alone;
use crate::model::Requests;

const NAME: &str = "limiter";

/// Reads an answer as each of those that are expected.
pub fn read_answer(answer: Value) {
    for passed in [None, Some(0)] {
        let acquired = AcquireAnswer::read(NAME, answer.clone(), passed, Some(1));
        if let Ok(AcquireAnswer {
            outcome: Outcome::Decided(decided),
            ..
        }) = acquired
        {
            // What the callers of a call make of it.
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
    if let Ok(numbers) = read::<Vec<i64>>(NAME, answer.clone())
        && let [_, score, answers @ ..] = &numbers[..]
    {
        let _ = read_answers(NAME, *score, answers);
    }
    let _ = read_config(NAME, answer.clone());
    connection::fuzzing::read_answer(answer);
}
