//! The clock that scores the grants.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The clock that decides when a permit was taken and when it comes back.
///
/// All processes that share a limiter should use clocks that agree. The default is the server's
/// clock, which they share.
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let client = RedissonClient::builder().clock(Clock::from_fn(|| 0)).in_memory(&MemoryStore::new());
/// let limiter = client.rate_limiter("orders");
/// limiter.set_rate(Rate::overall(1, Duration::from_secs(1))).await?;
/// assert!(limiter.try_acquire(1).await?);
/// assert!(!limiter.try_acquire(1).await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Clock(Source);

#[derive(Clone, Default)]
enum Source {
    #[default]
    Server,
    System,
    Passed(Arc<dyn Fn() -> i64 + Send + Sync>),
}

/// Longer than any wait, and short enough that each clock can show the time at its end.
pub(crate) const LATE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A duration of this many ms; zero if they are negative.
#[inline]
pub(crate) fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}

/// `duration` after `start`, or a time so late that nobody waits for it.
pub(crate) fn after(start: Instant, duration: Duration) -> Instant {
    start + duration.min(LATE)
}

/// No clock is further than this from the epoch, in ms: with an interval added it is still an exact
/// Lua number.
const FURTHEST: i64 = 1 << 52;

impl Clock {
    /// The clock of the store: Redis's `TIME`, read in the script. In memory it is tokio's clock,
    /// so that paused time applies.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().clock(Clock::server()).in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("orders");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(1))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// tokio::time::advance(Duration::from_secs(1)).await; // tokio's paused time
    /// assert!(limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn server() -> Self {
        Self(Source::Server)
    }

    /// This machine's clock, as Redisson uses it. A client whose clock is ahead makes the others
    /// wait longer, and is granted more than the rate.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::builder().clock(Clock::system()).in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("orders");
    /// limiter.set_rate(Rate::overall(1, Duration::from_secs(3600))).await?;
    /// assert!(limiter.try_acquire(1).await?);
    /// tokio::time::advance(Duration::from_secs(3600)).await; // the system's clock does not move
    /// assert!(!limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock of the caller's, in milliseconds since the epoch, for tests and simulations. Times
    /// are clamped to -2^52 to 2^52 ms.
    ///
    /// ```
    /// use redisson_rate_limiter::{Clock, MemoryStore, Rate, RedissonClient};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicI64, Ordering};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let now = Arc::new(AtomicI64::new(1_000));
    /// let clock = Clock::from_fn({
    ///     let now = Arc::clone(&now);
    ///     move || now.load(Ordering::Relaxed)
    /// });
    /// let client = RedissonClient::builder().clock(clock).in_memory(&MemoryStore::new());
    /// let limiter = client.rate_limiter("worked example");
    /// limiter.try_set_rate(Rate::overall(5, Duration::from_millis(1_000))).await?;
    /// assert!(limiter.try_acquire(5).await?);
    /// now.store(1_999, Ordering::Relaxed);
    /// assert!(!limiter.try_acquire(1).await?);
    /// now.store(2_000, Ordering::Relaxed);
    /// assert!(limiter.try_acquire(1).await?);
    /// # Ok(()) }
    /// ```
    pub fn from_fn(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Source::Passed(Arc::new(now)))
    }

    /// The time to send with a call; `None` leaves it to the store.
    #[inline]
    pub(crate) fn now(&self) -> Option<i64> {
        match &self.0 {
            Source::Server => None,
            Source::System => Some(system_millis()),
            Source::Passed(now) => Some(now().clamp(-FURTHEST, FURTHEST)),
        }
    }

    /// The time that a test has set, in ms.
    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn shown_by(now: &Arc<std::sync::atomic::AtomicI64>) -> Self {
        let now = Arc::clone(now);
        Self::from_fn(move || now.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_the_stores(&self) -> bool {
        matches!(self.0, Source::Server)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Server => "Clock::server",
            Source::System => "Clock::system",
            Source::Passed(_) => "Clock::from_fn",
        })
    }
}

/// Milliseconds since the epoch by this machine's clock.
pub(crate) fn system_millis() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    }
}

/// Tokio's clock as milliseconds since the epoch: it starts at the system's time and stops while
/// tokio's time is paused.
#[derive(Debug)]
pub(crate) struct TokioClock {
    started: Instant,
    started_millis: i64,
    /// By how much a test has moved it on, in ms: at most [`FURTHEST`], so that no sum overflows.
    #[cfg(feature = "test-util")]
    advanced: std::sync::atomic::AtomicI64,
}

impl TokioClock {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            started_millis: system_millis(),
            #[cfg(feature = "test-util")]
            advanced: 0.into(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> i64 {
        let now = self.started_millis + self.started.elapsed().as_millis() as i64;
        #[cfg(feature = "test-util")]
        let now = now + self.advanced.load(std::sync::atomic::Ordering::Relaxed);
        now
    }

    #[cfg(feature = "test-util")]
    pub(crate) fn advance(&self, millis: i64) {
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let advance = |before: i64| Some(before.saturating_add(millis).min(FURTHEST));
        let _ = self.advanced.fetch_update(relaxed, relaxed, advance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, Rate, RedissonClient};

    #[tokio::test(start_paused = true)]
    async fn an_impossible_time_neither_panics_nor_grants_more_than_the_rate() {
        for shown in [i64::MIN, i64::MAX] {
            let builder = RedissonClient::builder().clock(Clock::from_fn(move || shown));
            let limiter = builder
                .in_memory(&MemoryStore::new())
                .rate_limiter("limiter");
            let longest = Duration::from_millis(1 << 52);
            limiter.set_rate(Rate::overall(1, longest)).await.unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
            assert!(!limiter.check(1).await.unwrap().is_granted());
            assert_eq!(limiter.available_permits().await.unwrap(), 0);
        }
    }
}
