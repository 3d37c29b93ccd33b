//! Which scripts a server knows, as far as its answers over one connection say.
//!
//! A script's call is sent by its hash. A server that does not know it answers so, and the call is
//! sent again with the script's text, which takes a second round trip. Where the call has no time
//! for two, the first call of a script over a connection is sent with the text at once. Of the
//! calls that find a script unknown at the same time one sends the text, and the others send the
//! hash again behind it.

use std::sync::atomic::{AtomicU32, Ordering};

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

use super::failure::{Failure, is_answered};
use super::request::ScriptCall;

/// More than there are scripts. Two that share a number only cost a second round trip at times.
pub(crate) const MOST_SCRIPTS: usize = 64;

/// A call that was sent this many times by its hash, while other calls sent the text, is sent with
/// the text.
const MOST_BY_HASH: u32 = 4;

/// For each script how many times its text was sent, or 1 if the server knew it without that; 0 if
/// the server may not know it.
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
    /// The value of `known` when the hash is sent; `None` if the text is sent.
    at: Option<u32>,
    /// How many times the call was sent.
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

    /// Notes a result of the call. Returns the result if the call ends with it, and `None` if the
    /// call is to be sent again. `has_time` says whether there is time for another round trip.
    pub(super) fn after(
        &mut self,
        result: Result<Value, Failure>,
        has_time: bool,
    ) -> Option<Result<Value, Failure>> {
        self.times += 1;
        let Some(at) = self.at else {
            if let Err(Failure::NotSent(_) | Failure::NotRun(_)) = result {
                self.known.store(0, Ordering::Relaxed); // the server has not read it
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

/// Replaces what is known of a script, unless another call has changed it since.
fn changed(known: &AtomicU32, from: u32, to: u32) -> Result<u32, u32> {
    known.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use redis::{RedisError, parse_redis_value};

    use super::super::failure::{closed, extract_error};
    use super::*;

    fn unknown() -> Result<Value, Failure> {
        let answer = parse_redis_value(b"-NOSCRIPT No matching script.\r\n").unwrap();
        extract_error(answer).map_err(Failure::from)
    }

    fn script<'a>(by_hash: &'a Cmd, by_source: &'a (dyn Fn() -> Cmd + Sync)) -> ScriptCall<'a> {
        ScriptCall {
            number: MOST_SCRIPTS + 1,
            by_hash,
            by_source,
        }
    }

    /// What a call sends that has time for all its attempts, if the server does not know the script
    /// the first `unknown_times` times: how often it sends the hash, and whether it sends the text.
    fn sent(known: &KnownScripts, unknown_times: u32) -> (u32, bool) {
        let (hash, text) = (Cmd::new(), Cmd::new);
        let mut sending = known.begin(script(&hash, &text), true);
        for times in 0.. {
            if sending.text().is_some() {
                assert!(sending.after(Ok(Value::Nil), true).is_some());
                return (times, true);
            }
            let is_unknown = times < unknown_times;
            let answer = if is_unknown {
                unknown()
            } else {
                Ok(Value::Nil)
            };
            if sending.after(answer, true).is_some() {
                return (times + 1, false);
            }
        }
        unreachable!()
    }

    #[test]
    fn of_calls_that_find_a_script_unknown_one_sends_the_text() {
        let known = KnownScripts::default();
        let (hash, text) = (Cmd::new(), Cmd::new);
        for round in 0..2 {
            let mut calls: Vec<_> = (0..5)
                .map(|_| known.begin(script(&hash, &text), true))
                .collect();
            for call in &mut calls {
                assert!(call.text().is_none(), "{round}");
                assert!(call.after(unknown(), true).is_none());
            }
            let texts = calls.iter().filter(|call| call.text().is_some());
            assert_eq!(texts.count(), 1, "{round}");
            for mut call in calls {
                assert!(call.after(Ok(Value::Nil), true).is_some());
            }
        }
    }

    #[test]
    fn a_call_sends_the_hash_a_few_times_at_most() {
        let known = KnownScripts::default();
        assert_eq!(sent(&known, 0), (1, false));
        assert_eq!(sent(&known, 1), (1, true));
        // Other calls send the text each time, and the server forgets it.
        let (hash, text) = (Cmd::new(), Cmd::new);
        let mut call = known.begin(script(&hash, &text), true);
        for times in 1..=MOST_BY_HASH {
            assert!(call.text().is_none(), "{times}");
            known.0[1].fetch_add(1, Ordering::Relaxed);
            assert!(call.after(unknown(), true).is_none());
        }
        assert!(call.text().is_some());
    }

    #[test]
    fn without_time_for_two_round_trips_an_unknown_script_is_sent_as_text() {
        let (hash, text) = (Cmd::new(), Cmd::new);
        let script = script(&hash, &text);
        let known = KnownScripts::default();
        let mut first = known.begin(script, false);
        assert!(first.text().is_some());
        // Later calls arrive after the text.
        let mut second = known.begin(script, false);
        assert!(second.text().is_none());
        assert!(first.after(Ok(Value::Nil), false).is_some());
        assert!(second.after(Ok(Value::Nil), false).is_some());
        assert!(known.begin(script, false).text().is_none());
        // The server has forgotten the script: the call did not run, and the next one sends the
        // text.
        let result = known.begin(script, false).after(unknown(), false);
        assert!(matches!(result, Some(Err(Failure::NotRun(_)))));
        assert!(known.begin(script, false).text().is_some());
        assert!(known.begin(script, false).text().is_none());
    }

    #[test]
    fn a_text_that_the_server_has_not_read_is_sent_again() {
        let (hash, text) = (Cmd::new(), Cmd::new);
        let script = script(&hash, &text);
        let refused =
            |code: &str| -> RedisError { redis::make_extension_error(code.to_owned(), None) };
        let failures = [
            (Failure::NotSent(closed()), true),
            (Failure::NotRun(refused("BUSY")), true),
            // The script may have been loaded, and the next call arrives later.
            (Failure::Lost(None), false),
            // The script ran, so the server knows it.
            (Failure::Refused(refused("BADSTATE")), false),
        ];
        for (failure, is_sent_again) in failures {
            let known = KnownScripts::default();
            let result = known
                .begin(script, false)
                .after(Err(failure.clone()), false);
            assert!(result.is_some_and(|it| it.is_err()));
            assert_eq!(
                known.begin(script, false).text().is_some(),
                is_sent_again,
                "{failure:?}"
            );
        }
        // A script that has run with an error is known too.
        let known = KnownScripts::default();
        let mut call = known.begin(script, true);
        let bad = Err(Failure::Refused(refused("BADSTATE")));
        assert!(call.after(bad, true).is_some());
        assert!(known.begin(script, false).text().is_none());
    }
}
