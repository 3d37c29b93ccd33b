//! `FixedWindow`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

use super::example::Example;
use super::starts::Starts;

/// Grants up to `limit` in each window. Windows do not overlap.
///
/// State: the string `key`, a counter that expires with its window. Around the boundary of two windows, up to twice the
/// limit can be granted within the length of a window; to prevent that, use a
/// [`SlidingWindowLog`](crate::SlidingWindowLog).
///
/// A limit that changes applies at once. A length that changes is that of the next window: the one that runs ends when it
/// would have ended.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"fixed_window","limit":100,"window_ms":60000,"aligned_to_clock":true}`.
/// `aligned_to_clock` may be left out.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
/// for _ in 0..100 {
///     assert!(limiter.check("rate:limit:123:/orders", 1).await?.is_granted());
/// }
/// tokio::time::advance(Duration::from_secs(20)).await;
/// let retry_after = limiter.check("rate:limit:123:/orders", 1).await?.retry_after().expect("denied");
/// assert_eq!(retry_after, Duration::from_secs(40));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: u32,
    window: Duration,
    starts: Starts,
}

impl FixedWindow {
    /// `limit` (at least 1) in each `window` (whole milliseconds, at least 1). A window begins with the first request after
    /// the end of the last one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let policy = FixedWindow::new(100, minute);
    /// assert_eq!(policy.limit(), 100);
    /// assert_eq!(policy.window(), minute);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit,
            window,
            starts: Starts::WithFirstRequest,
        }
    }
}

impl Example for FixedWindow {
    fn example(limit: u32, window: Duration) -> Self {
        Self::new(limit, window)
    }
}

numbers! {
    FixedWindow, "fixed window: {limit} per {window:?}{starts}";
    new {
        /// What a window grants.
        limit: u32 = limit,
        /// A window's length.
        window: Duration = window_ms,
    }
    with {}
    aligned_to_clock, is_aligned_to_clock = starts: "a window", "the window";
}
