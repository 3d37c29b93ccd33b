//! Permits that were taken.

use crate::permit::CallId;

/// Permits that were taken. [`refund`](crate::RateLimiter::refund) gives them back if a limiter with a [`Rate`](crate::Rate)
/// granted them; the other limiters do not keep track of single grants. Dropping a grant gives nothing back: its permits
/// count as used until their window has passed.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("orders:api");
/// limiter.set_rate(Rate::overall(5, Duration::from_secs(60))).await?;
/// let grant = limiter.check(3).await?.into_grant().expect("granted");
/// assert_eq!(grant.permits(), 3);
/// assert_eq!(limiter.refund(grant).await?, 3);
/// assert_eq!(limiter.available_permits().await?, 5);
/// # Ok(()) }
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// When it was made, in ms of the clock that scored it.
    pub(crate) score: i64,
    pub(crate) call_id: CallId,
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
            call_id: CallId::default(),
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
