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
    /// `None` if they become available later. It does not wait: a job that needs them plans ahead.
    ///
    /// The permits are taken at once. If there are too few, those that come back next are promised
    /// to this reservation: until then less than nothing is left, so that all who ask after it,
    /// Java services too, wait for what comes back later. It is made in front of callers who wait
    /// already: they hold nothing yet.
    ///
    /// The permits can be used for one interval of the rate, which the [`Reservation`] states. They
    /// count in the window until an interval after they were used; not used, until an interval
    /// after that time, unless they are given back. How many grants it takes until there are enough
    /// is read from 2,000 of them: if these hold too few, the time is that at which all permits in
    /// use are back.
    ///
    /// The [failure policy](crate::FailurePolicy) does not decide about reservations: without the
    /// store there are none.
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
    /// no whole number of milliseconds. [`Error::ExpiresTooSoon`](crate::Error::ExpiresTooSoon) if
    /// the limiter has a keep alive or a time to live that ends before the permits would count no
    /// longer.
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
/// One that is dropped without being used gives its permits back in the background, as other
/// cancelled requests do. A process that is killed holds them until they
/// [expire](Self::expires_at), and an interval longer in the window. A reservation needs no
/// connection to be used: an outage does not concern it. What [resets](RateLimiter::reset) or
/// deletes the limiter forgets reservations, as it forgets what is in use.
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

    /// When they can be used: the store's time, as late as it may be by this process's clock.
    #[must_use]
    pub fn usable_at(&self) -> Instant {
        self.reserved.usable_at
    }

    /// Until when they can be used: an interval later by the store's time, as early as it may be by
    /// this process's clock.
    #[must_use]
    pub fn expires_at(&self) -> Instant {
        self.reserved.expires_at
    }

    /// Waits until the permits can be used, and uses them. They count as used when this returns.
    /// The store is told in the background.
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
    /// [`Error::ReservationExpired`](crate::Error::ReservationExpired) if they were to be used
    /// earlier, also by the wall clock, or if that was set back,
    /// [`Error::Closed`](crate::Error::Closed) if the client is closed, also meanwhile,
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

    /// Keeps only so many permits, and returns how many came back: none if it holds no more. With 0
    /// it is cancelled.
    ///
    /// # Errors
    /// Those that [`RateLimiter`] lists. After an error the reservation has the permits that it is
    /// to keep; the others come back no later than without this.
    ///
    /// # Cancel safety
    /// A call dropped in flight may or may not have given them back: the reservation has the
    /// permits that it is to keep.
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

    /// So many of the permits, to refund. Without a span they are found at this score only: a call
    /// that comes when the reservation is settled gives nothing back.
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
