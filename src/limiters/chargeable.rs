//! Limiters that can decide together.

use std::sync::Arc;

use self::sealed::Internal;
use super::charge::Charge;
use super::limiter::Limiter;
use super::rate_limiter::RateLimiter;
use super::targets::{Names, Targets};
use crate::error::Result;
use crate::policies::shared_rate::SharedRate;

/// A [`Limiter`] that can decide together with others, in one atomic step: one of this crate's.
///
/// The trait is sealed. A decision by several limiters is one script, in which either all of them
/// are charged or none. A limiter of your own is asked by a call of its own, and could not take its
/// charge back exactly when another limiter denies. So the compiler refuses it in a
/// [`Rule`](crate::Rule):
///
/// ```compile_fail,E0277
/// use redisson_rate_limiter::{BoxFuture, Decision, Limiter, Result, Rule};
///
/// #[derive(Debug)]
/// struct Own;
///
/// impl Limiter for Own {
///     fn check<'a>(&'a self, key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
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
///     Box::new(client.policy_limiter(TokenBucket::per_second(1))?.with_prefix("second:")),
///     Box::new(client.policy_limiter(FixedWindow::new(5, Duration::from_secs(60)))?.with_prefix("minute:")),
/// ];
/// let charges: Vec<Charge> = limiters.iter().map(|it| it.charge("alice", 1)).collect::<Result<_>>()?;
/// assert!(client.check_all(charges).await?.is_granted());
/// # Ok(()) }
/// ```
pub trait Chargeable: Limiter + sealed::Chargeable {
    /// A request of `cost` (at least 1) for the target `key`, as one part of a decision by several
    /// limiters: an argument of [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    /// Sends nothing.
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
    /// let per_user = client.policy_limiter(TokenBucket::per_second(1))?;
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

impl<L: Chargeable + ?Sized> Chargeable for Arc<L> {
    fn charge(&self, key: &str, cost: u32) -> Result<Charge> {
        L::charge(self, key, cost)
    }
}

impl<L: Chargeable + ?Sized> sealed::Chargeable for Arc<L> {
    fn rate_limiter(&self, key: &str, internal: Internal) -> Option<RateLimiter> {
        sealed::Chargeable::rate_limiter(&**self, key, internal)
    }

    fn gives_turns(&self, internal: Internal) -> bool {
        L::gives_turns(self, internal)
    }

    fn targets(&self, internal: Internal) -> Targets {
        L::targets(self, internal)
    }
}

impl Chargeable for RateLimiter {
    fn charge(&self, _key: &str, cost: u32) -> Result<Charge> {
        Self::charge(self, cost)
    }
}

impl sealed::Chargeable for RateLimiter {
    fn rate_limiter(&self, _key: &str, _: Internal) -> Option<RateLimiter> {
        Some(self.clone().with_set_up(None))
    }

    fn targets(&self, _: Internal) -> Targets {
        Targets {
            names: Names::Is(self.name().to_owned()),
            algorithm: SharedRate::NAME,
        }
    }
}

pub(super) mod sealed {
    use crate::limiters::rate_limiter::RateLimiter;
    use crate::limiters::targets::Targets;

    pub trait Chargeable {
        /// The RRateLimiter that decides for a key, with this limiter's options. It may be missing
        /// in the store, and the returned handle does not create it. `None` if this limiter has
        /// another algorithm.
        fn rate_limiter(&self, key: &str, _: Internal) -> Option<RateLimiter>;

        /// Whether a granted request may have to wait for its turn.
        fn gives_turns(&self, _: Internal) -> bool {
            false
        }

        /// The names of this limiter's targets, and their algorithm.
        fn targets(&self, _: Internal) -> Targets;
    }

    /// The argument of methods that only this crate may call: a generic function elsewhere has them
    /// in scope.
    #[derive(Debug, Clone, Copy)]
    pub struct Internal(());

    pub(crate) const INTERNAL: Internal = Internal(());
}
