//! A limiter for each key: RRateLimiters of one prefix, set up by their first request.

mod leased;
mod waiting;

use std::sync::Arc;

use super::chargeable::sealed::{self, Internal};
use super::limiter::at_once;
use super::targets::Targets;
use super::{Charge, Chargeable, Limiter, PolicyLimiter, RateLimiter, Registry};
use crate::box_future::BoxFuture;
use crate::decision::{Decision, decision_alone};
use crate::error::Result;
use crate::grant::Grant;
use crate::limiter_options::LimiterOptions;
use crate::policies::algorithm::Algorithm;
use crate::policies::shared_rate::SharedRate;
use crate::rate::Rate;

/// A [`RateLimiter`](crate::RateLimiter) for each key: from
/// [`RedissonClient::keyed_rate_limiter`](crate::RedissonClient::keyed_rate_limiter). Cheap to
/// clone; clones share the rate.
///
/// The limiter of a key is the `RRateLimiter` with the name prefix + key, which Redisson can share.
/// A key may be any text: characters that a name cannot contain are escaped as by
/// [`PolicyLimiter`]. The first request for a key creates its limiter, and a limiter with another
/// rate gets this one, in the same round trip: the permits in use are kept, unless the
/// [type](crate::RateType) changes. So all clients that use a prefix should agree on the rate of a
/// key.
///
/// It is made for millions of keys: the limiter of a key without requests expires after the rate's
/// [keep alive](Rate::keep_alive); without one, an interval after the last request, when all
/// permits would be back anyway. A keep alive that the rate does not set stays as the limiter has
/// it, unless it is shorter than the interval. Requests never make it shorter, so that the permits
/// in use count on for another version of a service with a longer interval.
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
#[derive(Debug, Clone)]
pub struct KeyedRateLimiter(PolicyLimiter<Rate>);

impl KeyedRateLimiter {
    pub(crate) fn new(registry: Arc<Registry>, prefix: &str, rate: Rate) -> Result<Self> {
        let owned = SharedRate::owned(Arc::clone(&registry.client_id), rate)?;
        let limiter = PolicyLimiter::by(registry, rate, owned.into());
        Ok(Self(limiter.with_prefix(prefix)))
    }

