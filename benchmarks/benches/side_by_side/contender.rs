//! Who is measured over Redis.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    ThisCrate,
    /// With a new handle for each call, as a request handler has it that gets the name with the
    /// request.
    ThisCrateByName,
    /// Bare EVALSHA of this crate's script.
    OurScript,
    /// Bare EVALSHA of Redisson's script.
    RedissonScript,
    /// The sync API, one thread a caller.
    Redisson,
    RedissonAsync,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ThisCrate => "this crate",
            Self::ThisCrateByName => "this crate, a new handle each call",
            Self::OurScript => "EVALSHA, our script",
            Self::RedissonScript => "EVALSHA, Redisson's script",
            Self::Redisson => "Redisson 4.7.0, threads",
            Self::RedissonAsync => "Redisson 4.7.0, async",
        })
    }
}
