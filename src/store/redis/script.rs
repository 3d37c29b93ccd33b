//! The Lua scripts and how one is run: by its hash, and by its source where the server does not
//! know it.

mod args;
pub(crate) mod include;
#[cfg(test)]
mod include_tests;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::{Cmd, Value};
use tokio::time::Instant;
use tracing::Span;

pub(crate) use self::args::Args;
use crate::event::{Event, Events, spans};
use crate::link::failure::{Failure, is_answered};
use crate::link::limits::Limits;
use crate::link::{Connection, MOST_SCRIPTS, Message, ScriptCall};
#[cfg(test)]
use crate::window::{BOUNDS, Bounds};

/// A script and the SHA-1 that Redis names it by.
pub(crate) struct Script {
    /// The path of its file, for events.
    name: &'static str,
    /// A number that no other script has, below [`MOST_SCRIPTS`].
    number: usize,
    hash: String,
    source: String,
}

macro_rules! scripts {
    ($($name:ident = $file:expr;)*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| Script::assemble($file));
    )*};
}

scripts! {
    ACQUIRE = "acquire.lua";
    MULTI_ACQUIRE = "multi_acquire.lua";
    MULTI_CHECK = "multi_check.lua";
    REFUND = "refund.lua";
    SETTLE = "settle.lua";
    RECLAIM = "reclaim.lua";
    RELEASE = "release.lua";
    HOLD = "hold.lua";
    AVAILABLE_PERMITS = "available_permits.lua";
    TRY_SET_RATE = "try_set_rate.lua";
    SET_RATE = "set_rate.lua";
    UPDATE_RATE = "update_rate.lua";
    AUDIT_READ = "audit_read.lua";
    AUDIT_RECONCILE = "audit_reconcile.lua";
    EXPIRE = "expire.lua";
    CLEAR_EXPIRE = "clear_expire.lua";
    JOINT = "joint.lua";
}

macro_rules! script_of {
    ([$algorithm:ident] $($name:ident: $Policy:ident,)*) => {
        $(if $algorithm == stringify!($name) {
            scripts! { SCRIPT = concat!("policies/", stringify!($name), ".lua"); }
            return &SCRIPT;
        })*
    };
}

/// The script that decides a list of requests by one algorithm. For RRateLimiter's it is the script
/// of joint decisions.
pub(crate) fn of(algorithm: &str) -> &'static Script {
    policies!(script_of! { algorithm });
    &JOINT
}

#[cfg(not(test))]
fn read(file: &str) -> Option<Cow<'static, str>> {
    include::read(file)
}

/// With the bounds of unit tests, which are so small that a few grants exceed them.
#[cfg(test)]
fn read(file: &str) -> Option<Cow<'static, str>> {
    let text = include::read(file)?;
    if file != LIMITS {
        return Some(text);
    }
    let bounds = lines(Bounds::SHIPPED).into_iter().zip(lines(BOUNDS));
    let text = bounds.fold(text.into_owned(), |text, (shipped, bound)| {
        assert!(text.contains(&shipped), "{LIMITS} has no line {shipped}");
        text.replace(&shipped, &bound)
    });
    Some(Cow::Owned(text))
}

#[cfg(test)]
const LIMITS: &str = "shared/limits.lua";

/// How [`LIMITS`] states these bounds.
#[cfg(test)]
fn lines(bounds: Bounds) -> [String; 7] {
    let Bounds {
        always_summed,
        most_summed,
        always_removed,
        always_removed_jointly,
        most_read,
        most_walked,
        most_walked_jointly,
    } = bounds;
    let bounds = [
        ("ALWAYS_SUMMED", always_summed),
        ("MOST_SUMMED", most_summed),
        ("ALWAYS_REMOVED", always_removed),
        ("ALWAYS_REMOVED_JOINTLY", always_removed_jointly),
        ("MOST_READ", most_read),
        ("MOST_WALKED", most_walked),
        ("MOST_WALKED_JOINTLY", most_walked_jointly),
    ];
    bounds.map(|(name, number)| format!("\nlocal {name} = {number} "))
}

