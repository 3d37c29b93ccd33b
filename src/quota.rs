//! How much a limiter grants, and in which time.

use std::fmt;
use std::time::Duration;

/// How much a target has at most, and the time in which all of it comes back: what the header field
/// `RateLimit-Policy` states as `q` and `w`. From [`Policy::quota`](crate::Policy::quota) and
/// [`Rate::quota`](crate::Rate::quota); each [`Decision`](crate::Decision) has the numbers by which
/// it was made.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, Policy, Rate, TokenBucket};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// assert_eq!(FixedWindow::new(100, minute).quota().to_string(), "100 per 60s");
/// assert_eq!(Rate::overall(100, minute).quota().to_string(), "100 per 60s");
/// // A bucket: its capacity, and the time in which an empty one fills.
/// let quota = TokenBucket::per_second(10).with_capacity(25).quota();
/// assert_eq!((quota.limit, quota.window), (25, Duration::from_millis(2_500)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Quota {
    /// The most that a target has: the permits of a rate, the limit of a window, the capacity of a
    /// bucket. It is also the largest cost that can be granted.
    pub limit: u64,
    /// The time in which all of it comes back, once all of it is taken: the interval of a rate, the
    /// length of a window, the time in which an empty bucket fills.
    pub window: Duration,
}

impl Quota {
    /// Up to `limit`, all of which comes back in `window`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Quota::new(5, Duration::from_secs(1)).to_string(), "5 per 1s");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self { limit, window }
    }
}

/// As in `100 per 60s`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.limit, self.window)
    }
}
