//! Faults of the network by the thousand: an acquire takes its permits once or not at all, what is given back is there
//! again, no window exceeds the rate, and no call takes longer than its response timeout.
//!
//! Each test makes its share of `FAULTS` faults, 10,000 by default, in rounds that run side by side. A failure names the
//! seed and the round; `SEED` repeats what is random in it.

mod callers;
mod decisions;
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
