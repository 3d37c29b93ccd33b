//! The other limiters: what each decides by, and one way to ask all of them.
//!
//! A policy, such as [`TokenBucket`](crate::TokenBucket), holds its numbers and stands in a file of its own, a pure model
//! beside a script of the same name in `lua/limiters/`. A [`PolicyLimiter`](crate::PolicyLimiter) applies it to
//! targets. The way of a request: `PolicyLimiter -> combining -> Store::decide -> lua/limiters/NAME.lua`.

pub(crate) mod algorithm;
pub(crate) mod call;
mod combining;
mod counters;
#[cfg(test)]
mod differential;
mod fixed_window;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod joint;
mod keyed_rate_limiter;
mod leaky_bucket;
mod penalty_token_bucket;
mod policy_limiter;
mod quota_bucket;
pub(crate) mod reply;
mod rules;
pub(crate) mod shared_rate;
mod sliding_log;
mod sliding_window;
mod starts;
pub(crate) mod target_keys;
mod target_name;
mod token_bucket;

use std::fmt;

use async_trait::async_trait;

use crate::decision::Decision;
use crate::error::{Error, Result};

pub use algorithm::Policy;
pub use fixed_window::FixedWindow;
pub use joint::{JointDecision, Share};
pub use keyed_rate_limiter::KeyedRateLimiter;
pub use leaky_bucket::LeakyBucket;
pub use penalty_token_bucket::PenaltyTokenBucket;
pub use policy_limiter::PolicyLimiter;
pub use quota_bucket::QuotaBucket;
pub use rules::{Rule, Rules, Verdict};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

/// Anything that decides by a key and a cost: all limiters of this crate, and your own.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, Limiter, RedissonClient, TokenBucket};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiters: [Arc<dyn Limiter>; 2] = [
///     Arc::new(client.limiter(FixedWindow::new(2, Duration::from_secs(60)))?),
///     Arc::new(client.limiter(TokenBucket::new(2, 1))?),
/// ];
/// for (i, limiter) in limiters.iter().enumerate() {
///     let user = format!("limiter{i}:user:123");
///     assert!(limiter.decide(&user, 2).await?.is_granted());
///     assert!(!limiter.decide(&user, 1).await?.is_granted());
/// }
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Limiter: fmt::Debug + Send + Sync {
    /// Decides now one request of `cost` (at least 1) on the target `key`, and charges it where it is granted. The limiters of
    /// this crate take any text for a key: see [`PolicyLimiter`](crate::PolicyLimiter#keys-from-outside).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a cost of 0, [`Error::CostExceedsLimit`] for one that could never be granted,
    /// [`Error::InvalidName`] for a key that cannot be used, [`Error::BadState`] where the keys hold something else, such as another
    /// kind of limiter as far as type and fields tell, and what stands with [`RRateLimiter`](crate::RRateLimiter).
    ///
    /// # Cancel safety
    /// A call dropped under way may or may not have been charged.
    async fn decide(&self, key: &str, cost: u32) -> Result<Decision>;

    /// This limiter's share of a decision of several: see [`RedissonClient::decide_all`](crate::RedissonClient::decide_all).
    ///
    /// # Errors
    /// As [`decide`](Self::decide), for what is wrong with the arguments. A limiter of your own has no share, unless it
    /// passes one of this crate's on: [`Error::InvalidArgument`].
    fn share(&self, _key: &str, _cost: u32) -> Result<Share> {
        Err(Error::InvalidArgument {
            argument: "limiter",
            reason: "it cannot decide together with others",
        })
    }
}
