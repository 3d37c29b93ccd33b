//! Decisions on many targets in one call (`lua/multi_check.lua`).
//!
//! Only calls share one whose decision takes the server the same time whatever was granted before: those that touch a few
//! keys, and carry requests of equal cost. Others are sent alone.

use redis::RedisError;

use super::check::{Doubles, doubles, own_numbers, runs};
use super::retry::Repeat;
use super::script::{self, Args, Script};
use super::shared_calls::{Part, SharedReply};
use crate::policies::call::{Call, Purpose};

/// The requests of one call on one target.
pub(crate) struct CheckPart {
    policy: &'static str,
    /// The penalty, and the number of keys.
    target: Doubles,
    numbers: Doubles,
    /// Their cost, and how many there are.
    run: Doubles,
    requests: u32,
    keys: Vec<String>,
}

impl CheckPart {
    /// `None` if the call is sent alone.
    pub(crate) fn new(call: &Call) -> Option<Self> {
        let (Purpose::Decide, [target]) = (call.purpose, &call.limiters[..]) else {
            return None;
        };
        let model = &*target.model;
        let largest = call.costs.iter().max()?;
        if model.properties().is_on_the_window || model.touches(*largest) > 0 {
            return None;
        }
        let mut runs = runs(&call.costs);
        let (Some((cost, count)), None) = (runs.next(), runs.next()) else {
            return None;
        };
        let keys = target.all_keys();
        Some(Self {
            policy: model.name(),
            target: doubles([target.by_ref().honoured_lock(), Some(keys.len() as i64)]),
            numbers: own_numbers(model),
            run: doubles([Some(cost), Some(count)]),
            requests: call.costs.len() as u32,
            keys,
        })
    }

    pub(super) fn shares_a_key(&self, keys: &[String]) -> bool {
        self.keys.iter().any(|key| keys.contains(key))
    }

    fn has_policy_of(&self, other: &Self) -> bool {
        (self.policy, &self.target, &self.numbers) == (other.policy, &other.target, &other.numbers)
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
        self.requests
    }

    fn keys_and_args<'a>(
        parts: &[&'a Self],
        server_deadline: Option<i64>,
        now: Option<i64>,
    ) -> (Vec<&'a [u8]>, Args) {
        let keys = parts.iter().flat_map(|part| &part.keys);
        let mut args = Args::new().bytes(&doubles([server_deadline, now]));
        for group in parts.chunk_by(|one, next| one.has_policy_of(next)) {
            let first = group[0]; // no chunk is empty
            let runs = group.iter().flat_map(|part| &part.run).copied();
            args = args
                .bytes(first.policy.as_bytes())
                .bytes(&first.target)
                .bytes(&first.numbers)
                .bytes(&runs.collect::<Doubles>());
        }
        (keys.map(String::as_bytes).collect(), args)
    }

    /// The same as the answer to a call for this target alone.
    fn refused(error: RedisError) -> SharedReply {
        SharedReply::Answered(Err(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;
    use crate::store::redis::failure::Failure;

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
