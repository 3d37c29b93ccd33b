//! The Lua scripts and how one is run: by its hash, and by its source where the server does not know it.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

use crate::backend::redis::connection::Connection;

/// A script and the SHA-1 that Redis names it by.
pub(crate) struct Script(redis::Script, &'static str);

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {$(
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("../lua/window.lua"), "\n", include_str!(concat!("../lua/", $file))))
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

/// What several algorithms share, theirs, and the steps that ask them.
macro_rules! limiter_script {
    ($($file:literal),+) => {
        LazyLock::new(|| {
            Script::new(concat!(
                $(include_str!(concat!("../lua/", $file)), "\n",)+
                include_str!("../lua/limiters/decide.lua")
            ))
        })
    };
}

/// Each by itself, and all of them for a decision by several.
macro_rules! limiter_scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(crate) static $name: LazyLock<Script> =
            limiter_script!("limiters/shared.lua", $file);)*

        pub(crate) static SHARED_RATE: LazyLock<Script> =
            limiter_script!("window.lua", "limiters/shared.lua", "limiters/shared_rate.lua");

        pub(crate) static JOINT: LazyLock<Script> = limiter_script!(
            "window.lua",
            "limiters/shared.lua",
            "limiters/shared_rate.lua",
            $($file),*
        );
    };
}

limiter_scripts! {
    FIXED_WINDOW = "limiters/fixed_window.lua";
    SLIDING_LOG = "limiters/sliding_log.lua";
    SLIDING_WINDOW = "limiters/sliding_window.lua";
    TOKEN_BUCKET = "limiters/token_bucket.lua";
    QUOTA_BUCKET = "limiters/quota_bucket.lua";
    LEAKY_BUCKET = "limiters/leaky_bucket.lua";
    PENALTY_TOKEN_BUCKET = "limiters/penalty_token_bucket.lua";
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
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self(redis::Script::new(source), source)
    }

    /// One round trip where the server knows the script, two where it does not.
    pub(crate) async fn run(
        &self,
        connection: &dyn Connection,
        keys: &[impl AsRef<str> + Sync],
        args: &Args,
    ) -> RedisResult<Value> {
        let by_hash = command("EVALSHA", self.0.get_hash(), keys, args);
        match connection.send(&by_hash).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let by_source = command("EVAL", self.1, keys, args);
                connection.send(&by_source).await
            }
            other => other,
        }
    }
}

fn command(name: &str, script: &str, keys: &[impl AsRef<str> + Sync], args: &Args) -> Cmd {
    let mut command = Cmd::new();
    command.arg(name).arg(script).arg(keys.len());
    for key in keys {
        command.arg(key.as_ref());
    }
    for arg in &args.0 {
        command.arg(arg.as_slice());
    }
    command
}
