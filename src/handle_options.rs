//! What a handle asks of its limiter's queue: its client's settings, unless it has its own.

use std::time::Duration;

use crate::failure_policy::FailurePolicy;

#[derive(Debug, Clone, Copy)]
pub(crate) struct HandleOptions {
    pub(crate) failure_policy: FailurePolicy,
    /// How long after an answer a denial may be repeated without asking the store. Zero: never.
    pub(crate) remember_denials: Duration,
    pub(crate) max_waiters: usize,
    /// Whether a timed wait is refused at once where it cannot be served in time.
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
