//! Limiters in this process: the pure model behind a lock, and a clock. While the clock shows the
//! same millisecond, permits are taken without the lock, see [`fast_path`].
//!
//! The state of a policy's target stands beside its name, and the lock of its shard is the only
//! one. What has handles or takes part in a decision by several limiters is a limiter with a lock
//! of its own. The holder of a shard's lock may take a limiter's lock, but not the other way round.
//! A decision by several limiters first finds them all and then locks them in the order of their
//! names.
//!
//! Each module imports only from the lines below its own:
//!
//! ```layers
//! faults targets
//! client
//! client_limiter
//! store
//! shard
//! limiter
//! fast_path lock sweep
//! ```

mod client;
mod client_limiter;
mod fast_path;
#[cfg(test)]
mod fast_path_tests;
#[cfg(any(feature = "test-util", test))]
mod faults;
mod limiter;
mod lock;
mod shard;
mod store;
mod sweep;
mod targets;

pub(crate) use client::MemoryClient;
#[cfg(any(feature = "test-util", test))]
pub use faults::Faults;
#[cfg(any(feature = "test-util", test))]
pub(crate) use faults::FaultyStore;
#[cfg(test)]
pub(crate) use faults::Loss;
use limiter::{Held, StoredLimiter};
use shard::Slot;
pub use store::MemoryStore;
