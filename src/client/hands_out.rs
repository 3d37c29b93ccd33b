//! The limiters that a client hands out.

use std::sync::Arc;

use super::RedissonClient;
use crate::error::Result;
#[cfg(feature = "serde")]
use crate::limiters::RulesConfig;
use crate::limiters::{
    Charge, JointDecision, KeyedRateLimiter, Mode, PolicyLimiter, RateLimiter, Rule, Rules,
    check_all, peek_all, refund_all,
};
use crate::policies::any_policy::Policy;
use crate::rate::Rate;

impl RedissonClient {
    /// The limiter of this name, whether it exists or not. Sends nothing.
    ///
    /// All handles of one name that a client hands out share one queue of waiters. The calls of a
    /// limiter whose name cannot be used fail with
    /// [`Error::InvalidName`](crate::Error::InvalidName).
    ///
    /// The name is used in Redis as it is, as Redisson does. Do not build it from text that a user
    /// chooses: the limiters `u{1` and `u{1:value` use the same key in Redis. A
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter) accepts any text as a key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.rate_limiter("orders:api");
    /// assert!(!limiter.exists().await?); // nothing was created
    /// assert!(matches!(client.rate_limiter("").exists().await, Err(Error::InvalidName { .. })));
    /// # Ok(()) }
    /// ```
    #[doc(alias = "getRateLimiter")]
    pub fn rate_limiter(&self, name: &str) -> RateLimiter {
        self.0.rate_limiter(&self.0.mapped_name(name))
    }

    /// A limiter for each key, with this rate: the RRateLimiters whose names are `prefix` + key.
    /// Sends nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.check("alice", 1).await?.is_granted());
    /// assert!(limiter.check("bob", 1).await?.is_granted());
    /// assert_eq!(client.rate_limiter("mail:alice").available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid rate, as for
    /// [`try_set_rate`](crate::RateLimiter::try_set_rate).
    pub fn keyed_rate_limiter(&self, prefix: &str, rate: Rate) -> Result<KeyedRateLimiter> {
        KeyedRateLimiter::new(Arc::clone(&self.0), prefix, rate)
    }

    /// A limiter that decides by `policy`, for any number of targets. Sends nothing. For a policy
    /// that is chosen at run time, such as by a configuration file, there is
    /// [`AnyPolicy`](crate::AnyPolicy).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// assert!(!limiter.check("user:123", 1).await?.is_granted());
    /// let no_requests = FixedWindow::new(0, Duration::from_secs(60));
    /// assert!(matches!(client.policy_limiter(no_requests), Err(Error::InvalidArgument { .. })));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if a number of the policy is out
    /// of its range.
    pub fn policy_limiter<P: Policy>(&self, policy: P) -> Result<PolicyLimiter<P>> {
        PolicyLimiter::new(Arc::clone(&self.0), policy)
    }

    /// Decides one request by several limiters at once: either all of them grant it and are
    /// charged, or none is charged. Takes one round trip, unless the keys are in several slots of a
    /// cluster.
    ///
    /// A granted request may proceed when this returns: this method waits first for the turn that a
    /// [`LeakyBucket`](crate::LeakyBucket) gives the request, or for the last turn if several do.
    /// The other limiters count the request from the decision on.
    ///
    /// # Several slots of a cluster
    /// One call cannot reach limiters in several slots. First all slots are asked at the same time
    /// what they would decide, without a charge. Then they decide, one slot after another. That is
    /// one round trip, and one more for each slot. The slots that would deny decide first; if one
    /// of them denies, the others are not asked again, so that a denied request is charged nowhere.
    /// Then comes the slot that could grant the fewest further requests, so that of many requests
    /// at once most are denied there, and not charged to a limit that others share.
    ///
    /// Another request may come in between, so that a limiter denies which would have granted. Then
    /// the slots before it give their charges back, also if the future is dropped, as far as
    /// [`Limiter::refund`](crate::Limiter::refund) says for each algorithm. Meanwhile, other
    /// requests may have been denied because of these charges. No limiter ever grants more than its
    /// limit. If the keys have a common hash tag, such as `{alice}:second` and `{alice}:day`, they
    /// are in one slot.
    ///
    /// # Failures
    /// While Redis is unavailable, the [`FailurePolicy`](crate::FailurePolicy) of each limiter
    /// counts: the request fails if one of them is `Error` or `Wait`, and is denied if one is
    /// `Deny`. Local limiters decide together too.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(TokenBucket::per_second(1))?;
    /// let all_users = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let charges = |user| Ok::<_, Error>([per_user.charge(user, 1)?, all_users.charge("all", 1)?]);
    /// assert!(client.check_all(charges("alice")?).await?.is_granted());
    /// assert!(!client.check_all(charges("bob")?).await?.is_granted());
    /// assert!(per_user.check("bob", 1).await?.is_granted()); // bob was not charged
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if there are no charges, or more
    /// than 32; if those of [`SlidingWindowLog`](crate::SlidingWindowLog)s and
    /// [`SlidingWindowCounter`](crate::SlidingWindowCounter)s would touch more than 2,000 members
    /// and counters together, four for each unit of cost at a log and one for each period of a
    /// counter's window; if two have the same name, whatever their kinds; or if one is of another
    /// client; and those of [`PolicyLimiter::check`](crate::PolicyLimiter::check). No limiter was
    /// charged, unless it is [`Error::Indeterminate`](crate::Error::Indeterminate) or the keys are
    /// in several slots.
    ///
    /// # Cancel safety
    /// If the future is dropped, in flight or while the request waits for its turn, the limiters
    /// get their charges back as far as [`Limiter::refund`](crate::Limiter::refund) says for each
    /// algorithm: a [`LeakyBucket`](crate::LeakyBucket) keeps its charge. If the answer of a call
    /// in flight is lost, only a [`Rate`](crate::Rate) gets its charge back.
    pub async fn check_all(
        &self,
        charges: impl IntoIterator<Item = Charge> + Send,
    ) -> Result<JointDecision> {
        check_all(&self.0, charges, Mode::Enforced).await
    }

    /// Returns what [`check_all`](Self::check_all) would decide now, and charges nothing. Changes
    /// nothing in Redis. Does not wait: the decisions have the delays of
    /// [`LeakyBucket`](crate::LeakyBucket)s.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(TokenBucket::per_second(1))?;
    /// let all_users = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let charges = || Ok::<_, Error>([per_user.charge("alice", 1)?, all_users.charge("all", 1)?]);
    /// assert!(client.peek_all(charges()?).await?.is_granted());
    /// assert!(client.check_all(charges()?).await?.is_granted());
    /// assert!(!client.peek_all(charges()?).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check_all`](Self::check_all). The [`FailurePolicy`](crate::FailurePolicy) of each
    /// limiter applies as there.
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    pub async fn peek_all(
        &self,
        charges: impl IntoIterator<Item = Charge> + Send,
    ) -> Result<JointDecision> {
        peek_all(&self.0, charges).await
    }

    /// Gives back each grant of a joint decision, as [`Limiter::refund`](crate::Limiter::refund)
    /// does, and returns how many permits came back. A denied decision has no grants.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let minute = Duration::from_secs(60);
    /// let per_user = client.keyed_rate_limiter("user:", Rate::overall(5, minute))?;
    /// let all_users = client.keyed_rate_limiter("all:", Rate::overall(9, minute))?;
    /// let charges = [per_user.charge("alice", 2)?, all_users.charge("users", 2)?];
    /// let decision = client.check_all(charges).await?;
    /// assert_eq!(client.refund_all(decision).await?, 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RateLimiter::refund`](crate::RateLimiter::refund): the first one, after all
    /// grants were tried.
    ///
    /// # Cancel safety
    /// If the future is dropped, some grants may not have been given back.
    pub async fn refund_all(&self, decision: JointDecision) -> Result<u64> {
        refund_all(&self.0, [decision]).await
    }

    /// [`Rules`] that decide requests together. Their limiters must be this client's, and have
    /// different names.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins).by(["user"])])?;
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRule`](crate::Error::InvalidRule) for a rule that was made wrongly, such as
    /// with an empty value, or that has the name of another rule; and for a rule with a limiter of
    /// another client, a limiter whose keys no cluster could keep in one slot, or a limiter that
    /// may have the keys of another algorithm. There may be any number of rules; if more than 32 of
    /// them apply to a request, [`Rules::check`] fails, with the same error and a warning.
    pub fn rules(&self, rules: impl Into<Arc<[Rule]>>) -> Result<Rules> {
        Rules::new(Arc::clone(&self.0), rules.into())
    }

    /// [`Rules`] that a configuration describes: with the feature `serde`. [`RulesConfig`] shows
    /// how. Sends nothing.
    ///
    /// # Errors
    /// Those of [`rules`](Self::rules).
    #[cfg(feature = "serde")]
    pub fn rules_from(&self, config: &RulesConfig) -> Result<Rules> {
        let rules = self.rules([])?;
        rules.replace_from(config)?;
        Ok(rules)
    }
}
