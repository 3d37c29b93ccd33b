//! Decisions on many targets in one call (`lua/multi_check.lua`).
//!
//! A call is shared only if its decision takes the server the same time whatever was granted
//! before: if it touches few keys, and its requests have equal costs. Other calls are sent alone.

use std::sync::Arc;

use redis::RedisError;

use super::script::{self, Args, Script};
use super::shared_calls::{Part, SharedReply};
use crate::link::limits::Repeat;
use crate::policies::algorithm::Algorithm;
use crate::policies::call::{Call, Purpose, Target};

/// The requests of one call on one target.
pub(crate) struct CheckPart {
    call: Arc<Call>,
    keys: Vec<String>,
    /// The cost of each request, and the number of requests.
    run: (i64, i64),
}

impl CheckPart {
    /// The part of a shared call that this call is; `None` if it has to be sent alone.
    pub(crate) fn new(call: &Arc<Call>) -> Option<Self> {
        let (Purpose::Decide, [target]) = (call.purpose, &call.limiters[..]) else {
            return None;
        };
        let model = &target.model;
        let largest = call.costs.iter().max()?;
        if model.is_rate() || model.touches(*largest) > 0 {
            return None;
        }
        let mut runs = runs(&call.costs);
        let (Some(run), None) = (runs.next(), runs.next()) else {
            return None;
        };
        Some(Self {
            call: Arc::clone(call),
            keys: target.all_keys(),
            run,
        })
    }

    pub(super) fn shares_a_key(&self, keys: &[String]) -> bool {
        self.keys.iter().any(|key| keys.contains(key))
    }

    /// The target of the call: a part has one.
    fn target(&self) -> &Target {
        &self.call.limiters[0]
    }

    fn has_policy_of(&self, other: &Self) -> bool {
        let (one, other) = (self.target(), other.target());
        let (model, others) = (&one.model, &other.model);
        let is_same = Arc::ptr_eq(&one.model, &other.model)
            || model.name() == others.name() && model.numbers() == others.numbers();
        is_same && one.by_ref().honoured_lock() == other.by_ref().honoured_lock()
    }
}

impl Part for CheckPart {
    const REPEAT: Repeat = Repeat::Never;

    fn script() -> &'static Script {
        &script::MULTI_CHECK
    }

    fn work(&self) -> usize {
        0
    }

    fn requests(&self) -> u32 {
        self.call.costs.len() as u32
    }

    fn keys_and_args<'a>(
        parts: &[&'a Self],
        server_deadline: Option<i64>,
        now: Option<i64>,
    ) -> (Vec<&'a [u8]>, Args) {
        let keys = parts.iter().flat_map(|part| &part.keys);
        let mut args = Args::new().doubles([server_deadline, now]);
        for group in parts.chunk_by(|one, next| one.has_policy_of(next)) {
            let (first, target) = (group[0], group[0].target()); // no chunk is empty
            let runs = group.iter().map(|part| part.run);
            args = args
                .bytes(target.model.name().as_bytes())
                .doubles([
                    target.by_ref().honoured_lock(),
                    Some(first.keys.len() as i64),
                ])
                .doubles(own_numbers(&target.model))
                .doubles(runs.flat_map(|(cost, count)| [Some(cost), Some(count)]));
        }
        (keys.map(String::as_bytes).collect(), args)
    }

    /// An error of one part is its answer, as if it had been sent alone.
    fn refused(error: RedisError) -> SharedReply {
        SharedReply::Answered(Err(error.into()))
    }
}

/// The runs of equal costs: the cost, and how often it comes.
pub(super) fn runs(costs: &[u32]) -> impl Iterator<Item = (i64, i64)> {
    let runs = costs.chunk_by(|one, next| one == next);
    runs.map(|run| (run[0].into(), run.len() as i64))
}

pub(super) fn own_numbers(model: &Algorithm) -> impl Iterator<Item = Option<i64>> {
    model.numbers().into_iter().map(Some)
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;
    use crate::link::failure::Failure;

    /// What follows where the script returned this error for one target.
    fn refused(error: &str) -> Failure {
        let error = redis::parse_redis_value(format!("-{error}\r\n").as_bytes());
        let error = error.and_then(Value::extract_error).unwrap_err();
        match CheckPart::refused(error) {
            SharedReply::Answered(Err(failure)) => failure,
            _ => panic!("it is the target's own answer"),
        }
    }

    #[test]
    fn an_error_of_one_target_counts_as_it_does_in_a_call_of_its_own() {
        let not_run = refused("READONLY You can't write against a read only replica.");
        assert!(matches!(not_run, Failure::NotRun(_)), "{not_run:?}");
        let not_run = refused("NOREPLICAS Not enough good replicas to write.");
        assert!(matches!(not_run, Failure::NotRun(_)), "{not_run:?}");
        let refused = refused("BADSTATE the counter is not an integer");
        assert!(matches!(refused, Failure::Refused(_)), "{refused:?}");
    }
}
