//! The Lua scripts and how one is run: by its hash, and by its source where the server does not know it.
//!
//! What the scripts share stands in front of each. One that asks for a file in a line of its own has it there: then its
//! functions are made only where the script comes by, and what two scripts do costs neither a function.

use std::io::Write;
use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};
use smallvec::SmallVec;

#[cfg(test)]
use crate::model::{BOUNDS, Bounds};
use crate::store::redis::connection::Connection;
use crate::store::redis::failure::Failure;
use crate::store::redis::retry::Limits;

/// A script and the SHA-1 that Redis names it by.
pub(crate) struct Script {
    hash: String,
    source: String,
}

const SHIPPED_LIMITS: &str = include_str!("../lua/limits.lua");

#[cfg(not(test))]
fn limits() -> &'static str {
    SHIPPED_LIMITS
}

/// With the bounds of unit tests, in which few grants are many.
#[cfg(test)]
fn limits() -> &'static str {
    static LIMITS: LazyLock<String> = LazyLock::new(|| {
        let bounds = lines(Bounds::SHIPPED).into_iter().zip(lines(BOUNDS));
        bounds.fold(SHIPPED_LIMITS.to_owned(), |text, (shipped, bound)| {
            text.replace(&shipped, &bound)
        })
    });
    &LIMITS
}

/// How `lua/limits.lua` states them.
#[cfg(test)]
fn lines(bounds: Bounds) -> [String; 4] {
    let Bounds {
        few,
        summed,
        spare,
        page,
    } = bounds;
    let bounds = [
        ("FEW", few),
        ("SUMMED", summed),
        ("SPARE", spare),
        ("PAGE", page),
    ];
    bounds.map(|(name, number)| format!("\nlocal {name} = {number} "))
}

const WINDOW: &str = include_str!("../lua/window.lua");
const ACQUIRE_STEPS: &str = include_str!("../lua/acquire_steps.lua");
const WINDOW_HERE: &str = "  -- window.lua\n";
const ACQUIRE_STEPS_HERE: &str = "-- acquire_steps.lua\n";

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::on_the_window(include_str!(concat!("../lua/", $file)))
        });
    )*};
}

scripts! {
    ACQUIRE = "acquire.lua";
    ACQUIRE_EACH = "acquire_each.lua";
    REFUND = "refund.lua";
    RECLAIM = "reclaim.lua";
    RELEASE = "release.lua";
    AVAILABLE_PERMITS = "available_permits.lua";
    TRY_SET_RATE = "try_set_rate.lua";
    SET_RATE = "set_rate.lua";
    UPDATE_RATE = "update_rate.lua";
    AUDIT_READ = "audit_read.lua";
    AUDIT_SETTLE = "audit_settle.lua";
    EXPIRE = "expire.lua";
    CLEAR_EXPIRE = "clear_expire.lua";
}

const SHARED: &str = include_str!("../lua/limiters/shared.lua");
const WHOLE: &str = include_str!("../lua/limiters/whole.lua");
const FINITE: &str = include_str!("../lua/limiters/finite.lua");
const ONE_TARGET: &str = include_str!("../lua/limiters/one_target.lua");
const GRANT_RUNS: &str = include_str!("../lua/limiters/grant_runs.lua");
const JOINT_CALL: &str = include_str!("../lua/limiters/joint.lua");
const SHARED_RATE_STEPS: &str = include_str!("../lua/limiters/shared_rate.lua");
const TIME: &str = include_str!("../lua/limiters/time.lua");
const LOCK: &str = include_str!("../lua/limiters/lock.lua");
const TIME_HERE: &str = "-- time.lua\n";
const LOCK_HERE: &str = "  -- lock.lua\n";
const GRANT_RUNS_HERE: &str = "-- grant_runs.lua\n";
const ALGORITHMS_HERE: &str = "-- algorithms\n";

/// Each by itself, with the function that reads its numbers, and all of them for a decision by several.
macro_rules! limiter_scripts {
    ($($name:ident = $file:literal, $reads:expr;)*) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            let steps = include_str!(concat!("../lua/limiters/", $file, ".lua"));
            let steps = steps.replace(GRANT_RUNS_HERE, GRANT_RUNS);
            Script::on_targets(&[limits(), SHARED, $reads, ONE_TARGET, &steps])
        });)*

        /// Several limiters of any kind; one of RRateLimiter's where it decides by itself.
        pub(crate) static JOINT: LazyLock<Script> = LazyLock::new(|| {
            let functions = [$(joint_function(
                $file,
                include_str!(concat!("../lua/limiters/", $file, ".lua")),
            )),*];
            let algorithms = [WINDOW, SHARED_RATE_STEPS, &functions.concat()].join("\n");
            let joint = JOINT_CALL.replace(ALGORITHMS_HERE, &algorithms);
            Script::on_targets(&[limits(), SHARED, WHOLE, FINITE, &joint])
        });
    };
}

