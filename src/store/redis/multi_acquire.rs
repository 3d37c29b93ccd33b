//! Acquires on many limiters in one call (`lua/multi_acquire.lua`).
//!
//! Only decisions are taken from such a call. If the call was refused, as a whole or for one
//! limiter, or if its flusher was dropped, the acquire is sent again alone, and has its own error.

use redis::RedisError;

use super::acquire_args::{call_args, call_key, list_args};
use super::script::{self, Args, Script};
use super::shared_calls::{Part, SharedReply};
use crate::keys::Keys;
use crate::link::limits::Repeat;
use crate::rate::RateType;
use crate::window::Acquire;

/// One acquire of a shared call.
pub(super) struct AcquirePart {
    rate_type: RateType,
    /// Its keys, then its arguments.
    words: Args,
    /// The number of its keys.
    keys: usize,
    /// The runs and the options, unless there is a single plain request.
    list: Option<Args>,
    /// How many runs of equal requests it has.
    runs: usize,
    requests: u32,
}

impl AcquirePart {
    pub(super) fn new(keys: &Keys, rate_type: RateType, call: &Acquire) -> Self {
        let mut words = Args::new();
        let of_call = call_key(keys, call);
        let sets_up = call.set_up.is_some();
        let keys = keys.of_acquire(rate_type, sets_up, of_call.as_deref());
        for key in &keys {
            words = words.bytes(key.as_bytes());
        }
        Self {
            rate_type,
            words: call_args(words, call),
            keys: keys.len(),
            list: list_args(call, None),
            runs: call.requests.runs.len(),
            requests: call.sharing(),
        }
    }
}

impl Part for AcquirePart {
    const REPEAT: Repeat = Repeat::Safe;

    fn script() -> &'static Script {
        &script::MULTI_ACQUIRE
    }

    fn work(&self) -> usize {
        self.runs
    }

    fn requests(&self) -> u32 {
        self.requests
    }

    fn rank(&self) -> usize {
        usize::from(self.rate_type == RateType::PerClient)
    }

    fn refused(_its_own: RedisError) -> SharedReply {
        SharedReply::Refused
    }

    fn keys_and_args<'a>(
        parts: &[&'a Self],
        server_deadline: Option<i64>,
        now: Option<i64>,
    ) -> (Vec<&'a [u8]>, Args) {
        let overall = parts
            .iter()
            .filter(|part| part.rate_type == RateType::Overall);
        let mut args = Args::new()
            .optional(server_deadline)
            .optional(now)
            .number(parts.len() as i64)
            .number(overall.count() as i64);
        let mut keys = Vec::with_capacity(parts.len() * 3);
        for part in parts {
            keys.extend(part.words.iter().take(part.keys));
            for arg in part.words.iter().skip(part.keys) {
                args = args.bytes(arg);
            }
        }
        let mut place = 1;
        for group in parts.chunk_by(|one, next| (one.keys, &one.list) == (next.keys, &next.list)) {
            let (first, last) = (place, place + group.len() as i64 - 1);
            place = last + 1;
            if let Some(list) = &group[0].list {
                args = args
                    .number(first)
                    .number(last)
                    .number(group[0].keys as i64)
                    .number(list.len() as i64)
                    .all(list);
            }
        }
        (keys, args)
    }
}
