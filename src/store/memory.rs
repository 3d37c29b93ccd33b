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
//! client_limiter
//! client
//! store
//! shard
//! limiter
//! fast_path lock
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
mod targets;

use std::sync::Arc;

use tokio::time::Instant;

use super::{LimiterStore, Store};
use crate::box_future::BoxFuture;
use crate::error::Result;
use crate::keys::Keys;
use crate::policies::call::{Answers, Call};
pub(crate) use client::MemoryClient;
use client_limiter::MemoryLimiter;
#[cfg(any(feature = "test-util", test))]
pub use faults::Faults;
#[cfg(any(feature = "test-util", test))]
pub(crate) use faults::FaultyStore;
#[cfg(test)]
pub(crate) use faults::Loss;
use limiter::{Held, StoredLimiter};
use shard::Slot;
pub use store::MemoryStore;

impl Store for MemoryClient {
    fn is_cluster(&self) -> bool {
        false
    }

    fn limiter(&self, keys: Arc<Keys>) -> Arc<dyn LimiterStore> {
        Arc::new(MemoryLimiter::new(self, keys))
    }

    fn check<'a>(
        &'a self,
        call: &'a Arc<Call>,
        _deadline: Instant,
    ) -> BoxFuture<'a, Result<Answers>> {
        Box::pin(async move { self.check_call(call) })
    }

    fn undo<'a>(&'a self, call: &'a Arc<Call>, _deadline: Instant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(async move { self.undo_call(call) })
    }

    fn in_memory(&self) -> Option<&MemoryClient> {
        Some(self)
    }

    fn call_deadline(&self) -> Instant {
        Instant::now()
    }
}
