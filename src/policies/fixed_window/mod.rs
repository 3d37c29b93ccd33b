//! `FixedWindow`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod calendar;
#[cfg(feature = "serde")]
mod fields;
mod model;

use std::fmt;
use std::time::Duration;

use super::starts::Starts;
use crate::clock::millis;
use calendar::{Calendar, Unit};

/// Grants up to `limit` in each window. Windows do not overlap.
///
/// State: the string `key`, a counter that expires with its window. Around the boundary of two
/// windows, up to twice the limit can be granted within the length of a window; to prevent that,
/// use a [`SlidingWindowLog`](crate::SlidingWindowLog).
///
/// A limit that changes applies at once. A length that changes is that of the next window: the one
/// that runs ends when it would have ended.
///
/// Quotas that follow the calendar, such as 1,000 a month, come from
/// [`calendar_month`](Self::calendar_month) and the like, in UTC or at [another
/// offset](Self::with_utc_offset_minutes).
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"fixed_window","rate":"100/1m","aligned_to_clock":true}`, or
/// `{"algorithm":"fixed_window","rate":"1000/month","utc_offset":"+09:00"}`, where the
/// calendar is of each `hour`, `day`, `week`, `month` or `year`. `aligned_to_clock` and
/// `utc_offset` may be left out.
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
    /// The longest of the calendar's.
    window: Duration,
    starts: Starts,
    calendar: Option<Calendar>,
}

impl FixedWindow {
    /// `limit` (at least 1) in each `window` (whole milliseconds, at least 1). A window begins with
    /// the first request after the end of the last one.
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
            calendar: None,
        }
    }

    fn by_calendar(limit: u32, unit: Unit) -> Self {
        Self {
            limit,
            window: millis(unit.longest()),
            starts: Starts::WithFirstRequest,
            calendar: Some(Calendar {
                unit,
                offset_minutes: 0,
            }),
        }
    }

    /// `limit` (at least 1) in each hour of the calendar.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// assert_eq!(FixedWindow::calendar_hour(100).to_string(), "fixed window: 100 per calendar hour");
    /// ```
    #[must_use]
    pub fn calendar_hour(limit: u32) -> Self {
        Self::by_calendar(limit, Unit::Hour)
    }

    /// `limit` (at least 1) in each day, from midnight to midnight.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let policy = FixedWindow::calendar_day(100).with_utc_offset_minutes(-210);
    /// assert_eq!(policy.to_string(), "fixed window: 100 per calendar day, UTC-03:30");
    /// ```
    #[must_use]
    pub fn calendar_day(limit: u32) -> Self {
        Self::by_calendar(limit, Unit::Day)
    }

    /// `limit` (at least 1) in each week, which begins on Monday (ISO 8601).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// let week = Duration::from_secs(7 * 86_400);
    /// assert_eq!(FixedWindow::calendar_week(100).window(), week);
    /// ```
    #[must_use]
    pub fn calendar_week(limit: u32) -> Self {
        Self::by_calendar(limit, Unit::Week)
    }

    /// `limit` (at least 1) in each month.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::calendar_month(1_000))?;
    /// let decision = limiter.check("customer:1", 1).await?;
    /// assert_eq!(decision.remaining(), 999);
    /// let day = Duration::from_secs(86_400);
    /// assert!(decision.reset() <= decision.window());
    /// assert!((28 * day..=31 * day).contains(&decision.window())); // of this month
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn calendar_month(limit: u32) -> Self {
        Self::by_calendar(limit, Unit::Month)
    }

    /// `limit` (at least 1) in each year.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// assert_eq!(FixedWindow::calendar_year(5).to_string(), "fixed window: 5 per calendar year");
    /// ```
    #[must_use]
    pub fn calendar_year(limit: u32) -> Self {
        Self::by_calendar(limit, Unit::Year)
    }

    /// Makes the windows of the calendar begin at midnight where clocks are `minutes` ahead of UTC:
    /// 540 for +09:00. The offset must be less than a day. Ignored for other windows.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let in_tokyo = FixedWindow::calendar_month(1_000).with_utc_offset_minutes(9 * 60);
    /// assert_eq!(in_tokyo.to_string(), "fixed window: 1000 per calendar month, UTC+09:00");
    ///
    /// let in_no_place = FixedWindow::calendar_month(1_000).with_utc_offset_minutes(24 * 60);
    /// let refused = RedissonClient::in_memory().policy_limiter(in_no_place);
    /// assert!(matches!(refused, Err(Error::InvalidArgument { argument: "utc_offset_minutes", .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_utc_offset_minutes(self, minutes: i32) -> Self {
        let calendar = self.calendar.map(|calendar| Calendar {
            offset_minutes: minutes,
            ..calendar
        });
        Self { calendar, ..self }
    }

    /// Starts a window at the beginning of the second, minute, hour or day (UTC) of its first
    /// request: the largest of these units that divides the window evenly. One that is not a whole
    /// number of seconds is refused. Windows of the calendar are aligned to it already.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// let policy = FixedWindow::new(100, Duration::from_secs(60)).aligned_to_clock();
    /// assert!(policy.is_aligned_to_clock());
    /// ```
    #[must_use]
    pub fn aligned_to_clock(self) -> Self {
        Self {
            starts: Starts::AlignedToClock,
            ..self
        }
    }

    /// Whether a window starts [aligned to the clock](Self::aligned_to_clock).
    #[must_use]
    pub fn is_aligned_to_clock(&self) -> bool {
        self.starts == Starts::AlignedToClock
    }

    /// The largest total cost granted in a window.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The length of a window; for windows of the calendar, the longest length.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }
}

impl fmt::Display for FixedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            window,
            starts,
            calendar,
        } = self;
        match calendar {
            Some(calendar) => write!(f, "fixed window: {limit} per {calendar}"),
            None => write!(f, "fixed window: {limit} per {window:?}{starts}"),
        }
    }
}
