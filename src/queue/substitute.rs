//! How waiters are served while the store is away.

use std::sync::Arc;
use std::time::Duration;

use crate::grant::Grant;

/// How a waiter is served while the store is away.
#[derive(Clone)]
pub(crate) enum WhileAway {
    /// It fails once its call has.
    Fail,
    /// It waits for the store.
    Stay,
    /// It waits for the store or for this substitute.
    Ask(Arc<dyn Substitute>),
}

/// Grants permits in place of a store that is away.
pub(crate) trait Substitute: Send + Sync {
    /// Decides at once, under the queue's lock: it must not wait, nor call the queue.
    fn ask(&self, permits: u32) -> Substituted;

    /// Whether it grants this many permits at some time, as far as it knows.
    fn may_grant(&self, permits: u32) -> bool;

    /// Takes back a grant that it made.
    fn give_back(&self, grant: &Grant);
}

pub(crate) enum Substituted {
    Granted(Grant),
    /// Not now, but perhaps after this time.
    Later(Duration),
    /// Only the store can grant it.
    Never,
}

impl WhileAway {
    /// Whether the waiter keeps its place.
    pub(super) fn stays(&self) -> bool {
        !matches!(self, Self::Fail)
    }
}