impl Script {
    fn assemble(file: &'static str) -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        // The files are part of the program, and a unit test assembles every script.
        let source = include::assemble(file, read).unwrap_or_else(|error| panic!("{error}"));
        Self {
            name: file.trim_end_matches(".lua"),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed) % MOST_SCRIPTS,
            hash: redis::Script::new(&source).get_hash().to_owned(),
            source,
        }
    }

    /// Runs the script with these keys and arguments. This takes one round trip if the server knows
    /// the script, or if there is no time for a second one.
    pub(crate) async fn run(
        &self,
        connection: &Connection,
        keys: &[impl AsRef<[u8]> + Sync],
        args: &Args,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let mut reported = ReportedCall {
            events: connection.events(),
            started: connection.events().start(),
            script: self.name,
            limits,
            is_answered: false,
            span: spans::call(self.name, limits.requests, limits.attempt, || {
                let key = str::from_utf8(keys.first()?.as_ref()).ok()?;
                Some(connection.breaker(key)?.server().to_owned())
            }),
        };
        let by_hash = command("EVALSHA", &self.hash, keys, args);
        let by_source = || command("EVAL", &self.source, keys, args);
        let call = ScriptCall {
            number: self.number,
            by_hash: &by_hash,
            by_source: &by_source,
        };
        let sending = connection.send(Message::Script(call), limits);
        let result = sending.await;
        reported.is_answered = is_answered(&result);
        if let Err(failure) = &result {
            spans::fail(&reported.span, failure.kind());
        }
        if let Err(Failure::NotSent(_) | Failure::NoRuntime) = result {
            reported.started = None;
        }
        result
    }
}

/// Reports the end of a call by an event when it is dropped, also if nobody waits for the answer.
struct ReportedCall<'a> {
    events: &'a Events,
    /// `None` if no event is to be made.
    started: Option<Instant>,
    script: &'static str,
    limits: Limits,
    is_answered: bool,
    span: Span,
}

impl Drop for ReportedCall<'_> {
    fn drop(&mut self) {
        let Some(started) = self.started else {
            return;
        };
        self.events.tell(|| Event::Call {
            script: self.script,
            requests: self.limits.requests,
            attempt: self.limits.attempt,
            is_answered: self.is_answered,
            took: started.elapsed(),
        });
    }
}

/// Room for the number of keys as text.
const LARGEST_COUNT: usize = 8;

fn command(name: &str, script: &str, keys: &[impl AsRef<[u8]>], args: &Args) -> Cmd {
    let bytes = keys.iter().map(|key| key.as_ref().len()).sum::<usize>();
    let bytes = name.len() + script.len() + bytes + args.bytes_len() + LARGEST_COUNT;
    let mut command = Cmd::with_capacity(3 + keys.len() + args.len(), bytes);
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    for arg in args.iter() {
        command.arg(arg);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;
    use crate::breaker::Breakers;
    use crate::link::Silent;

    #[tokio::test(start_paused = true)]
    async fn a_call_dropped_before_its_answer_is_reported_as_unanswered() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let events = Events::new(move |event| match *event {
            Event::Call {
                is_answered, took, ..
            } => seen.lock().unwrap().push((is_answered, took)),
            _ => unreachable!(),
        });
        let second = Duration::from_secs(1);
        let connection = Connection::over(Silent, 60 * second, Breakers::new(events));
        let args = Args::new();
        {
            let limits = Limits::for_test();
            let call = pin!(REFUND.run(&connection, &["key"], &args, limits));
            assert!(
                call.poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
            tokio::time::advance(second).await;
        }
        assert_eq!(*told.lock().unwrap(), [(false, second)]);
    }

    #[test]
    fn the_scripts_and_the_model_have_the_same_bounds() {
        let limits = include::read(LIMITS).unwrap();
        for line in lines(Bounds::SHIPPED) {
            assert!(limits.contains(&line), "{line}");
        }
    }
}
