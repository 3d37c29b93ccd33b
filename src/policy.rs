//! The other limiters: what each decides by, and one way to ask all of them.
//!
//! A policy, such as [`TokenBucket`](crate::TokenBucket), holds its numbers (`NAME.rs`). Its algorithm exists as a pure model
//! (`NAME/model.rs`) and as a script (`lua/limiters/NAME.lua`). A [`PolicyLimiter`](crate::PolicyLimiter) applies it to
//! targets. The path of a request: `PolicyLimiter -> combining -> Store::check -> lua/limiters/NAME.lua`.
//!
//! CONTRIBUTING.md says what a new policy needs.

pub(crate) mod algorithm;
mod bucket;
pub(crate) mod call;
mod combining;
mod counters;
#[cfg(all(test, feature = "redis"))]
mod differential_tests;
#[cfg(all(any(test, fuzzing), feature = "redis"))]
pub(crate) mod every_kind;
mod fixed_window;
#[cfg(all(fuzzing, feature = "redis"))]
pub(crate) mod fuzzing;
#[cfg(all(test, feature = "redis"))]
mod history_tests;
mod joint;
mod keyed_rate_limiter;
#[cfg(feature = "redis")]
pub(crate) mod kind;
mod leaky_bucket;
mod penalty_token_bucket;
mod policy_limiter;
mod quota_bucket;
#[cfg(feature = "redis")]
pub(crate) mod reply;
mod rules;
pub(crate) mod shared_rate;
mod sliding_window_counter;
mod sliding_window_log;
mod starts;
pub(crate) mod target_keys;
mod target_name;
mod token_bucket;

use std::fmt;

use async_trait::async_trait;

use crate::decision::Decision;
use crate::error::Result;

pub use algorithm::Policy;
pub use fixed_window::FixedWindow;
pub use joint::{Charge, JointDecision};
pub use keyed_rate_limiter::KeyedRateLimiter;
pub use leaky_bucket::LeakyBucket;
pub use penalty_token_bucket::PenaltyTokenBucket;
pub use policy_limiter::PolicyLimiter;
pub use quota_bucket::QuotaBucket;
pub use rules::{Rule, Rules, Verdict};
pub use sliding_window_counter::SlidingWindowCounter;
pub use sliding_window_log::SlidingWindowLog;
pub use token_bucket::TokenBucket;

/// A limiter that decides by a key and a cost: those of this crate, and your own. The limiters of this crate have
/// [`check`](PolicyLimiter::check) as an inherent method, so that only code for any limiter needs this trait.
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
///     Arc::new(client.limiter(TokenBucket::per_second(1).with_capacity(2))?),
/// ];
/// for (i, limiter) in limiters.iter().enumerate() {
///     let user = format!("limiter{i}:user:123");
///     assert!(limiter.check(&user, 2).await?.is_granted());
///     assert!(!limiter.check(&user, 1).await?.is_granted());
/// }
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Limiter: fmt::Debug + Send + Sync {
    /// Decides a request of `cost` (at least 1) for the target `key` now, and charges the target if it is granted. The
    /// limiters of this crate accept any text as a key: see [`PolicyLimiter`](crate::PolicyLimiter#keys-from-outside).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// #[derive(Debug)]
    /// struct Closed;
    ///
    /// #[async_trait::async_trait]
    /// impl Limiter for Closed {
    ///     async fn check(&self, _key: &str, _cost: u32) -> Result<Decision> {
    ///         Ok(Denied::new(Duration::from_secs(3600)).into())
    ///     }
    /// }
    ///
    /// assert!(!Closed.check("user:123", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// For the limiters of this crate, those of [`PolicyLimiter::check`].
    ///
    /// # Cancel safety
    /// For the limiters of this crate: a call dropped in flight may or may not have been charged.
    async fn check(&self, key: &str, cost: u32) -> Result<Decision>;
}

