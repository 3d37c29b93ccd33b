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

/// [`RateLimiter`](crate::RateLimiter)s by key: from [`RedissonClient::keyed_rate_limiter`]. Cheap to clone; clones share
/// the rate.
///
/// The limiter of a key is the RRateLimiter of the name prefix + key, one that Redisson shares. A key may hold any text: what
/// no name may hold is written as [`PolicyLimiter`] does. Its first request sets it
/// up, in the same round trip. A limiter that has another rate gets this one, in the same round trip too: what is in use counts
/// on, a change of the [type](crate::RateType) forgets it. So all who use a prefix should agree on the rate of a key.
///
/// Made for millions of keys: a key that nobody asks for expires after the rate's [keep alive](Rate::keep_alive), and where it
/// has none, an interval after the last request, when all permits would be back anyway. A keep alive that the rate does not
/// name is left as a limiter has it.
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
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rate that cannot be, as for
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
    /// The limiter of a key, for all that [`RateLimiter`](crate::RateLimiter) can do, waiting included. It is created by the
    /// first [`check`](Self::check) or [`acquire`](Self::acquire), not by this.
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

    /// Sets what requests get while Redis is away, instead of the client's setting. Clones made before keep theirs.
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

    /// As [`RateLimiter::with_remember_denials`], for the limiters of all keys. The client keeps what it was told of the 1,024
    /// keys that were denied last, so that a key under attack costs no calls.
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
    #[must_use]
    pub fn with_fail_fast(mut self, fail_fast: bool) -> Self {
        self.options.fail_fast = fail_fast;
        self
    }

    /// What requests get while Redis is away.
    #[must_use]
    pub fn failure_policy(&self) -> FailurePolicy {
        self.limiter.failure_policy()
    }

    /// Whether the permits of a key are granted now, and what a response header or a retry needs to know. It creates the limiter
    /// in the same call.
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

    /// What a request on `key` takes where several limiters decide together: see [`RedissonClient::check_all`]. Sends nothing.
    ///
    /// # Errors
    /// As [`check`](Self::check), for what is wrong with the arguments.
    pub fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        self.limiter.charge(key, cost)
    }

    /// Decides as [`check`](Self::check), with a rate of the key's own, such as its user's plan.
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
    /// As [`check`](Self::check), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rate that cannot be.
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    #[doc(alias = "tryAcquire")]
    pub async fn check_with_rate(&self, key: &str, cost: u32, rate: Rate) -> Result<Decision> {
        let policy = SharedRate::with_rate(Arc::clone(&self.client_id), rate)?;
        self.check_by(key, cost, policy.set_up()).await
    }

    /// Waits until the permits of a key are granted, first come, first served in this process, as
    /// [`RateLimiter::acquire`](crate::RateLimiter::acquire) does. It creates the limiter as [`check`](Self::check)
    /// does, and again where it is lost while it waits.
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
        let limiter = self.checked(key, permits)?;
        let set_up = self.set_up_in_force();
        limiter.wait_set_up(permits, None, Some(set_up)).await?;
        Ok(())
    }

    /// Whether the permits of a key are granted now.
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

    /// Waits for the permits of a key as [`acquire`](Self::acquire) does, but no longer than `timeout`: `false` where they
    /// were not granted by then.
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
        let limiter = self.checked(key, permits)?;
        let set_up = self.set_up_in_force();
        limiter
            .wait_set_up(permits, Some(timeout), Some(set_up))
            .await
    }

    async fn check_by(&self, key: &str, cost: u32, set_up: Option<SetUp>) -> Result<Decision> {
        let name = self.limiter.mapped_name(key);
        check_cost(cost, set_up.map(|it| it.settings.rate), &name)?;
        check_not_empty(&name)?;
        // Where a store decides at once, a queue for each request would cost more than the decision.
        let memory = self.client.store().in_memory();
        if let Some(decided) =
            memory.and_then(|it| it.acquire_now(&name, &self.client_id, cost, set_up))
        {
            let (id, answer) = decided?;
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
    fn checked(&self, key: &str, cost: u32) -> Result<RateLimiter> {
        let name = self.limiter.mapped_name(key);
        check_cost(cost, self.limiter.of_policy(Model::limit), &name)?;
        Ok(self.limiter_of_mapped(name))
    }

    /// The rate of the keys that have none of their own.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.limiter.policy().rate()
    }

    /// Changes the rate while requests come in, for all clones of this limiter: each key's limiter gets it with its next
    /// request, and what is in use counts on. Waiters get it too, with their next call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a rate that cannot be: then the old one stays.
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
