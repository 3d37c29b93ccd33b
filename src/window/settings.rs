//! A limiter's settings, and the clocks by which they are applied.

use std::time::Duration;

use crate::error::Result;
use crate::quota::Quota;
use crate::rate::{Rate, RateType};

/// The two clocks of a call, in ms since the epoch: `now` scores grants, keys expire by `server`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) now: i64,
    pub(crate) server: i64,
}

/// The limiter has no settings, so a step did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotInitialized;

/// The fields of the hash: times are in ms, and a `keep_alive` of 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    pub(crate) rate: i64,
    pub(crate) interval: i64,
    pub(crate) rate_type: RateType,
    pub(crate) keep_alive: i64,
}

impl Settings {
    /// Those of a rate. Fails if one is out of the range of those that can be stored.
    pub(crate) fn valid(rate: Rate) -> Result<Self> {
        rate.validate()?;
        Ok(Self::of(rate))
    }

    /// Those of a limiter with this rate, which may be out of its range, such as a stored 0.
    pub(crate) fn of(rate: Rate) -> Self {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        Self {
            rate: i64::try_from(rate.permits()).unwrap_or(i64::MAX),
            interval: millis(rate.interval()),
            rate_type: rate.rate_type(),
            keep_alive: rate.keep_alive_time().map_or(0, millis),
        }
    }

    pub(crate) fn rate(self) -> Rate {
        let Quota { limit, window } = self.quota();
        let rate = Rate::new(self.rate_type, limit, window);
        match self.keep_alive {
            0 => rate,
            time => rate.keep_alive(Duration::from_millis(time.unsigned_abs())),
        }
    }

    pub(crate) fn quota(self) -> Quota {
        let interval = Duration::from_millis(self.interval.unsigned_abs());
        Quota::new(self.rate.unsigned_abs(), interval)
    }
}
