//! A limiter for each key: RRateLimiters of one prefix, set up by their first request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::algorithm::Model;
use super::joint::Charge;
use super::policy_limiter::check_cost;
use super::shared_rate::SharedRate;
use super::{Chargeable, Limiter, PolicyLimiter};
use crate::client::RedissonClient;
use crate::decision::{Decision, decision_alone};
use crate::error::Result;
use crate::failure_policy::FailurePolicy;
use crate::handle_options::HandleOptions;
use crate::keys::check_not_empty;
use crate::limiter::RateLimiter;
use crate::model::SetUp;
use crate::rate::Rate;
use crate::wait_queue::ReadSetUp;

/// A [`RateLimiter`](crate::RateLimiter) for each key: from [`RedissonClient::keyed_rate_limiter`]. Cheap to clone; clones
/// share the rate.
///
/// The limiter of a key is the `RRateLimiter` with the name prefix + key, which Redisson can share. A key may be any text:
/// characters that a name cannot contain are escaped as by [`PolicyLimiter`]. The first request for a key creates its
/// limiter, and a limiter with another rate gets this one, in the same round trip: the permits in use are kept, unless the
/// [type](crate::RateType) changes. So all clients that use a prefix should agree on the rate of a key.
///
/// It is made for millions of keys: the limiter of a key without requests expires after the rate's [keep
/// alive](Rate::keep_alive); without one, an interval after the last request, when all permits would be back anyway. A keep
/// alive that the rate does not set stays as the limiter has it.
///
/// ```
/// use redisson_rate_limiter::{Rate, RedissonClient};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let three_in_ten_seconds = Rate::overall(3, Duration::from_secs(10));
/// let limiter = client.keyed_rate_limiter("nft:turbo:limit:", three_in_ten_seconds)?;
/// for expected in [true, true, true, false] {
///     assert_eq!(limiter.check("testLock997", 1).await?.is_granted(), expected);
/// }
/// limiter.acquire("testLock997", 1).await?; // waits its turn
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct KeyedRateLimiter {
    client: RedissonClient,
    client_id: Arc<str>,
    limiter: PolicyLimiter<SharedRate>,
    options: HandleOptions,
}

impl RedissonClient {
    /// A limiter for each key, with this rate: the RRateLimiters whose names are `prefix` + key. Sends nothing.
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
        let client_id: Arc<str> = self.id().into();
        let policy = SharedRate::with_rate(Arc::clone(&client_id), rate)?;
        Ok(KeyedRateLimiter {
            client: self.clone(),
            client_id,
            options: self.handle_options(),
            limiter: PolicyLimiter::new(self.clone(), policy)?.with_prefix(prefix),
        })
    }
}

