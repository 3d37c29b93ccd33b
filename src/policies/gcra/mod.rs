//! `Gcra`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

/// A rate with bursts: `quantity` in each `period`, spread evenly, and up to `burst` at once after
/// a pause. The generic cell rate algorithm of ITU-T I.371, which gateways and redis-cell use.
///
/// It decides as a [`TokenBucket`](crate::TokenBucket) of `burst` tokens does which come in one by
/// one, and keeps one number for each target: the theoretical arrival time, until which what was
/// taken has come back. So it is the cheapest limit with a rate there is, for any period, and a
/// good choice for a limit for each user.
///
/// A permit comes back in the [emission interval](Self::emission_interval), `period / quantity`,
/// rounded up to whole microseconds: targets never get more than the rate, and less by under 1 us a
/// permit. The clock is read to the millisecond.
///
/// State: the string `key`, the theoretical arrival time in whole microseconds since the epoch. It
/// expires at that time, as far as the store's clock is that of the requests. A denial writes
/// nothing.
///
/// After a change of the policy, what was taken is still taken until the same time: a lower rate
/// applies to what is taken from then on, and a smaller burst grants nothing until enough has come
/// back.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"gcra","rate":"10/1s","burst":100}`.
/// `burst` may be left out.
///
/// ```
/// use redisson_rate_limiter::{Gcra, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.policy_limiter(Gcra::per_second(10).with_burst(100))?;
/// assert!(limiter.check("user:123", 100).await?.is_granted());
/// let denied = limiter.check("user:123", 3).await?;
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(300)));
/// tokio::time::advance(Duration::from_millis(300)).await;
/// assert!(limiter.check("user:123", 3).await?.is_granted());
/// # Ok(()) }
/// ```
#[doc(alias = "generic cell rate algorithm")]
#[doc(alias = "leaky bucket as a meter")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gcra {
    quantity: u32,
    period: Duration,
    burst: u32,
    /// The emission interval in us, which each decision needs: the division takes as long as the
    /// rest of its arithmetic.
    interval: i64,
}

impl Gcra {
    /// `quantity` (at least 1) in each `period` (whole milliseconds, at least 1), and as much at
    /// once. A permit that comes back in less than a microsecond is refused.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let policy = Gcra::new(100, Duration::from_secs(10));
    /// assert_eq!(policy.quantity(), 100);
    /// assert_eq!(policy.period(), Duration::from_secs(10));
    /// assert_eq!(policy.burst(), 100);
    ///
    /// let too_fast = RedissonClient::in_memory().policy_limiter(Gcra::per_second(1_000_001));
    /// assert!(matches!(too_fast, Err(Error::InvalidArgument { argument: "quantity", .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(quantity: u32, period: Duration) -> Self {
        Self {
            quantity,
            period,
            burst: quantity,
            interval: model::interval_micros(quantity, period),
        }
    }

    /// `quantity` each second: never one in several seconds.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// assert_eq!(Gcra::per_second(10).emission_interval(), Duration::from_millis(100));
    /// ```
    #[must_use]
    pub fn per_second(quantity: u32) -> Self {
        Self::new(quantity, Duration::from_secs(1))
    }

    /// `quantity` each minute.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// assert_eq!(Gcra::per_minute(10).emission_interval(), Duration::from_secs(6));
    /// ```
    #[must_use]
    pub fn per_minute(quantity: u32) -> Self {
        Self::new(quantity, Duration::from_secs(60))
    }

    /// `quantity` each hour.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// assert_eq!(Gcra::per_hour(10).emission_interval(), Duration::from_secs(360));
    /// ```
    #[must_use]
    pub fn per_hour(quantity: u32) -> Self {
        Self::new(quantity, Duration::from_secs(3_600))
    }

    /// Sets how much a target may take at once after a pause, at least 1: the largest cost of a
    /// request. All of it must be back within 2^52 us.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let policy = Gcra::per_second(10).with_burst(100);
    /// assert_eq!((policy.quantity(), policy.burst()), (10, 100));
    /// ```
    #[must_use]
    pub fn with_burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// The time in which a permit comes back: the period divided by the quantity, rounded up to
    /// whole microseconds.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// assert_eq!(Gcra::per_second(3).emission_interval(), Duration::from_micros(333_334));
    /// ```
    #[must_use]
    pub fn emission_interval(&self) -> Duration {
        Duration::from_micros(self.interval.unsigned_abs())
    }
}

numbers! {
    Gcra, "gcra: {quantity} per {period:?}, up to {burst} at once";
    new {
        /// How much comes back in each period.
        quantity: u32,
        /// A period's length.
        period: Duration,
    }
    with {
        /// How much a target may take at once.
        burst: u32 = burst by with_burst,
    }
}
