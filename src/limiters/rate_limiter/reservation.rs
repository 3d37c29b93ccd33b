//! Permits that were reserved for later.

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::RateLimiter;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::leases::Reserved;
use crate::rate::millis_from_zero;
use crate::window::Settlement;

impl RateLimiter {
    /// Reserves permits that become available within this time, and returns when they can be used;
    /// `None` if they become available later. It does not wait, so that a job can plan ahead.
    ///
    /// The permits are taken at once. If too few are available, the reservation gets those that
    /// come back next: until then the number of permits left is below zero, so that later requests,
    /// those of Java services too, wait for permits that come back afterwards. A reservation goes
    /// ahead of callers that already wait, because they hold no permits yet.
    ///
    /// The permits can be used for one interval of the rate, which the [`Reservation`] states. They
    /// count in the window until an interval after their use, or, if they are not used, until an
    /// interval after that time, unless they are given back. To find when enough permits come back,
    /// a call reads up to 2,000 grants: if these hold too few, the permits can be used when all
    /// permits in use are back.
    ///
    /// The [failure policy](crate::FailurePolicy) does not apply to reservations: while the store
    /// is unavailable, this fails.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("reports");
    /// let second = Duration::from_secs(1);
    /// limiter.set_rate(Rate::overall(10, 60 * second)).await?;
    /// limiter.acquire(8).await?;
    /// let start = Instant::now();
    ///
    /// assert!(limiter.reserve(5, 30 * second).await?.is_none()); // they are back in a minute
    /// let reservation = limiter.reserve(5, 60 * second).await?.expect("within a minute");
    /// assert_eq!(reservation.usable_at(), start + 60 * second);
    /// assert_eq!(reservation.expires_at(), start + 120 * second);
    /// assert!(!limiter.try_acquire(1).await?); // the two that were left are part of it
    ///
    /// let grant = reservation.ready().await?; // waits
    /// assert_eq!(start.elapsed(), 60 * second);
    /// assert_eq!(grant.permits(), 5);
    /// assert_eq!(limiter.available_permits().await?, 5);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotInitialized`](crate::Error::NotInitialized),
    /// [`Error::ExceedsLimit`](crate::Error::ExceedsLimit).
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for 0 permits, or a time that is
    /// not a whole number of milliseconds. [`Error::ExpiresTooSoon`](crate::Error::ExpiresTooSoon)
    /// if the limiter has a keep alive or a time to live that ends while the permits would still
    /// count.
    ///
    /// # Cancel safety
    /// Dropping the future reserves nothing: what a call in flight takes goes back.
    pub async fn reserve(&self, permits: u32, within: Duration) -> Result<Option<Reservation>> {
        let reported = self.reported(permits);
        let queue_time = reported.queue_time();
        let reserving = async {
            let within = millis_from_zero(within, "within")?;
            let queue = self.requested(permits)?;
            queue_time.ends_now();
            let policy = self.options.policy();
            queue.reserve(permits, within, self.set_up, policy).await
        };
        let reserved = reported.ended(reserving.await)?;
        Ok(reserved.map(|reserved| Reservation {
            limiter: self.clone().without_leases(),
            reserved,
        }))
    }
}

/// Permits that were [reserved](RateLimiter::reserve) for later.
///
/// A reservation that is dropped without being used gives its permits back in the background, as
/// other cancelled requests do. If its process is killed, the permits stay reserved until they
/// [expire](Self::expires_at), and count in the window for an interval longer. A reservation can be
/// used during an outage, because its use needs no connection. What [resets](RateLimiter::reset) or
/// deletes the limiter forgets reservations, as it forgets the permits in use.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let limiter = RedissonClient::in_memory().rate_limiter("reports");
/// limiter.set_rate(Rate::overall(10, Duration::from_secs(60))).await?;
/// let mut reservation = limiter.reserve(6, Duration::ZERO).await?.expect("there are ten");
/// assert_eq!(reservation.shrink(4).await?, 2); // the job is smaller
/// assert_eq!(reservation.permits(), 4);
/// drop(reservation); // the job is not needed
/// assert_eq!(limiter.available_permits().await?, 10);
/// # Ok(()) }
/// ```
#[must_use = "a reservation that is dropped gives its permits back"]
pub struct Reservation {
    limiter: RateLimiter,
    reserved: Reserved,
}

