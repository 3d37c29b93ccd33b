//! Any bytes may be a member of the permits: what reads as a grant is written as the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redisson_rate_limiter::fuzzing;

fuzz_target!(|member: &[u8]| fuzzing::read_member(member));
