//! The Lua scripts and how one is run: by its hash, and by its source where the server does not know it.
//!
//! What the scripts share stands in front of each. One that asks for `window.lua` in a line of its own has it there:
//! then its functions are made only where the script comes by.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

use crate::backend::redis::connection::Connection;

/// A script and the SHA-1 that Redis names it by.
pub(crate) struct Script {
    hash: String,
    source: String,
}

const LIMITS: &str = include_str!("../lua/limits.lua");
const WINDOW: &str = include_str!("../lua/window.lua");
const WINDOW_HERE: &str = "  -- window.lua\n";

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(include_str!(concat!("../lua/", $file)))
        });
    )*};
}

scripts! {
    ACQUIRE = "acquire.lua";
    REFUND = "refund.lua";
    RELEASE = "release.lua";
    AVAILABLE_PERMITS = "available_permits.lua";
    TRY_SET_RATE = "try_set_rate.lua";
    SET_RATE = "set_rate.lua";
    UPDATE_RATE = "update_rate.lua";
    EXPIRE = "expire.lua";
    CLEAR_EXPIRE = "clear_expire.lua";
}

/// Arguments of a script, in its order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args(Vec<Vec<u8>>);

impl Args {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.push(bytes.to_vec());
        self
    }

    #[must_use]
    pub(crate) fn number(self, number: impl Into<i64>) -> Self {
        self.bytes(number.into().to_string().as_bytes())
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

    /// `1`, or the empty string.
    #[must_use]
    pub(crate) fn mark(self, mark: bool) -> Self {
        self.bytes(if mark { b"1" } else { b"" })
    }

    /// Leaves out the empty ones that no other follows, where the script takes that for the same.
    #[must_use]
    pub(crate) fn without_empty_end(mut self) -> Self {
        while self.0.pop_if(|arg| arg.is_empty()).is_some() {}
        self
    }
}

impl Script {
    fn new(own: &str) -> Self {
        let source = if own.contains(WINDOW_HERE) {
            format!("{LIMITS}\n{}", own.replace(WINDOW_HERE, WINDOW))
        } else {
            format!("{LIMITS}\n{WINDOW}\n{own}")
        };
        Self {
            hash: redis::Script::new(&source).get_hash().to_owned(),
            source,
        }
    }

    /// One round trip where the server knows the script, two where it does not.
    pub(crate) async fn run(
        &self,
        connection: &dyn Connection,
        keys: &[&str],
        args: &Args,
    ) -> RedisResult<Value> {
        let by_hash = command("EVALSHA", &self.hash, keys, args);
        match connection.send(&by_hash).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let by_source = command("EVAL", &self.source, keys, args);
                connection.send(&by_source).await
            }
            other => other,
        }
    }
}

fn command(name: &str, script: &str, keys: &[&str], args: &Args) -> Cmd {
    let mut command = Cmd::new();
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key);
    }
    for arg in &args.0 {
        command.arg(arg.as_slice());
    }
    command
}