impl Reservation {
    /// How many permits are reserved.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.reserved.grant.permits
    }

    /// The time from which the permits can be used: the latest that the store's time can be by this
    /// process's clock.
    #[must_use]
    pub fn usable_at(&self) -> Instant {
        self.reserved.usable_at
    }

    /// The time until which the permits can be used, an interval later: the earliest that the
    /// store's time can be by this process's clock.
    #[must_use]
    pub fn expires_at(&self) -> Instant {
        self.reserved.expires_at
    }

    /// Waits until the permits can be used, and uses them. They count as used when this returns.
    /// The call to the store is made in the background.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().rate_limiter("reports");
    /// let second = Duration::from_secs(1);
    /// limiter.set_rate(Rate::overall(1, 60 * second)).await?;
    /// let reservation = limiter.reserve(1, second).await?.expect("there is one");
    /// tokio::time::sleep(61 * second).await;
    /// assert!(matches!(reservation.ready().await, Err(Error::ReservationExpired { .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReservationExpired`](crate::Error::ReservationExpired) if the permits have expired,
    /// by the monotonic clock or by the wall clock, or if the wall clock was set back,
    /// [`Error::Closed`](crate::Error::Closed) if the client is closed before or during the wait,
    /// [`Error::NoRuntime`](crate::Error::NoRuntime). After an error the permits go back.
    ///
    /// # Cancel safety
    /// Dropping the future gives the permits back.
    pub async fn ready(self) -> Result<Grant> {
        Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let Self { limiter, reserved } = self;
        let usable_at = reserved.usable_at;
        let pending = reserved.until_closed();
        tokio::select! {
            biased;
            () = limiter.queue.client.closed() => return Err(Error::Closed),
            () = sleep_until(usable_at) => {}
        }
        let mut reserved = pending.take().ok_or(Error::Closed)?;
        let early = reserved.left();
        if early == 0 {
            let name = limiter.name().to_owned();
            return Err(Error::ReservationExpired { name });
        }
        let (id, score, used) = {
            let grant = &reserved.grant;
            (grant.call_id, grant.score, grant.permits)
        };
        reserved.settle(Settlement { used, early });
        Ok(Grant::new(score, id, used).with_span(early))
    }

    /// Keeps only this many permits, and returns how many came back: 0 if the reservation holds no
    /// more. With 0 it is cancelled.
    ///
    /// # Errors
    /// Those that [`RateLimiter`] lists. After an error the reservation still holds only the
    /// permits to keep; the others come back no later than without this call.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have given the others back; the reservation holds
    /// only the permits to keep.
    pub async fn shrink(&mut self, permits: u32) -> Result<u32> {
        let grant = &mut self.reserved.grant;
        let excess = grant.permits.saturating_sub(permits);
        if excess == 0 {
            return Ok(0);
        }
        grant.permits = permits.min(grant.permits);
        let excess = self.part(excess);
        self.limiter.refund(excess).await
    }

    /// Gives the permits back, and returns how many came back.
    ///
    /// # Errors
    /// Those that [`RateLimiter`] lists. After an error the permits go back in the background, as
    /// those of a reservation that is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future gives the permits back.
    pub async fn cancel(mut self) -> Result<u32> {
        let back = self.limiter.refund(self.part(self.permits())).await?;
        self.reserved.grant.permits = 0;
        Ok(back)
    }

    /// This many of the permits, as a grant to refund. Without a span the store looks for them only
    /// at this score, so a refund after the reservation was settled gives nothing back.
    fn part(&self, permits: u32) -> Grant {
        let grant = &self.reserved.grant;
        Grant::new(grant.score, grant.call_id, permits)
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("limiter", &self.limiter.name())
            .field("permits", &self.permits())
            .field("usable_at", &self.usable_at())
            .field("expires_at", &self.expires_at())
            .finish()
    }
}