/// A [`Limiter`] that can decide together with others, in one atomic step: one of this crate's.
///
/// The trait is sealed. A decision by several limiters is one script, in which either all of them are charged or none. A
/// limiter of your own is asked by a call of its own, and could not take its charge back exactly when another limiter
/// denies. So the compiler refuses it in a [`Rule`]:
///
/// ```compile_fail,E0277
/// use redisson_rate_limiter::{Decision, Limiter, Result, Rule};
///
/// #[derive(Debug)]
/// struct Own;
///
/// #[async_trait::async_trait]
/// impl Limiter for Own {
///     async fn check(&self, key: &str, cost: u32) -> Result<Decision> {
///         unimplemented!()
///     }
/// }
///
/// let rule = Rule::new(Own, |user: &String| Some(user.clone()), |_, _| "denied");
/// ```
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiters: [Box<dyn Chargeable>; 2] = [
///     Box::new(client.limiter(TokenBucket::per_second(1))?.with_prefix("second:")),
///     Box::new(client.limiter(FixedWindow::new(5, Duration::from_secs(60)))?.with_prefix("minute:")),
/// ];
/// let charges: Vec<Charge> = limiters.iter().map(|it| it.charge("alice", 1)).collect::<Result<_>>()?;
/// assert!(client.check_all(charges).await?.is_granted());
/// # Ok(()) }
/// ```
pub trait Chargeable: Limiter + sealed::Chargeable {
    /// A request of `cost` (at least 1) for the target `key`, as one part of a decision by several limiters: an argument of
    /// [`RedissonClient::check_all`](crate::RedissonClient::check_all). Sends nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// fn one(limiter: &dyn Chargeable, key: &str) -> Result<Charge> {
    ///     limiter.charge(key, 1)
    /// }
    ///
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.limiter(TokenBucket::per_second(1))?;
    /// let all_users = client.keyed_rate_limiter("all:", Rate::overall(5, Duration::from_secs(1)))?;
    /// let charges = [one(&per_user, "alice")?, one(&all_users, "users")?];
    /// assert!(client.check_all(charges).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Limiter::check) for invalid arguments.
    fn charge(&self, key: &str, cost: u32) -> Result<Charge>;
}

mod sealed {
    pub trait Chargeable {}

    impl<P: super::Policy> Chargeable for super::PolicyLimiter<P> {}
    impl Chargeable for super::KeyedRateLimiter {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn each_policy_prints_its_numbers() {
        let policies = [
            FixedWindow::new(100, MINUTE).to_string(),
            SlidingWindowLog::new(100, MINUTE).to_string(),
            SlidingWindowCounter::new(100, MINUTE).to_string(),
            TokenBucket::per_second(10).to_string(),
            QuotaBucket::new(10, MINUTE).with_capacity(20).to_string(),
            LeakyBucket::new(10, MINUTE).with_capacity(5).to_string(),
            PenaltyTokenBucket::new(10, MINUTE)
                .with_natural_start()
                .to_string(),
        ];
        let expected = [
            "fixed window: 100 per 60s",
            "sliding window log: 100 per 60s",
            "sliding window counter: 100 per 60s, by 6s",
            "token bucket: 10 per 1s, up to 10",
            "quota bucket: 10 per 60s, up to 20",
            "leaky bucket: 10 per 60s, up to 5 waiting",
            "penalty token bucket: 10 per 60s, up to 10, natural start",
        ];
        assert_eq!(policies, expected);
    }

    #[test]
    fn each_policy_returns_its_numbers() {
        let fixed = FixedWindow::new(1, MINUTE);
        assert_eq!((fixed.limit(), fixed.window()), (1, MINUTE));
        assert!(!fixed.has_natural_start());
        assert!(fixed.with_natural_start().has_natural_start());
        let log = SlidingWindowLog::new(2, MINUTE);
        assert_eq!((log.limit(), log.window()), (2, MINUTE));
        let counter = SlidingWindowCounter::new(3, MINUTE).with_period(MINUTE / 4);
        assert_eq!((counter.limit(), counter.window()), (3, MINUTE));
        assert_eq!(counter.period(), MINUTE / 4);
        let tokens = TokenBucket::per_second(4).with_capacity(5);
        assert_eq!((tokens.rate(), tokens.capacity()), (4, 5));
        let quota = QuotaBucket::new(6, MINUTE).with_capacity(7);
        assert_eq!((quota.quota(), quota.capacity()), (6, 7));
        assert_eq!(quota.period(), MINUTE);
        let leaky = LeakyBucket::new(8, MINUTE).with_capacity(9);
        assert_eq!((leaky.quantity(), leaky.capacity()), (8, 9));
        assert_eq!(leaky.unit(), MINUTE);
        let penalty = PenaltyTokenBucket::new(10, MINUTE).with_capacity(11);
        assert_eq!((penalty.quantity(), penalty.capacity()), (10, 11));
        assert_eq!(penalty.unit(), MINUTE);
    }
}
