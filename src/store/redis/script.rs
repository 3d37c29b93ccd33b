//! The Lua scripts and how one is run: by its hash, and by its source where the server does not know it.

mod args;
pub(crate) mod include;
#[cfg(test)]
mod include_tests;

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, ServerErrorKind, Value};

pub(crate) use self::args::Args;
use super::connection::Connection;
use super::failure::Failure;
use super::retry::Limits;
#[cfg(test)]
use crate::window::{BOUNDS, Bounds};

/// A script and the SHA-1 that Redis names it by.
pub(crate) struct Script {
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
    REFUND = "refund.lua";
    RECLAIM = "reclaim.lua";
    RELEASE = "release.lua";
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

/// The script that decides a list of requests by one algorithm; of RRateLimiter's the one that decides one request by several.
pub(crate) fn of(algorithm: &str) -> &'static Script {
    policies!(script_of! { algorithm });
    &JOINT
}

#[cfg(not(test))]
fn read(file: &str) -> Option<Cow<'static, str>> {
    include::read(file)
}

/// With the bounds of unit tests, which are so small that few grants are many.
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
fn lines(bounds: Bounds) -> [String; 5] {
    let Bounds {
        always_summed,
        most_summed,
        always_removed,
        always_removed_jointly,
        most_read,
    } = bounds;
    let bounds = [
        ("ALWAYS_SUMMED", always_summed),
        ("MOST_SUMMED", most_summed),
        ("ALWAYS_REMOVED", always_removed),
        ("ALWAYS_REMOVED_JOINTLY", always_removed_jointly),
        ("MOST_READ", most_read),
    ];
    bounds.map(|(name, number)| format!("\nlocal {name} = {number} "))
}

impl Script {
    fn assemble(file: &str) -> Self {
        // The files are part of the program, and a unit test assembles every script.
        let source = include::assemble(file, read).unwrap_or_else(|error| panic!("{error}"));
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
    use super::*;

    #[test]
    fn the_scripts_and_the_model_have_the_same_bounds() {
        let limits = include::read(LIMITS).unwrap();
        for line in lines(Bounds::SHIPPED) {
            assert!(limits.contains(&line), "{line}");
        }
    }
}