    /// The limiter of a key, with all methods of [`RateLimiter`](crate::RateLimiter). This does not
    /// create it: the first [`check`](Self::check) or [`acquire`](Self::acquire) does. Its methods
    /// refuse an empty key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// let alice = limiter.rate_limiter("alice");
    /// assert_eq!(alice.name(), "mail:alice");
    /// assert!(!alice.exists().await?);
    /// limiter.check("alice", 1).await?;
    /// assert_eq!(alice.available_permits().await?, 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rate_limiter(&self, key: &str) -> RateLimiter {
        self.0.rate_limiter(&self.0.mapped_name(key))
    }

    /// This limiter with options of its own, for the limiters of all keys. Those that `options`
    /// does not set stay as they are.
    ///
    /// ```
    /// use redisson_rate_limiter::{LimiterOptions, Rate, RedissonClient};
    /// use std::time::Duration;
    ///
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let options = LimiterOptions::new().max_waiters(100);
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(10, Duration::from_secs(1)))?
    ///     .with_options(options.clone());
    /// assert_eq!(*limiter.rate_limiter("user:123").options(), options);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_options(self, options: LimiterOptions) -> Self {
        Self(self.0.with_options(options))
    }

    /// Names this limiter, for [joint decisions](crate::JointDecision), [rules](crate::Rules) and
    /// metrics. The name is no part of a key. Earlier clones keep theirs.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert_eq!(limiter.name(), "mail:");
    /// assert_eq!(limiter.with_name("mails of a user").name(), "mails of a user");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_name(self, name: impl Into<Arc<str>>) -> Self {
        Self(self.0.with_name(name))
    }

    /// The name that was [given](Self::with_name) to this limiter, or else its prefix.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Lets an empty key be a key as any other: the limiter whose name is the prefix. Without this
    /// it is refused.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(1)))?;
    /// assert!(matches!(limiter.check("", 1).await, Err(Error::InvalidName { .. })));
    /// assert!(limiter.accept_empty_key().check("", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn accept_empty_key(self) -> Self {
        Self(self.0.accept_empty_key())
    }

    /// The options set for this limiter, or for all limiters of its client.
    pub fn options(&self) -> &LimiterOptions {
        self.0.options()
    }

    /// Takes permits of a key if they are available now, and returns the numbers that a response
    /// header or a retry needs. Creates the limiter in the same call.
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
        let reported = self.0.reported(cost);
        let set_up = self.0.of_algorithm(Algorithm::set_up);
        let answer = match self.0.acquire_now(key, cost, set_up) {
            Ok(Some((id, answer))) if reported.is_off() => {
                return decision_alone(key, id, cost, &answer);
            }
            Ok(Some((id, answer))) => decision_alone(key, id, cost, &answer),
            Ok(None) => {
                let queue_time = reported.queue_time();
                let asking = self.0.ask_shared(key, cost, set_up, &queue_time);
                asking.await
            }
            Err(error) => Err(error),
        };
        reported.ended(answer)
    }

    /// A request for permits of a key, as one part of a decision by several limiters: an argument
    /// of [`RedissonClient::check_all`](crate::RedissonClient::check_all). Sends nothing.
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
        self.0.charge(key, cost)
    }

    /// Returns what [`check`](Self::check) would return now, and takes nothing, as
    /// [`RateLimiter::peek`](crate::RateLimiter::peek). Does not create the limiter.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(3, Duration::from_secs(1)))?;
    /// assert_eq!(limiter.peek("alice", 1).await?.remaining(), 2);
    /// assert_eq!(limiter.check("alice", 1).await?.remaining(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`check`](Self::check). The [`FailurePolicy`](crate::FailurePolicy) applies as there.
    ///
    /// # Cancel safety
    /// Reads only: dropping the future has no effect.
    pub async fn peek(&self, key: &str, cost: u32) -> Result<Decision> {
        self.0.peek(key, cost).await
    }

    /// Forgets the permits of a key that are in use, as
    /// [`RateLimiter::reset`](crate::RateLimiter::reset): all of its permits are available. Returns
    /// whether there was anything to forget.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let limiter = RedissonClient::in_memory()
    ///     .keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// assert!(limiter.check("alice", 1).await?.is_granted());
    /// assert!(limiter.reset("alice").await?);
    /// assert!(limiter.check("alice", 1).await?.is_granted());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::reset`](crate::RateLimiter::reset).
    ///
    /// # Cancel safety
    /// As [`RateLimiter::reset`](crate::RateLimiter::reset).
    pub async fn reset(&self, key: &str) -> Result<bool> {
        self.rate_limiter(key).reset().await
    }

    /// Decides as [`check`](Self::check), with a rate for this key, such as that of its user's
    /// plan.
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
    /// As [`check`](Self::check), and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for
    /// an invalid rate.
    ///
    /// # Cancel safety
    /// As [`check`](Self::check).
    #[doc(alias = "tryAcquire")]
    pub async fn check_with_rate(&self, key: &str, cost: u32, rate: Rate) -> Result<Decision> {
        let reported = self.0.reported(cost);
        let queue_time = reported.queue_time();
        let decided = async {
            let policy = self.owned(rate)?;
            let set_up = policy.set_up();
            let asking = self.0.check_shared(key, cost, set_up, &queue_time);
            asking.await
        };
        reported.ended(decided.await)
    }

    /// A request as by [`charge`](Self::charge), with a rate for this key, as
    /// [`check_with_rate`](Self::check_with_rate). With
    /// [`peek_all`](crate::RedissonClient::peek_all) it says what that would return.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.keyed_rate_limiter("user:", Rate::overall(1, minute))?;
    /// let per_address = client.keyed_rate_limiter("address:", Rate::overall(500, minute))?;
    /// let large_plan = Rate::overall(100, minute);
    /// let charges = [
    ///     per_user.charge_with_rate("alice", 50, large_plan)?,
    ///     per_address.charge("192.0.2.1", 50)?,
    /// ];
    /// let decision = client.check_all(charges).await?;
    /// assert_eq!(decision.decisions()[0].limit(), 100);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`check_with_rate`](Self::check_with_rate) for invalid arguments.
    pub fn charge_with_rate(&self, key: &str, cost: u32, rate: Rate) -> Result<Charge> {
        let policy = self.owned(rate)?;
        self.0.charge_by(Arc::new(policy.into()), key, cost)
    }

    /// The rate of the keys without a rate of their own.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        Some(self.0.policy())
    }

    /// Changes the rate, for all clones of this limiter, while requests come in: each key's limiter
    /// gets it with its next request, and keeps its permits in use. Waiters get it with their next
    /// call.
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
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for an invalid rate; the old one
    /// stays.
    pub fn set_rate(&self, rate: Rate) -> Result<()> {
        let owned = self.owned(rate)?;
        self.0.replace_policy(rate, owned.into())
    }

    fn owned(&self, rate: Rate) -> Result<SharedRate> {
        SharedRate::owned(Arc::clone(&self.0.registry.client_id), rate)
    }
}

impl Limiter for KeyedRateLimiter {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn check<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(Self::check(self, key, cost))
    }

    fn check_now(&self, key: &str, cost: u32) -> Option<Result<Decision>> {
        self.0
            .is_in_memory()
            .then(|| at_once(Self::check(self, key, cost)))?
    }

    fn refund<'a>(&'a self, key: &'a str, grant: Grant) -> BoxFuture<'a, Result<u32>> {
        self.0.refund(key, grant)
    }

    fn refund_in_background(&self, key: &str, grant: Grant) {
        self.0.refund_in_background(key, grant);
    }

    fn settle<'a>(&'a self, key: &'a str, grant: Grant, cost: u32) -> BoxFuture<'a, Result<()>> {
        self.0.settle(key, grant, cost)
    }
}

impl Chargeable for KeyedRateLimiter {
    fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        Self::charge(self, key, cost)
    }
}

impl sealed::Chargeable for KeyedRateLimiter {
    fn rate_limiter(&self, key: &str, _: Internal) -> Option<RateLimiter> {
        Some(Self::rate_limiter(self, key))
    }

    fn targets(&self, internal: Internal) -> Targets {
        self.0.targets(internal)
    }
}
