//! `PenaltyTokenBucket`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

use super::starts::Starts;

/// A bucket of `capacity` tokens to which `quantity` tokens are added at the end of each `period`.
/// A request removes its cost. With a [`penalty`](crate::PolicyLimiter::with_penalty), a denied
/// request locks its target out.
///
/// A limiter without a penalty also denies a target that another limiter has locked out.
///
/// State, in the form of the .NET library FireflySoft.RateLimit: the string `key`, the tokens left;
/// the string `{key}-st`, the time of the last refill (ms); the string `{key}-lock` while the
/// target is locked out. The time of the last refill expires after twice the time that an empty
/// bucket takes to fill, but not before a period is over; the tokens 10 ms later. A denial writes
/// nothing but the lock.
///
/// After a change of the policy ([`PolicyLimiter::set_policy`](crate::PolicyLimiter::set_policy)),
/// the tokens left stay, up to the new capacity, and the new periods count from the last refill on.
/// A bucket that grants nothing for as long as the old policy kept its state is then full. A lock
/// stays.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"penalty_token_bucket","rate":"10/1m","capacity":100,"aligned_to_clock":true}`.
/// `capacity` and `aligned_to_clock` may be left out.
///
/// ```
/// use redisson_rate_limiter::{PenaltyTokenBucket, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let policy = PenaltyTokenBucket::new(1, Duration::from_secs(1)).with_capacity(2);
/// let limiter = client.policy_limiter(policy)?.with_penalty(Duration::from_secs(5))?;
/// assert!(limiter.check("user:123", 2).await?.is_granted());
/// let retry_after = limiter.check("user:123", 1).await?.retry_after().expect("denied");
/// assert_eq!(retry_after, Duration::from_secs(5)); // not 1: it is locked out
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PenaltyTokenBucket {
    capacity: u32,
    quantity: u32,
    period: Duration,
    starts: Starts,
}

impl PenaltyTokenBucket {
    /// Adds `quantity` tokens (at least 1) with each `period` (whole milliseconds, at least 1), up
    /// to a capacity of `quantity`. An empty bucket must fill within 2^51 ms. The first period
    /// begins with the first request.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let policy = PenaltyTokenBucket::new(100, minute);
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
            starts: Starts::WithFirstRequest,
        }
    }

    /// Sets the largest number of tokens, at least 1.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(PenaltyTokenBucket::new(100, minute).with_capacity(500).capacity(), 500);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_capacity(self, capacity: u32) -> Self {
        Self { capacity, ..self }
    }
}

numbers! {
    PenaltyTokenBucket, "penalty token bucket: {quantity} per {period:?}, up to {capacity}{starts}";
    new {
        /// How many tokens come with each period.
        quantity: u32,
        /// A period's length.
        period: Duration,
    }
    with {
        /// How many tokens there are at most.
        capacity: u32 = capacity by with_capacity,
    }
    aligned_to_clock, is_aligned_to_clock = starts: "the first period", "the period";
}
