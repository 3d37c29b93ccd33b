//! `FixedWindow`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::fmt;
use std::time::Duration;

use super::example::Example;
use super::starts::Starts;

/// Grants up to `limit` in each window. Windows do not overlap.
///
/// State: the string `key`, a counter that expires with its window. Around the boundary of two windows, up to twice the
/// limit can be granted within the length of a window; to prevent that, use a
/// [`SlidingWindowLog`](crate::SlidingWindowLog).
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
/// for _ in 0..100 {
///     assert!(limiter.check("rate:limit:123:/orders", 1).await?.is_granted());
/// }
/// tokio::time::advance(Duration::from_secs(20)).await;
/// let retry_after = limiter.check("rate:limit:123:/orders", 1).await?.retry_after().expect("denied");
/// assert_eq!(retry_after, Duration::from_secs(40));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: u32,
    window: Duration,
    starts: Starts,
    /// The windows' length, in ms, before the rule was changed; 0 where it was not.
    length_before: i64,
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
            length_before: 0,
        }
    }

    /// Starts a window at the beginning of the second, minute, hour or day (UTC) of its first request: the largest of
    /// these units that divides the window evenly. A window that is not a whole number of seconds is refused.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// assert!(FixedWindow::new(100, minute).aligned_to_clock().is_aligned_to_clock());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn aligned_to_clock(self) -> Self {
        Self {
            starts: Starts::AlignedToClock,
            ..self
        }
    }

    /// Whether windows are [aligned to the clock](Self::aligned_to_clock).
    #[must_use]
    pub fn is_aligned_to_clock(&self) -> bool {
        self.starts == Starts::AlignedToClock
    }

    /// What a window grants.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// A window's length.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }
}

impl Example for FixedWindow {
    fn example(limit: u32, window: Duration) -> Self {
        Self::new(limit, window)
    }
}

impl fmt::Display for FixedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fixed window: {} per {:?}{}",
            self.limit, self.window, self.starts
        )
    }
}
