//! How many permits a limiter has, and after which time a taken one is available again.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::quota::Quota;

/// The largest rate: up to here Redis's Lua counts exactly.
pub(crate) const LARGEST_RATE: u64 = 1 << 53;

/// Who shares the permits of a limiter. Redisson may add types, so a `match` needs a wildcard arm.
///
/// ```
/// use redisson_rate_limiter::{Rate, RateType};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// assert_eq!(Rate::overall(5, second).rate_type(), RateType::Overall);
/// assert_eq!(Rate::per_client(5, second).rate_type(), RateType::PerClient);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RateType {
    /// All clients spend from one rate.
    #[doc(alias = "OVERALL")]
    Overall,
    /// Each client, identified by its id, has the whole rate for itself.
    #[doc(alias = "PER_CLIENT")]
    PerClient,
}

impl RateType {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Overall => Self::PerClient,
            Self::PerClient => Self::Overall,
        }
    }

    /// The number in the limiter's hash.
    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Overall => 0,
            Self::PerClient => 1,
        }
    }

    pub(crate) fn of_code(code: i64) -> Option<Self> {
        match code {
            0 => Some(Self::Overall),
            1 => Some(Self::PerClient),
            _ => None,
        }
    }
}

/// A number of permits in any time span of the length of the interval.
///
/// A permit that is taken at time T is available again at T + interval. A `Rate` is validated when
/// a limiter gets it.
///
/// ```
/// use redisson_rate_limiter::{Rate, RateType};
/// use std::time::Duration;
///
/// let rate = Rate::overall(5, Duration::from_secs(1)).keep_alive(Duration::from_secs(60));
/// assert_eq!(rate.permits(), 5);
/// assert_eq!(rate.interval(), Duration::from_secs(1));
/// assert_eq!(rate.rate_type(), RateType::Overall);
/// assert_eq!(rate.to_string(), "5 per 1s, keep alive 60s");
/// assert_eq!(Rate::per_client(5, Duration::from_millis(1500)).to_string(), "5 per 1.5s per client");
/// ```
#[doc(alias = "RateLimiterConfig")]
#[doc(alias = "RateLimiterArgs")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    rate_type: RateType,
    permits: u64,
    interval: Duration,
    keep_alive: Option<Duration>,
}

impl Rate {
    /// A rate that all clients share: `permits` (1 to 2^53) in each `interval` (whole milliseconds,
    /// at least 1).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Rate::overall(5, second).to_string(), "5 per 1s");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn overall(permits: u64, interval: Duration) -> Self {
        Self::new(RateType::Overall, permits, interval)
    }

    /// A rate that each client has for itself: `permits` (1 to 2^53) in each `interval` (whole
    /// milliseconds, at least 1).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Rate::per_client(5, second).to_string(), "5 per 1s per client");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn per_client(permits: u64, interval: Duration) -> Self {
        Self::new(RateType::PerClient, permits, interval)
    }

    pub(crate) fn new(rate_type: RateType, permits: u64, interval: Duration) -> Self {
        Self {
            rate_type,
            permits,
            interval,
            keep_alive: None,
        }
    }

    /// Makes the limiter expire once it had no request for `keep_alive` (whole milliseconds, not
    /// shorter than the interval).
    ///
    /// [`set_rate`](crate::RateLimiter::set_rate) with a rate without a keep alive leaves a time to
    /// live that the limiter has from an earlier keep alive, as Redisson does: no request renews it
    /// any more, and the limiter is gone when it ends.
    ///
    /// If requests set the rate of a limiter, as those of a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter) do, a keep alive that is longer than that of
    /// the rate stays. One that is shorter than the interval is raised to it, or, if the limiter
    /// had no keep alive, to its earlier interval: what was granted may count longer for another
    /// version of a service. A shorter keep alive applies once the limiter has expired.
    ///
    /// A waiter asks again when half of `keep_alive` has passed, at the latest, so that the limiter
    /// does not expire. If its request is late by the other half, the limiter may expire before it:
    /// calls then fail with
    /// [`Error::NotInitialized`](crate::Error::NotInitialized).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
    /// let rate = Rate::overall(5, Duration::from_secs(1)).keep_alive(Duration::from_secs(60));
    /// limiter.set_rate(rate).await?;
    /// limiter.acquire(1).await?;
    /// tokio::time::advance(Duration::from_millis(60_001)).await;
    /// assert!(!limiter.exists().await?);
    /// # Ok(()) }
    /// ```
    #[doc(alias = "keepAliveTime")]
    #[must_use]
    pub fn keep_alive(self, keep_alive: Duration) -> Self {
        Self {
            keep_alive: Some(keep_alive),
            ..self
        }
    }

    /// Who shares the permits.
    #[must_use]
    pub fn rate_type(&self) -> RateType {
        self.rate_type
    }

    /// The permits of one interval.
    #[must_use]
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The time after which a permit that was taken is available again.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The permits of one interval, and its length.
    #[must_use]
    pub fn quota(&self) -> Quota {
        Quota::new(self.permits, self.interval)
    }

    /// The time without a request after which the limiter expires; `None` if it does not.
    #[must_use]
    pub fn keep_alive_time(&self) -> Option<Duration> {
        self.keep_alive
    }

    /// Fails if a number is out of the range of those that can be stored.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        if !(1..=LARGEST_RATE).contains(&self.permits) {
            return Err(Error::InvalidArgument {
                argument: "permits",
                reason: "must be between 1 and 2^53",
            });
        }
        let interval = whole_millis(self.interval, "interval")?;
        if let Some(time) = self.keep_alive
            && whole_millis(time, "keep_alive")? < interval
        {
            return Err(Error::InvalidArgument {
                argument: "keep_alive",
                reason: "must not be shorter than the interval",
            });
        }
        Ok(())
    }
}

