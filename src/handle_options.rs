//! The options of a handle: those of its client, unless it has its own.

use std::time::Duration;

use crate::failure_policy::FailurePolicy;

#[derive(Debug, Clone, Copy)]
pub(crate) struct HandleOptions {
    pub(crate) failure_policy: FailurePolicy,
    /// How long after an answer a denial may be repeated without asking the store. Zero: never.
    pub(crate) remember_denials: Duration,
    pub(crate) max_waiters: usize,
    /// Whether a timed wait that cannot be served in time is refused at once.
    pub(crate) fail_fast: bool,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self {
            failure_policy: FailurePolicy::Error,
            remember_denials: Duration::ZERO,
            max_waiters: usize::MAX,
            fail_fast: false,
        }
    }
}
