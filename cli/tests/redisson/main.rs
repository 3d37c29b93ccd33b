//! Limiters that the real Redisson has damaged, in versions of five years: `doctor` finds what is
//! wrong and changes nothing, mends it with `--fix`, and Redisson goes on with exact numbers.

mod generations;
mod keys;
mod permits;
mod spoilt;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "the tests of the commands use the rest")]
mod support;
#[path = "../cli/watchdog.rs"]
#[allow(dead_code, reason = "the tests of the commands use the rest")]
mod watchdog;
