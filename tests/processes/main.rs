//! Several processes of this crate on one limiter: exactly once, cancellation, and killed
//! processes.

mod child;
#[path = "../support/clients.rs"]
mod clients;
#[path = "../support/keys.rs"]
mod keys;
mod ledger;
mod parent;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/state.rs"]
mod state;
#[path = "../support/mod.rs"]
mod support;
mod work;

mod accounting;
mod killed;
mod rate_bound;
mod stopped;

use std::env;

/// How much each test does, in percent of the ordinary run: `PROCESSES_SCALE`, or 25.
fn scaled(number: u64) -> u64 {
    let percent: u64 = match env::var("PROCESSES_SCALE") {
        Ok(percent) => percent.parse().expect("PROCESSES_SCALE is a number"),
        Err(_) => 25,
    };
    (number * percent / 100).max(1)
}
