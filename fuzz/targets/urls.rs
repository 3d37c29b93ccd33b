//! Any text may be given as a URL.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redisson_rate_limiter::fuzzing;

fuzz_target!(|url: &str| fuzzing::read_url(url));
