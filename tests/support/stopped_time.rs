//! Tokio's time stands still, even while waiting for a server.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use redisson_rate_limiter::RateLimiter;
use tokio::task::{spawn_blocking, yield_now};

/// Far more than anything may take that needs no time on the test's clocks, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(600);

/// Tokio advances paused time when all tasks wait, unless a blocking task runs. This keeps one
/// running until it is dropped.
pub struct StoppedTime {
    // Never read: dropping it ends the blocking task.
    _end: mpsc::Sender<()>,
}

impl StoppedTime {
    pub fn begin() -> Self {
        let (end, ended) = mpsc::channel();
        // After the limit, time moves on, so that a test that hangs fails.
        spawn_blocking(move || ended.recv_timeout(LIMIT));
        Self { _end: end }
    }

    /// Stops the time of a runtime on which it passes.
    pub fn stop() -> Self {
        tokio::time::pause();
        Self::begin()
    }

    /// Lets time pass again.
    pub fn resume(self) {
        tokio::time::resume();
    }
}

/// Awaits a future that needs no time to pass.
pub async fn at_once<T>(future: impl Future<Output = T>) -> T {
    let start = tokio::time::Instant::now();
    let answer = future.await;
    assert_eq!(start.elapsed(), Duration::ZERO, "it waited");
    answer
}

/// Waits for a condition that needs no time to pass.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < LIMIT, "{what}");
        yield_now().await;
    }
}

/// Polls all tasks until none makes progress without time passing: the store has answered the
/// requests sent so far.
pub async fn run_until_stalled(limiter: &RateLimiter) {
    for _ in 0..5 {
        limiter.exists().await.unwrap(); // answered after the requests before it
        for _ in 0..20 {
            yield_now().await;
        }
    }
}
