//! RRateLimiter's algorithm as a pure model: state, time and request in, answer out. No server, no
//! clock, no waiting.
//!
//! It does in Rust what the scripts in `lua/` do, step by step. Property tests compare the two: the
//! same answers and the same state. The in-memory store is this model behind a lock.
//!
//! A limiter is a hash with its settings and a [`Pool`], for all clients or for each one: the
//! permits left and the grants. A permit taken at T is back at T + interval, inclusive. The
//! invariant is permits left + permits of all grants = rate. It also holds if the rate was lowered
//! below what is in use; then the permits left are below zero. Expired grants are removed, oldest
//! first, and their permits added to those left, as far as a request needs them and a few more. If
//! a peer's call or a lost key broke the invariant, [`reconcile`](Pool::reconcile) restores it
//! while the grants are few, like its namesake in the scripts.
//!
//! The path of an acquire is inlined, so that its settings and sums stay in registers: copying them
//! through memory would take as long as deciding.
//!
//! ```layers
//! acquire
//! expiry joint
//! rates
//! state
//! pool requests
//! acquired grants set_up
//! bounds by_score settings timed
//! ```

mod acquire;
mod acquired;
mod bounds;
mod by_score;
mod expiry;
mod grants;
mod joint;
#[cfg(test)]
mod lease_histories;
mod pool;
mod rates;
mod requests;
#[cfg(all(test, feature = "redis"))]
mod retry_in_tests;
mod set_up;
mod settings;
mod state;
mod timed;

#[cfg(feature = "redis")]
pub(crate) use acquire::Retry;
pub(crate) use acquire::{Acquire, Ahead};
pub(crate) use acquired::Acquired;
#[cfg(any(test, feature = "redis"))]
pub(crate) use acquired::Details;
pub(crate) use bounds::BOUNDS;
#[cfg(all(test, feature = "redis"))]
pub(crate) use bounds::Bounds;
pub(crate) use by_score::{ByScore, Scored};
pub(crate) use expiry::{Condition, Expiry};
pub(crate) use grants::Grants;
pub(crate) use joint::{Expired, Reading};
pub(crate) use pool::Pool;
#[cfg(all(test, feature = "redis"))]
pub(crate) use requests::Run;
pub(crate) use requests::{Requests, Share};
#[cfg(test)]
pub(crate) use set_up::any_existing;
pub(crate) use set_up::{Existing, SetUp};
pub(crate) use settings::{At, NotInitialized, Settings};
pub(crate) use state::{Settlement, Window};
pub(crate) use timed::Timed;
#[cfg(test)]
pub(crate) use timed::timed;
