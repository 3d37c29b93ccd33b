//! Any text may be a limiter's name or a user's key, and no two keys of one limiter share a key in
//! Redis.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redisson_rate_limiter::fuzzing;

fuzz_target!(|texts: (&str, &str, &str)| {
    let (prefix, one, other) = texts;
    fuzzing::name_keys(prefix, one, other);
});
