//! Waiting for the turn that a policy gives, such as a leaky bucket.

use super::PolicyLimiter;
use crate::decision::Decision;
use crate::error::Result;
use crate::policies::algorithm::Policy;

impl<P: Policy> PolicyLimiter<P> {
    /// Decides as [`check`](Self::check), and waits for the delay of a granted request: when this returns granted, the
    /// request may proceed. The `delay` of the returned decision is zero. Only a [`LeakyBucket`](crate::LeakyBucket) gives a delay.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let slow = LeakyBucket::new(1, Duration::from_millis(100));
    /// let limiter = RedissonClient::in_memory().policy_limiter(slow)?;
    /// let start = tokio::time::Instant::now();
    /// assert!(limiter.check_and_wait("orders:api", 1).await?.is_granted());
    /// assert!(limiter.check_and_wait("orders:api", 1).await?.is_granted());
    /// assert_eq!(start.elapsed(), Duration::from_millis(100));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// A call dropped while it waits for the delay has been charged: its place in the bucket stays taken until it has flowed
    /// out. A call dropped before that may or may not have been charged.
    pub async fn check_and_wait(&self, key: &str, cost: u32) -> Result<Decision> {
        let mut decision = self.check(key, cost).await?;
        if let Decision::Granted(granted) = &mut decision {
            let left = std::mem::take(&mut granted.delay);
            if !left.is_zero() {
                tokio::time::sleep(left).await;
            }
        }
        Ok(decision)
    }
}
