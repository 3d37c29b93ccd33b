//! `LeakyBucket`: the numbers of the policy. Its state and its steps are in `model.rs`.

mod model;

use std::time::Duration;

use super::starts::Starts;

/// Requests proceed at a constant pace, `quantity` in each `period`. Up to `capacity` more may wait
/// for their turn, and requests beyond that are denied.
///
/// A granted request has its turn at a time that the bucket gives it:
/// [`check`](crate::PolicyLimiter::check) waits until then, so that its caller may proceed.
/// [`check_without_waiting`](crate::PolicyLimiter::check_without_waiting) returns the
/// [`delay`](crate::Granted::delay) at once, for callers that wait by themselves. The first request
/// of a target proceeds at once, whatever its cost. The largest cost that can be granted is
/// `capacity + quantity`.
///
/// The capacity bounds the wait: no request waits longer than `capacity / quantity` periods,
/// rounded up. So choose it for the longest time that callers wait. The place of a caller that
/// gives up earlier stays taken until it has flowed out, because those behind it already know when
/// they may proceed; where callers have a shorter timeout than the bucket's wait, those places keep
/// others out.
///
/// State, in the form of the .NET library FireflySoft.RateLimit: the string `key`, the requests in
/// the bucket, and the string `{key}-st`, the time of the last outflow (ms). They expire after
/// `capacity / quantity` periods, rounded up, and one more period.
///
/// After a change of the policy ([`PolicyLimiter::set_policy`](crate::PolicyLimiter::set_policy)),
/// the content of the bucket drains at the new pace, and nothing more is granted until it fits the
/// new capacity; delays that were returned do not change. A bucket that grants nothing for as long
/// as the old policy kept its state is then empty.
///
/// As a configuration file of [`AnyPolicy`](crate::AnyPolicy)s has it, in JSON:
/// `{"algorithm":"leaky_bucket","rate":"1/1s","capacity":5,"aligned_to_clock":true}`.
/// `capacity` and `aligned_to_clock` may be left out.
///
/// ```
/// use redisson_rate_limiter::{Decision, LeakyBucket, RedissonClient};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// // One in 100 ms, and two may wait.
/// let limiter = client.policy_limiter(LeakyBucket::new(1, Duration::from_millis(100)).with_capacity(2))?;
/// let asked_at = Instant::now();
/// for turn in [0, 100, 200] {
///     assert!(limiter.check("orders:api", 1).await?.is_granted()); // and it is its turn
///     assert_eq!(asked_at.elapsed(), Duration::from_millis(turn));
/// }
/// // With two that wait, the next one is denied.
/// for delay in [100, 200] {
///     let decision = limiter.check_without_waiting("orders:api", 1).await?;
///     let Decision::Granted(granted) = decision else { panic!() };
///     assert_eq!(granted.delay, Duration::from_millis(delay));
/// }
/// assert!(!limiter.check("orders:api", 1).await?.is_granted());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    capacity: u32,
    quantity: u32,
    period: Duration,
    starts: Starts,
}

impl LeakyBucket {
    /// Lets `quantity` requests (at least 1) proceed in each `period` (whole milliseconds, at least
    /// 1), and up to `quantity` more wait. A full bucket must drain within 2^52 ms. The first
    /// period begins with the first request.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let policy = LeakyBucket::new(100, minute);
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

    /// Sets how many requests may wait, at least 1.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(LeakyBucket::new(100, minute).with_capacity(500).capacity(), 500);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_capacity(self, capacity: u32) -> Self {
        Self { capacity, ..self }
    }
}

numbers! {
    LeakyBucket, "leaky bucket: {quantity} per {period:?}, up to {capacity} waiting{starts}";
    new {
        /// How many requests proceed in each period.
        quantity: u32,
        /// A period's length.
        period: Duration,
    }
    with {
        /// How many requests may wait.
        capacity: u32 = capacity by with_capacity,
    }
    aligned_to_clock, is_aligned_to_clock = starts: "the first period", "the period";
}
