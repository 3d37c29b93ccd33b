//! What leases of a policy's windows need of a store.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::{GivingBack, Task};
use crate::error::Result;
use crate::permit::CallId;
use crate::policies::answer::Answer;
use crate::policies::call::Call;

/// A store that counts the requests of fixed windows.
#[async_trait]
pub(crate) trait LeasedWindows: Send + Sync {
    /// Makes a call with one request, and returns its answer and the server's clock at that time.
    async fn take(&self, call: &Arc<Call>) -> Result<(Answer, i64)>;

    /// Gives permits back, and returns how many came back: 0 if their window is over. Permits of one id come back once.
    async fn give_back(&self, unused: &Unused) -> Result<u32>;

    /// The latest time at which a call that begins now is answered, or has failed.
    fn call_deadline(&self) -> Instant;

    /// Whether calls are answered, as far as is known.
    fn is_healthy(&self) -> bool;

    /// Runs a task that does not depend on a caller's runtime.
    fn run_in_background(&self, task: Task);

    /// The same for a task that may give permits back: see [`Store::given_back`](super::Store::given_back).
    fn give_back_in_background(&self, task: GivingBack);
}

/// What was leased of a window, and not used.
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, reason = "a store in memory leases nothing")
)]
#[derive(Debug)]
pub(crate) struct Unused {
    pub(crate) id: CallId,
    /// The target's name in the store.
    pub(crate) key: Arc<str>,
    /// When the window ends, in ms of the server's clock.
    pub(crate) ends: i64,
    /// Its length in ms.
    pub(crate) length: i64,
    pub(crate) permits: u32,
}
