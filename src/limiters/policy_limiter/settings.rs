//! What a limiter is set to, apart from its policy: the prefix of its keys, its penalty, its
//! options.

use std::sync::Arc;
use std::time::Duration;

use super::{PolicyLimiter, combining};
use crate::error::{Error, Result};
use crate::limiter_options::LimiterOptions;
use crate::policies::any_policy::Policy;
use crate::rate::whole_millis;

impl<P: Policy> PolicyLimiter<P> {
    /// Sets a prefix for every key. A hash tag in it puts all targets into one slot of a cluster,
    /// and braces in a key are then escaped. Earlier clones keep theirs.
    ///
    /// ```
    /// use redisson_rate_limiter::{FixedWindow, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = FixedWindow::new(1, Duration::from_secs(60));
    /// let limiter = client.policy_limiter(logins)?.with_prefix("{shop}:login:"); // {shop}:login:alice
    /// for user in ["alice", "alice:value", "{alice}", "%7Balice%7D"] {
    ///     assert!(limiter.check(user, 1).await?.is_granted());
    ///     assert!(!limiter.check(user, 1).await?.is_granted());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Names this limiter, for [joint decisions](crate::JointDecision), [rules](crate::Rules) and
    /// metrics. The name is no part of a key: limiters that differ only in their name share their
    /// state. Earlier clones keep theirs.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let limiter = limiter.with_prefix("login:");
    /// assert_eq!(limiter.name(), "login:");
    /// assert_eq!(limiter.with_name("logins").name(), "logins");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The name that was [given](Self::with_name) to this limiter, or else its
    /// [prefix](Self::with_prefix).
    #[must_use]
    pub fn name(&self) -> &str {
        self.label()
    }

    pub(super) fn label(&self) -> &Arc<str> {
        self.name.as_ref().unwrap_or(&self.prefix)
    }

    /// Accepts an empty key like any other: with a prefix or a name mapper, it names the target
    /// that these name without a key. By default an empty key is refused, because it often stands
    /// for a missing value, such as that of a header field, and all such requests would share one
    /// target. Earlier clones still refuse it.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let limiter = limiter.with_prefix("login:");
    /// assert!(matches!(limiter.check("", 1).await, Err(Error::InvalidName { .. })));
    /// assert!(limiter.accept_empty_key().check("", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn accept_empty_key(mut self) -> Self {
        self.accepts_empty_key = true;
        self
    }

    /// Locks a target out for this time (whole milliseconds, at least 1) once one of its requests
    /// is denied: until then all its requests are denied, whatever the policy says.
    ///
    /// State: the string `{key}-lock`, with this time to live. Earlier clones keep their penalty.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?
    ///     .with_penalty(Duration::from_secs(600))?;
    /// assert!(limiter.check("user:123", 1).await?.is_granted());
    /// let denied = limiter.check("user:123", 1).await?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(600))); // not 60: it is locked out
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a time that is not whole
    /// milliseconds of at least 1, and for [`AnyPolicy::SharedRate`](crate::AnyPolicy::SharedRate),
    /// because other clients of its limiters would ignore the lock.
    pub fn with_penalty(mut self, time: Duration) -> Result<Self> {
        if self.is_shared() {
            return Err(Error::InvalidArgument {
                argument: "time",
                reason: "a rate that others share has no penalty",
            });
        }
        self.penalty = Some(whole_millis(time, "time")?);
        self.batcher = combining::batcher(&self.registry.store);
        Ok(self)
    }

    /// This limiter with options of its own. Those that `options` does not set stay as they are,
    /// and so do earlier clones. Only the [failure policy](LimiterOptions::failure_policy) concerns
    /// requests to a policy.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, FixedWindow, LimiterOptions, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let options = LimiterOptions::new().failure_policy(FailurePolicy::Allow);
    /// let limiter = RedissonClient::in_memory()
    ///     .policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?
    ///     .with_options(options.clone());
    /// assert_eq!(*limiter.options(), options);
    ///
    /// let limiter = limiter.with_options(LimiterOptions::new().fail_fast(true));
    /// assert_eq!(*limiter.options(), options.fail_fast(true));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_options(mut self, options: LimiterOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// The options set for this limiter, or for all limiters of its client.
    pub fn options(&self) -> &LimiterOptions {
        &self.options
    }

    /// The prefix of every key.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// For how long a denial locks its target out; `None` without a penalty.
    #[must_use]
    pub fn penalty(&self) -> Option<Duration> {
        let millis = self.penalty?.unsigned_abs();
        Some(Duration::from_millis(millis))
    }
}
