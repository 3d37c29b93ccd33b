//! `QuotaBucket`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

/// A bucket of `capacity` tokens to which `quantity` tokens are added in each `period`, evenly over
/// the period. A request removes its cost. The state contains these numbers, so that tools can read
/// them.
///
/// State: the hash `key` with `capacity`, `remain`, `period` (s), `quota`, `timestamp` (s), and
/// `timestamp_fraction` if a token does not take a whole number of seconds. Each grant and each
/// denial writes all of it. It expires after twice the time that an empty bucket takes to fill: a
/// script on the same key that sets no time to live may have taken tokens in the meantime.
///
/// The bucket counts in whole seconds: the tokens of a second are added when the second is over.
///
/// A new capacity, quantity or period
/// ([`PolicyLimiter::set_policy`](crate::PolicyLimiter::set_policy)) applies from the next request
/// on, including to the time since the last refill. A smaller capacity limits the remaining tokens
/// at once.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"quota_bucket","rate":"10/1m","capacity":100}`.
/// `capacity` may be left out.
///
/// ```
/// use redisson_rate_limiter::{QuotaBucket, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.policy_limiter(QuotaBucket::new(10, Duration::from_secs(60)))?;
/// for left in [5, 0] {
///     let decision = limiter.check("quota:user:123", 5).await?;
///     assert!(decision.is_granted());
///     assert_eq!(decision.remaining(), left);
/// }
/// assert!(!limiter.check("quota:user:123", 5).await?.is_granted());
/// tokio::time::advance(Duration::from_secs(30)).await; // half the period
/// assert!(limiter.check("quota:user:123", 5).await?.is_granted());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QuotaBucket {
    capacity: u32,
    quantity: u32,
    period: Duration,
}

impl QuotaBucket {
    /// Adds `quantity` tokens (at least 1) in each `period` (whole seconds, at least 1), up to a
    /// capacity of `quantity`. The capacity times the seconds of the period is at most 2^52, and so
    /// is the time in milliseconds in which an empty bucket fills.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let policy = QuotaBucket::new(100, minute);
    /// assert_eq!(policy.capacity(), 100);
    /// assert_eq!(policy.quantity(), 100);
    /// assert_eq!(policy.period(), minute);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn new(quantity: u32, period: Duration) -> Self {
        Self {
            capacity: quantity,
            quantity,
            period,
        }
    }

    /// Sets the largest number of tokens, at least 1.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(QuotaBucket::new(100, minute).with_capacity(500).capacity(), 500);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_capacity(self, capacity: u32) -> Self {
        Self { capacity, ..self }
    }
}

numbers! {
    QuotaBucket, "quota bucket: {quantity} per {period:?}, up to {capacity}";
    new {
        /// How many tokens come in each period.
        quantity: u32,
        /// A period's length.
        period: Duration,
    }
    with {
        /// How many tokens there are at most.
        capacity: u32 = capacity by with_capacity,
    }
}