impl KeyedRateLimiter {
    /// The limiter of a key, with all methods of [`RateLimiter`](crate::RateLimiter). This does not create it: the first
    /// [`check`](Self::check) or [`acquire`](Self::acquire) does.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// let alice = limiter.limiter("alice");
    /// assert_eq!(alice.name(), "mail:alice");
    /// assert!(!alice.exists().await?);
    /// limiter.check("alice", 1).await?;
    /// assert_eq!(alice.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn limiter(&self, key: &str) -> RateLimiter {
        self.limiter_of_mapped(self.limiter.mapped_name(key))
    }

    fn limiter_of_mapped(&self, name: Cow<'_, str>) -> RateLimiter {
        let limiter = self.client.limiter_of_mapped(name.into_owned());
        limiter.with_options(HandleOptions {
            failure_policy: self.limiter.failure_policy(),
            ..self.options
        })
    }

    /// Sets what requests get while Redis is unavailable, instead of the client's setting. Earlier clones keep theirs.
    ///
    /// ```
    /// use redisson_rate_limiter::{FailurePolicy, LocalShare, Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let half = FailurePolicy::Local(LocalShare::one_of(2)?);
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(10, Duration::from_secs(1)))?
    ///     .with_failure_policy(half);
    /// assert_eq!(limiter.failure_policy(), half);
    /// assert_eq!(limiter.limiter("user:123").failure_policy(), half);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_failure_policy(self, policy: FailurePolicy) -> Self {
        Self {
            limiter: self.limiter.with_failure_policy(policy),
            ..self
        }
    }

    /// As [`RateLimiter::with_remember_denials`], for the limiters of all keys. The client keeps the answers for the 1,024
    /// keys that were denied last, so that a flood of requests for one key sends few calls.
    ///
    /// ```
    /// use redisson_rate_limiter::{Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("login:", Rate::overall(1, Duration::from_secs(1)))?
    ///     .with_remember_denials(Duration::from_secs(60));
    /// assert!(limiter.check("mallory", 1).await?.is_granted());
    /// assert!(!limiter.check("mallory", 1).await?.is_granted());
    /// tokio::time::advance(Duration::from_secs(1)).await; // permits that come back are never hidden
    /// assert!(limiter.check("mallory", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_remember_denials(mut self, at_most: Duration) -> Self {
        self.options.remember_denials = at_most;
        self
    }

    /// As [`RateLimiter::with_max_waiters`], for the limiter of each key.
    ///
    /// ```
    /// use redisson_rate_limiter::{Error, Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?
    ///     .with_max_waiters(1);
    /// limiter.acquire("user:123", 1).await?;
    /// let (waited, refused) = tokio::join!(limiter.acquire("user:123", 1), limiter.acquire("user:123", 1));
    /// waited?;
    /// assert!(matches!(refused, Err(Error::QueueFull { .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_max_waiters(mut self, max: usize) -> Self {
        self.options.max_waiters = max;
        self
    }

    /// As [`RateLimiter::with_fail_fast`], for the limiters of all keys.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?
    ///     .with_fail_fast(true);
    /// limiter.acquire("alice", 1).await?;
    /// let start = tokio::time::Instant::now();
    /// assert!(!limiter.try_acquire_timeout("alice", 1, Duration::from_secs(59)).await?);
    /// assert_eq!(start.elapsed(), Duration::ZERO);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_fail_fast(mut self, fail_fast: bool) -> Self {
        self.options.fail_fast = fail_fast;
        self
    }

    /// What requests get while Redis is unavailable.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert_eq!(limiter.failure_policy(), FailurePolicy::Error);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.limiter.failure_policy()
    }

    /// Takes permits of a key if they are available now, and returns the numbers that a response header or a retry needs.
    /// Creates the limiter in the same call.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.check("alice", 1).await?.is_granted());
    /// let denied = limiter.check("alice", 1).await?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`PolicyLimiter::check`].
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    #[doc(alias = "tryAcquire")]
    pub async fn check(&self, key: &str, cost: u32) -> Result<Decision> {
        let set_up = self.limiter.of_policy(SharedRate::set_up);
        self.check_by(key, cost, set_up).await
    }

    /// A request for permits of a key, as one part of a decision by several limiters: an argument of
    /// [`RedissonClient::check_all`]. Sends nothing.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.keyed_rate_limiter("user:", Rate::overall(1, Duration::from_secs(1)))?;
    /// let per_address = client.keyed_rate_limiter("address:", Rate::overall(5, Duration::from_secs(1)))?;
    /// let charges = || Ok::<_, Error>([per_user.charge("alice", 1)?, per_address.charge("192.0.2.1", 1)?]);
    /// assert!(client.check_all(charges()?).await?.is_granted());
    /// assert!(!client.check_all(charges()?).await?.is_granted()); // alice has no permit left
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Self::check) for invalid arguments.
    pub fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        self.limiter.charge(key, cost)
    }

    /// Decides as [`check`](Self::check), with a rate for this key, such as that of its user's plan.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Rate, RedissonClient};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let limiter = RedissonClient::in_memory().keyed_rate_limiter("api:", Rate::overall(1, minute))?;
    /// let large_plan = Rate::overall(100, minute);
    /// assert!(limiter.check_with_rate("user:123", 50, large_plan).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid rate.
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    #[doc(alias = "tryAcquire")]
    pub async fn check_with_rate(&self, key: &str, cost: u32, rate: Rate) -> Result<Decision> {
        let policy = SharedRate::with_rate(Arc::clone(&self.client_id), rate)?;
        self.check_by(key, cost, policy.set_up()).await
    }

    /// Waits for permits of a key, in the order of arrival in this process, as
    /// [`RateLimiter::acquire`](crate::RateLimiter::acquire) does. Creates the limiter as [`check`](Self::check)
    /// does, and again if it expires or is deleted in the meantime.
    ///
    /// ```
    /// # use redisson_rate_limiter::{Rate, RedissonClient};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// let start = tokio::time::Instant::now();
    /// limiter.acquire("user:123", 1).await?;
    /// limiter.acquire("user:123", 1).await?;
    /// assert_eq!(start.elapsed(), Duration::from_millis(1_003));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    pub async fn acquire(&self, key: &str, permits: u32) -> Result<()> {
        let limiter = self.validated(key, permits)?;
        let set_up = self.set_up_in_force();
        limiter.wait_set_up(permits, None, Some(set_up)).await?;
        Ok(())
    }

    /// Takes permits of a key if they are available now, and returns whether it did. Creates the limiter in the same call.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.try_acquire("alice", 1).await?);
    /// assert!(!limiter.try_acquire("alice", 1).await?);
    /// assert!(limiter.try_acquire("bob", 1).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire(&self, key: &str, permits: u32) -> Result<bool> {
        Ok(self.check(key, permits).await?.is_granted())
    }

    /// Waits for permits of a key as [`acquire`](Self::acquire) does; returns `false` if `timeout` passes first.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.try_acquire_timeout("alice", 1, Duration::from_millis(300)).await?);
    /// assert!(!limiter.try_acquire_timeout("alice", 1, Duration::from_millis(300)).await?);
    /// assert!(limiter.try_acquire_timeout("alice", 1, Duration::from_millis(900)).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check).
    ///
    /// # Cancel safety
    /// Dropping the future keeps no permit.
    #[doc(alias = "tryAcquire")]
    pub async fn try_acquire_timeout(
        &self,
        key: &str,
        permits: u32,
        timeout: Duration,
    ) -> Result<bool> {
        if timeout.is_zero() {
            return self.try_acquire(key, permits).await;
        }
        let limiter = self.validated(key, permits)?;
        let set_up = self.set_up_in_force();
        limiter
            .wait_set_up(permits, Some(timeout), Some(set_up))
            .await
    }

    async fn check_by(&self, key: &str, cost: u32, set_up: Option<SetUp>) -> Result<Decision> {
        let name = self.limiter.mapped_name(key);
        check_cost(cost, set_up.map(|it| it.settings.rate), &name)?;
        check_not_empty(&name)?;
        // Where a store answers at once, a queue for each request would cost more than the answer.
        let memory = self.client.store().in_memory();
        if let Some(answered) =
            memory.and_then(|it| it.acquire_now(&name, &self.client_id, cost, set_up))
        {
            let (id, answer) = answered?;
            return decision_alone(&name, id, cost, &answer);
        }
        Box::pin(self.ask(name, cost, set_up)).await
    }

    async fn ask(&self, name: Cow<'_, str>, cost: u32, set_up: Option<SetUp>) -> Result<Decision> {
        let limiter = self.limiter_of_mapped(name);
        let decision = limiter.check_set_up(cost, set_up).await?;
        if !decision.is_granted() {
            limiter.keep_denial(self.client.recent_denials());
        }
        Ok(decision)
    }

    fn set_up_in_force(&self) -> ReadSetUp {
        let policy = self.limiter.policy_in_force();
        Arc::new(move || policy().set_up())
    }

    /// The limiter of a key, once the cost is found good.
    fn validated(&self, key: &str, cost: u32) -> Result<RateLimiter> {
        let name = self.limiter.mapped_name(key);
        check_cost(cost, self.limiter.of_policy(Model::limit), &name)?;
        Ok(self.limiter_of_mapped(name))
    }

    /// The rate of the keys without a rate of their own.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert_eq!(limiter.rate(), Some(Rate::overall(1, Duration::from_secs(1))));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.limiter.policy().rate()
    }

    /// Changes the rate, for all clones of this limiter, while requests come in: each key's limiter gets it with its next
    /// request, and keeps its permits in use. Waiters get it with their next call.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(limiter.try_acquire("alice", 1).await?);
    /// limiter.set_rate(Rate::overall(3, Duration::from_secs(1)))?;
    /// assert_eq!(limiter.check("alice", 1).await?.remaining(), 1); // one of three was in use
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid rate; the old one stays.
    pub fn set_rate(&self, rate: Rate) -> Result<()> {
        let policy = SharedRate::with_rate(Arc::clone(&self.client_id), rate)?;
        self.limiter.set_policy(policy)
    }
}

#[async_trait]
impl Limiter for KeyedRateLimiter {
    async fn check(&self, key: &str, cost: u32) -> Result<Decision> {
        Self::check(self, key, cost).await
    }
}

impl Chargeable for KeyedRateLimiter {
    fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        Self::charge(self, key, cost)
    }
}

impl fmt::Debug for KeyedRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRateLimiter")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
