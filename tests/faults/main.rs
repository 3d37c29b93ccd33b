//! Thousands of network faults: an acquire takes its permits once or not at all, what is given back
//! is available again, no window exceeds the rate, and no call takes longer than its response
//! timeout.
//!
//! Each test makes a part of `FAULTS` faults, 10,000 by default, in concurrent rounds. A failure
//! names the seed and the round; `SEED` repeats its random choices.

mod callers;
mod decisions;
#[path = "../support/every_policy.rs"]
mod every_policy;
mod fault;
#[path = "../support/keys.rs"]
mod keys;
mod lags;
#[path = "../processes/ledger.rs"]
mod ledger;
#[path = "../support/monitor_line.rs"]
mod monitor_line;
mod proxy;
#[path = "../support/resp.rs"]
mod resp;
mod round;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/mod.rs"]
mod support;
mod warnings;
mod windows;

mod acquires;
mod charges;
mod rate_bound;
