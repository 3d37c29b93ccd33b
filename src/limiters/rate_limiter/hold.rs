//! Holding a limiter: no request is granted permits for some time.

use std::time::Duration;

use super::RateLimiter;
use crate::error::{Error, Result};
use crate::permit::new_call_id;
use crate::rate::whole_millis;

impl RateLimiter {
    /// Takes all permits for this time: until it has passed, no request of any client is granted,
    /// Java services on Redisson included. Use it when a third party answers `429` with
    /// `Retry-After: 30` although its quota is not used up.
    ///
    /// The time counts from when the server gets the call, and is rounded up to whole milliseconds,
    /// from 1 to 2^52. Of several holds the one that ends last counts. Requests that wait go on
    /// waiting, in their order, and [`available_permits`](Self::available_permits) is 0. Permits
    /// that were granted before may still be used, also those of [leases](Self::leased) and
    /// [reservations](Self::reserve).
    ///
    /// A limiter that expires ends its holds: one with a [keep alive](crate::Rate::keep_alive) or a
    /// time to live is held for that long at most. So do [`reset`](Self::reset),
    /// [`delete`](Self::delete) and [`set_rate`](Self::set_rate), with which an operator can end a
    /// hold early; [`update_rate`](Self::update_rate) with
    /// [`PermitsInUse::Keep`](crate::PermitsInUse::Keep) does not. A handle that [knows its
    /// rate](Self::with_rate) creates a limiter that is missing. For a rate [per
    /// client](crate::RateType::PerClient) only this client's permits are taken.
    ///
    /// In Redis a hold is a grant of 2^32-1 permits, so that the value is below zero.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let second = Duration::from_secs(1);
    /// let partner = RedissonClient::in_memory().rate_limiter("partner-api");
    /// let partner = partner.with_rate(Rate::overall(10, second))?;
    /// let start = Instant::now();
    /// partner.acquire(1).await?;
    /// partner.hold(30 * second).await?; // the partner has answered 429
    /// assert!(!partner.try_acquire(1).await?);
    /// partner.acquire(1).await?;
    /// assert_eq!(start.elapsed().as_secs(), 30);
    /// assert_eq!(partner.available_permits().await?, 9);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`](crate::Error::NotInitialized) if the limiter is missing, unless
    /// this handle [creates it](Self::with_rate).
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a time of 0 or above 2^52 ms,
    /// and for a limiter whose rate is above 2^32-1. The [`FailurePolicy`](crate::FailurePolicy)
    /// does not apply: while the store is unavailable, this fails.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have taken the permits.
    pub async fn hold(&self, time: Duration) -> Result<()> {
        let store = self.validated()?;
        let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let millis = whole_millis(Duration::from_millis(millis), "time")?;
        let mut holding = store.hold(millis, new_call_id()).await;
        if let (Err(Error::NotInitialized { .. }), Some(set_up)) = (&holding, self.set_up) {
            self.try_set_rate(set_up.settings.rate()).await?;
            holding = store.hold(millis, new_call_id()).await;
        }
        match holding? {
            true => Ok(()),
            false => Err(Error::InvalidArgument {
                argument: "rate",
                reason: "must be at most 2^32-1 for a limiter that is held",
            }),
        }
    }
}
