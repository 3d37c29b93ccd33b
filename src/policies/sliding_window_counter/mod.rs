//! `SlidingWindowCounter`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

use super::starts::Starts;

/// Grants up to `limit` in a window that consists of several periods and slides by one period at a
/// time. It approximates a [`SlidingWindowLog`](crate::SlidingWindowLog) with a counter per period
/// instead of a member per request.
///
/// All that a period counted leaves the window at once. So no time span of `window - period`
/// contains more than the limit; one of `window` can contain up to twice as much, at the end of a
/// period and the start of the one that replaces it. The shorter the period, the rarer this is.
/// Each decision reads the counters of all periods.
///
/// State: the string `{key}-st`, the start of the first period in ms, and for each period with
/// granted requests the string `{key}-E`, where `E` is its last millisecond. The string
/// `{key}-periods` holds the lengths that these periods have. The counters live for two windows and
/// 16 ms, and each new counter renews the other two for two windows. The names of the counters
/// follow from the stored start, so the script cannot declare them; they have the key's hash tag.
///
/// A new limit, window or period applies at once to the periods that are still stored, be it by
/// [`set_policy`](crate::PolicyLimiter::set_policy) or by a new version of the service: what was
/// counted in periods of another length counts until the last millisecond of each period leaves the
/// window. The start does not change. A decision reads up to 1,000 counters of other lengths; if
/// more can be in the window, only the newest count, an equal number of each length. That needs a
/// period that is at least a thousand times shorter than the window of another version beside it.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"sliding_window_counter","rate":"100/1m","period":"6s","aligned_to_clock":true}`.
/// `period` and `aligned_to_clock` may be left out.
///
/// ```
/// use redisson_rate_limiter::{RedissonClient, SlidingWindowCounter};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let (window, period) = (Duration::from_secs(60), Duration::from_secs(10));
/// let limiter = client.policy_limiter(SlidingWindowCounter::new(5, window).with_period(period))?;
/// assert!(limiter.check("user:123", 3).await?.is_granted());
/// tokio::time::advance(Duration::from_secs(15)).await;
/// assert!(limiter.check("user:123", 2).await?.is_granted());
/// let retry_after = limiter.check("user:123", 1).await?.retry_after().expect("denied");
/// // 60 s after the start the seventh period begins, and the first leaves.
/// assert_eq!(retry_after, Duration::from_millis(45_001));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlidingWindowCounter {
    limit: u32,
    window: Duration,
    period: Duration,
    starts: Starts,
}

impl SlidingWindowCounter {
    /// `limit` (at least 1) in a `window` (whole milliseconds, at least 1) of ten periods, the
    /// first of which begins with the first request.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let policy = SlidingWindowCounter::new(100, minute);
    /// assert_eq!(policy.limit(), 100);
    /// assert_eq!(policy.window(), minute);
    /// assert_eq!(policy.period(), minute / 10);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit,
            window,
            period: window / 10,
            starts: Starts::WithFirstRequest,
        }
    }

    /// Makes the window slide by this `period` (whole milliseconds, at least 1) at a time. The
    /// window must be 1 to 500 whole periods: a decision reads a counter for each.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(SlidingWindowCounter::new(100, minute).with_period(minute / 4).period(), minute / 4);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_period(self, period: Duration) -> Self {
        Self { period, ..self }
    }
}

numbers! {
    SlidingWindowCounter, "sliding window counter: {limit} per {window:?}, by {period:?}{starts}";
    new {
        /// The largest total cost granted in a window.
        limit: u32,
        /// The window's length.
        window: Duration,
    }
    with {
        /// By how much the window slides at a time.
        period: Duration = period by with_period,
    }
    aligned_to_clock, is_aligned_to_clock = starts: "the first period", "the window";
}