limiter_scripts! {
    FIXED_WINDOW = "fixed_window", WHOLE;
    SLIDING_LOG = "sliding_log", "";
    SLIDING_WINDOW = "sliding_window", WHOLE;
    TOKEN_BUCKET = "token_bucket", FINITE;
    QUOTA_BUCKET = "quota_bucket", FINITE;
    LEAKY_BUCKET = "leaky_bucket", WHOLE;
    PENALTY_TOKEN_BUCKET = "penalty_token_bucket", WHOLE;
}

/// An algorithm's steps as a function that reads, and returns one that writes.
fn joint_function(name: &str, steps: &str) -> String {
    let decided = "return { limit = limit, room = room, finish = function(taken, denied_cost, denied_taken, more_denied)\n";
    let steps = steps.replace(GRANT_RUNS_HERE, decided);
    format!("algorithms.{name} = function(KEYS, numbers)\n{steps}end }}\nend\n")
}

/// Arguments of a script, in its order: one behind the other, so that a call makes no allocation for each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: SmallVec<[usize; 12]>,
}

impl Args {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self
    }

    #[must_use]
    pub(crate) fn number(mut self, number: impl Into<i64>) -> Self {
        // A write to memory does not fail.
        let _ = write!(self.bytes, "{}", number.into());
        self.ends.push(self.bytes.len());
        self
    }

    /// A number, or the empty string for none.
    #[must_use]
    pub(crate) fn optional(self, number: Option<i64>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.bytes(b""),
        }
    }

    #[must_use]
    pub(crate) fn flag(self, flag: bool) -> Self {
        self.bytes(if flag { b"1" } else { b"0" })
    }

    /// All of other arguments.
    #[must_use]
    pub(crate) fn all(self, others: &Self) -> Self {
        others.iter().fold(self, Self::bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// `1`, or the empty string.
    #[must_use]
    pub(crate) fn mark(self, mark: bool) -> Self {
        self.bytes(if mark { b"1" } else { b"" })
    }

    /// Leaves out the empty ones that no other follows, where the script takes that for the same.
    #[must_use]
    pub(crate) fn without_empty_end(mut self) -> Self {
        let last = self.bytes.len();
        let filled = self.ends.iter().take_while(|&&end| end < last).count();
        self.ends.truncate(filled + 1);
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let arg = &self.bytes[start..end];
            start = end;
            arg
        })
    }
}

impl Script {
    /// A script on one limiter.
    fn on_the_window(own: &str) -> Self {
        let own = own.replace(ACQUIRE_STEPS_HERE, ACQUIRE_STEPS);
        if own.contains(WINDOW_HERE) {
            Self::of(&[limits(), &own.replace(WINDOW_HERE, WINDOW)])
        } else {
            Self::of(&[limits(), WINDOW, &own])
        }
    }

    /// A script on the targets of policies.
    fn on_targets(parts: &[&str]) -> Self {
        let source = parts.join("\n");
        let source = source.replace(TIME_HERE, TIME).replace(LOCK_HERE, LOCK);
        Self::of(&[&source])
    }

    fn of(parts: &[&str]) -> Self {
        let source = parts.join("\n");
        Self {
            hash: redis::Script::new(&source).get_hash().to_owned(),
            source,
        }
    }

    /// One round trip where the server knows the script, two where it does not.
    pub(crate) async fn run(
        &self,
        connection: &Connection,
        keys: &[impl AsRef<[u8]> + Sync],
        args: &Args,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let by_hash = command("EVALSHA", &self.hash, keys, args);
        match connection.send(&by_hash, limits).await {
            Err(Failure::Refused(error))
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
            {
                let by_source = command("EVAL", &self.source, keys, args);
                connection.send(&by_source, limits).await
            }
            other => other,
        }
    }
}

/// Room for the number of keys as text.
const LARGEST_COUNT: usize = 8;

fn command(name: &str, script: &str, keys: &[impl AsRef<[u8]>], args: &Args) -> Cmd {
    let bytes = keys.iter().map(|key| key.as_ref().len()).sum::<usize>();
    let bytes = name.len() + script.len() + bytes + args.bytes.len() + LARGEST_COUNT;
    let mut command = Cmd::with_capacity(3 + keys.len() + args.ends.len(), bytes);
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
    use super::*;

    #[test]
    fn the_scripts_and_the_model_have_the_same_bounds() {
        for line in lines(Bounds::SHIPPED) {
            assert!(SHIPPED_LIMITS.contains(&line), "{line}");
        }
    }

    #[test]
    fn arguments_stand_in_their_order_and_empty_ones_at_the_end_are_left_out() {
        let args = Args::new()
            .number(-12)
            .optional(None)
            .flag(true)
            .bytes(b"x");
        let args = args.mark(false).optional(None);
        assert_eq!(args.iter().count(), 6);
        let args = args.without_empty_end();
        assert_eq!(
            args.iter().collect::<Vec<_>>(),
            [&b"-12"[..], b"", b"1", b"x"]
        );
        let none = Args::new().mark(false).without_empty_end();
        assert_eq!(none.iter().collect::<Vec<_>>(), [b""]);
    }
}
