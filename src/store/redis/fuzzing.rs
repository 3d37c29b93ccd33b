//! What a server may answer, read as each of the expected answers.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::acquire_answer::{AcquireAnswer, Outcome};
use super::check::{Reply, read_reply};
use super::connection;
pub use super::connection::fuzzing::read_url;
use super::limiter::read_config;
use crate::decision::decision_alone;
use crate::model::Requests;
use crate::policy::algorithm::AnyModel;
use crate::policy::call::{Call, Target};
use crate::policy::{FixedWindow, LeakyBucket, SlidingWindowLog, TokenBucket};

const NAME: &str = "limiter";

/// Reads an answer as each of the expected ones.
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
    for call in decisions() {
        if let Some(Reply::Decided { answers, .. }) = read_reply(&call, &answer) {
            let _ = answers.decision(&call, 0);
            let _ = answers.decisions(&call);
        }
    }
    let _ = read_config(NAME, answer.clone());
    connection::fuzzing::read_answer(answer);
}

/// By one limiter of several kinds each, and by all of them together.
fn decisions() -> Vec<Call> {
    let second = Duration::from_secs(1);
    let models: [Arc<dyn AnyModel>; 4] = [
        Arc::new(FixedWindow::new(5, second)),
        Arc::new(SlidingWindowLog::new(5, second)),
        Arc::new(TokenBucket::per_second(2).with_capacity(5)),
        Arc::new(LeakyBucket::new(1, second).with_capacity(5)),
    ];
    let targets = models.map(|model| Target {
        model,
        key: NAME.into(),
        penalty: None,
    });
    let mut calls = vec![Call::new(targets.to_vec(), vec![1; targets.len()])];
    calls.extend(targets.map(|target| Call::new(vec![target], vec![3, 3, 1])));
    calls
}
