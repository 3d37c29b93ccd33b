//! How long and how often everything is measured.

use std::time::Duration;

/// The extent of a run.
pub struct Plan {
    pub jvm_warm_up: Duration,
    /// How often each contender has its turn.
    pub rounds: usize,
    /// The same where contenders are compared most closely: a single caller, and many limiters.
    pub close_rounds: usize,
    /// The limiters' window; a turn goes on so long before it is measured, so that grants expire as
    /// others are made.
    pub window: Duration,
    /// How long a turn is measured.
    pub measured: Duration,
    /// The window of the limiter that the waiters stand before.
    pub waiting_window: Duration,
    /// Permits taken before the memory is looked at; what Redisson would need for as many as this
    /// crate is scaled.
    pub taken: u64,
    pub taken_by_redisson: u64,
    /// How long a turn in memory is.
    pub in_memory: Duration,
}

impl Plan {
    pub fn full() -> Self {
        Self {
            jvm_warm_up: Duration::from_secs(4),
            rounds: 5,
            close_rounds: 9,
            window: Duration::from_millis(200),
            measured: Duration::from_millis(500),
            waiting_window: Duration::from_secs(1),
            taken: 1_000_000,
            taken_by_redisson: 200_000,
            in_memory: Duration::from_millis(100),
        }
    }

    pub fn quick() -> Self {
        Self {
            jvm_warm_up: Duration::from_secs(1),
            rounds: 1,
            close_rounds: 3,
            window: Duration::from_millis(100),
            measured: Duration::from_millis(200),
            waiting_window: Duration::from_millis(250),
            taken: 100_000,
            taken_by_redisson: 20_000,
            in_memory: Duration::from_millis(20),
        }
    }
}
