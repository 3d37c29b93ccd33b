//! Which scripts a server knows, as far as its answers over one connection say.
//!
//! A script's call is sent by its hash. A server that does not know it answers so, and the call is sent again with the script's
//! text, which takes a second round trip. Where the call has no time for two, the first call of a script over a connection is
//! sent with the text at once. Of the calls that find a script unknown at the same time one sends the text, and the others send
//! the hash again behind it.

use std::sync::atomic::{AtomicU32, Ordering};

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use super::request::ScriptCall;
use crate::store::redis::failure::{Failure, is_answered};

/// More than there are scripts. Two that share a number only cost a second round trip at times.
pub(in crate::store::redis) const MOST_SCRIPTS: usize = 64;

/// A call is sent by its hash so often, while others send the text.
const MOST_BY_HASH: u32 = 4;

/// For each script how many times its text was sent; 1 if the server knew it, and 0 if it may not know it.
pub(super) struct KnownScripts([AtomicU32; MOST_SCRIPTS]);

impl Default for KnownScripts {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; MOST_SCRIPTS])
    }
}

/// A script's call while it is sent, perhaps more than once.
pub(super) struct Sending<'a> {
    known: &'a AtomicU32,
    script: ScriptCall<'a>,
    /// `None` to send the text, else what is known when the hash is sent.
    at: Option<u32>,
    times: u32,
}

impl KnownScripts {
    pub(super) fn begin<'a>(
        &'a self,
        script: ScriptCall<'a>,
        has_time_for_two: bool,
    ) -> Sending<'a> {
        let known = &self.0[script.number % MOST_SCRIPTS];
        let mut at = Some(known.load(Ordering::Relaxed));
        if at == Some(0) && !has_time_for_two {
            at = changed(known, 0, 1).err();
        }
        Sending {
            known,
            script,
            at,
            times: 0,
        }
    }
}

impl Sending<'_> {
    /// The text in a command, unless the hash is to be sent.
    pub(super) fn text(&self) -> Option<Cmd> {
        self.at.is_none().then(|| (self.script.by_source)())
    }

    /// What became of it. `None` if it is to be sent again; `has_time` for another round trip.
    pub(super) fn after(
        &mut self,
        result: Result<Value, Failure>,
        has_time: bool,
    ) -> Option<Result<Value, Failure>> {
        self.times += 1;
        let Some(at) = self.at else {
            if !matches!(result, Ok(_) | Err(Failure::Refused(_))) {
                self.known.store(0, Ordering::Relaxed); // it may not have arrived
            }
            return Some(result);
        };
        let error = match result {
            Err(Failure::Refused(error)) if error.kind() == UNKNOWN => error,
            result => {
                if at == 0 && is_answered(&result) {
                    let _ = changed(self.known, 0, 1); // another call may have noted it
                }
                return Some(result);
            }
        };
        if !has_time {
            let _ = changed(self.known, at, 0);
            return Some(Err(Failure::NotRun(error)));
        }
        let is_first = changed(self.known, at, at.wrapping_add(1).max(1)).is_ok();
        self.at = if is_first || self.times == MOST_BY_HASH {
            None
        } else {
            Some(self.known.load(Ordering::Relaxed))
        };
        None
    }
}

const UNKNOWN: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);

fn changed(known: &AtomicU32, from: u32, to: u32) -> Result<u32, u32> {
    known.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
}