/// As in `5 per 1s`, `5 per 1s per client` and `5 per 1s, keep alive 60s`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.permits, self.interval)?;
        if self.rate_type == RateType::PerClient {
            f.write_str(" per client")?;
        }
        match self.keep_alive {
            Some(keep_alive) => write!(f, ", keep alive {keep_alive:?}"),
            None => Ok(()),
        }
    }
}

/// A duration as the whole milliseconds that Redis counts in, at least 1.
pub(crate) fn whole_millis(duration: Duration, argument: &'static str) -> Result<i64, Error> {
    match millis_from_zero(duration, argument)? {
        0 => Err(Error::InvalidArgument {
            argument,
            reason: "must be at least 1 ms",
        }),
        millis => Ok(millis),
    }
}

/// A duration as the whole milliseconds that Redis counts in, 0 included.
pub(crate) fn millis_from_zero(duration: Duration, argument: &'static str) -> Result<i64, Error> {
    let refuse = |reason| Err(Error::InvalidArgument { argument, reason });
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return refuse("must be a whole number of milliseconds");
    }
    match i64::try_from(duration.as_millis()) {
        // Added to a time of today it must stay an exact Lua number.
        Ok(millis) if millis <= 1 << 52 => Ok(millis),
        _ => refuse("must be at most 2^52 ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(rate: Rate) -> (&'static str, &'static str) {
        match rate.validate() {
            Err(Error::InvalidArgument { argument, reason }) => (argument, reason),
            other => panic!("{other:?}"),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_number_out_of_its_range_is_named() {
        assert_eq!(reason(Rate::overall(0, SECOND)).0, "permits");
        assert_eq!(reason(Rate::overall((1 << 53) + 1, SECOND)).0, "permits");
        assert_eq!(
            reason(Rate::overall(1, Duration::ZERO)),
            ("interval", "must be at least 1 ms")
        );
        assert_eq!(
            reason(Rate::overall(1, Duration::from_micros(1500))).0,
            "interval"
        );
        assert_eq!(reason(Rate::overall(1, Duration::MAX)).0, "interval");
        assert_eq!(
            reason(Rate::overall(1, SECOND).keep_alive(Duration::from_millis(999))),
            ("keep_alive", "must not be shorter than the interval")
        );
    }

    #[test]
    fn the_ends_of_the_ranges_are_valid() {
        let shortest = Rate::per_client(1, Duration::from_millis(1));
        let shortest = shortest.keep_alive(Duration::from_millis(1));
        assert!(shortest.validate().is_ok());
        assert!(Rate::overall(1 << 53, SECOND).validate().is_ok());
    }
}
