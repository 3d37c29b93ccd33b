//! `TokenBucket`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

/// A bucket of `capacity` tokens to which `rate` tokens are added per second. A request removes its
/// cost, so that bursts up to the capacity are granted and the long-term rate is kept.
///
/// State: the hash `key` with `tokens` and `last_refill_timestamp` (ms), and `last_refill_fraction`
/// if a token does not take a whole number of milliseconds. It expires two to three times the time
/// that an empty bucket takes to fill after the last grant: a grant writes the time to live only if
/// less than twice that time is left.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"token_bucket","rate":"10/1s","capacity":100}`.
/// `capacity` may be left out.
///
/// ```
/// use redisson_rate_limiter::{RedissonClient, TokenBucket};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = client.policy_limiter(TokenBucket::per_second(2).with_capacity(10))?;
/// let bucket = "token_bucket:user:123:api_a";
/// assert!(limiter.check(bucket, 10).await?.is_granted());
/// let retry_after = limiter.check(bucket, 3).await?.retry_after().expect("denied");
/// assert_eq!(retry_after, Duration::from_millis(1_500));
/// tokio::time::advance(retry_after).await;
/// assert!(limiter.check(bucket, 3).await?.is_granted());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    capacity: u32,
    rate: u32,
}

impl TokenBucket {
    /// Adds `rate` tokens a second (at least 1), up to a capacity of `rate`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let policy = TokenBucket::per_second(100);
    /// assert_eq!(policy.capacity(), 100);
    /// assert_eq!(policy.rate(), 100);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn per_second(rate: u32) -> Self {
        Self {
            capacity: rate,
            rate,
        }
    }

    /// Sets the largest number of tokens, at least 1.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(TokenBucket::per_second(100).with_capacity(500).capacity(), 500);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_capacity(self, capacity: u32) -> Self {
        Self { capacity, ..self }
    }
}

numbers! {
    TokenBucket, "token bucket: {rate} per 1s, up to {capacity}";
    per_second {
        /// How many tokens come in a second.
        rate: u32,
    }
    with {
        /// How many tokens there are at most.
        capacity: u32 = capacity by with_capacity,
    }
}
