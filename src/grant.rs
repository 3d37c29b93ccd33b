//! Permits that were taken.

use crate::permit::Random;

/// Permits that were taken. [`refund`](crate::RateLimiter::refund) gives them back, if a limiter with a
/// [`Rate`](crate::Rate) granted them; other limiters do not know single grants. Dropping it gives nothing back: the
/// permits count as used until their window has passed.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// When it was made, in ms of the clock that scored it.
    pub(crate) score: i64,
    pub(crate) random: Random,
    pub(crate) permits: u32,
    pub(crate) origin: Origin,
}

/// Where a grant was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Store,
    /// The limiter that a failure policy uses in this process.
    Local,
    /// Nothing was taken anywhere.
    Nowhere,
}

impl Grant {
    /// A grant by a limiter that does not know single grants: a refund does not find it.
    pub(crate) fn forgotten(permits: u32) -> Self {
        Self {
            score: i64::MIN,
            random: Random::default(),
            permits,
            origin: Origin::Store,
        }
    }

    /// How many permits were taken.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.permits
    }
}
