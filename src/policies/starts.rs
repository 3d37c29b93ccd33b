//! When a window, or a unit of time, begins.

use std::fmt;

use crate::error::{Result, require};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Starts {
    WithFirstRequest,
    AlignedToClock,
}

pub(super) const DAY: i64 = 24 * 60 * 60 * 1000;
/// The units of the clock, in ms, the largest first.
const UNITS: [i64; 4] = [DAY, 60 * 60 * 1000, 60 * 1000, 1000];

impl Starts {
    /// Refuses a length in ms that no unit of the clock fits into.
    pub(super) fn validate(self, length: i64, argument: &'static str) -> Result<()> {
        require(
            self == Self::WithFirstRequest || length % 1000 == 0,
            argument,
            "must be a whole number of seconds, minutes, hours or days",
        )
    }

    /// The unit of the clock at whose start a window of this length begins, both in ms; 0 if it
    /// begins with the first request.
    pub(super) fn unit(self, length: i64) -> i64 {
        let whole = |unit: &&i64| length % **unit == 0;
        match self {
            Self::WithFirstRequest => 0,
            Self::AlignedToClock => UNITS.iter().find(whole).copied().unwrap_or(0),
        }
    }

    /// When a window of this length, in ms, begins, if its first request arrives at `now`.
    pub(super) fn of(self, length: i64, now: i64) -> i64 {
        match self.unit(length) {
            0 => now,
            unit => now - now.rem_euclid(unit),
        }
    }
}

/// What a printed policy ends with.
impl fmt::Display for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WithFirstRequest => "",
            Self::AlignedToClock => ", aligned to the clock",
        })
    }
}
