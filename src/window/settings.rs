//! A limiter's settings, and the clocks by which they are applied.

use std::time::Duration;

use crate::quota::Quota;
use crate::rate::{Rate, RateType, ValidRate};

/// The two clocks of a call, in ms since the epoch: `now` scores grants, keys expire by `server`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) now: i64,
    pub(crate) server: i64,
}

/// The limiter has no settings, so a step did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotInitialized;

/// The fields of the hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    pub(crate) rate: i64,
    pub(crate) interval: i64,
    pub(crate) rate_type: RateType,
    pub(crate) keep_alive: i64,
}

impl Settings {
    pub(crate) fn quota(self) -> Quota {
        let interval = Duration::from_millis(self.interval.unsigned_abs());
        Quota::new(self.rate.unsigned_abs(), interval)
    }

    pub(crate) fn rate(self) -> Rate {
        Rate::from_stored(
            self.rate_type,
            self.rate.unsigned_abs(),
            self.interval.unsigned_abs(),
            self.keep_alive.unsigned_abs(),
        )
    }

    /// The settings of a limiter with this rate, which may be out of its range, such as a stored 0.
    pub(crate) fn of_stored(rate: Rate) -> Self {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self {
            rate: i64::try_from(rate.permits()).unwrap_or(i64::MAX),
            interval: millis(rate.interval()),
            rate_type: rate.rate_type(),
            keep_alive: rate.keep_alive_time().map_or(0, millis),
        }
    }
}

impl From<ValidRate> for Settings {
    fn from(rate: ValidRate) -> Self {
        Self {
            rate: rate.permits,
            interval: rate.interval,
            rate_type: rate.rate_type,
            keep_alive: rate.keep_alive,
        }
    }
}
