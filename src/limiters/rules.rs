//! Rules of a service: which requests are limited, whom each counts for, and what a denied one
//! gets.

mod change;
#[cfg(feature = "serde")]
mod config;
mod deciding;
#[cfg(feature = "rules-file")]
mod file;
mod in_force;
mod rule;
mod targets;
mod verdict;

use std::fmt;
use std::slice;
use std::sync::{Arc, PoisonError, RwLock};

use super::joint::{refund_all, settle_all};
use super::{Limiter, Registry};
use crate::error::Result;
pub use change::RulesChange;
#[cfg(feature = "serde")]
pub use config::{RuleConfig, RulesConfig};
#[cfg(feature = "rules-file")]
pub use file::RulesFile;
use in_force::InForce;
pub use rule::{Plan, Rule};
pub(super) use targets::{Names, Targets};
pub use verdict::{RulesGrant, Verdict};

/// What is true of a limiter whatever the key is, is true of this one.
const ANY_KEY: &str = "key";

/// Rules that decide a request together: either all that apply grant it, or none is charged. From
/// [`RedissonClient::rules`](crate::RedissonClient::rules).
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule, TokenBucket, Verdict};
/// use std::time::Duration;
///
/// struct Request { user: Option<String>, address: String, bytes: u32 }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let logins = client
///     .policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?
///     .with_name("logins")
///     .with_prefix("login:")
///     .with_penalty(Duration::from_secs(600))?;
/// let traffic = client.policy_limiter(TokenBucket::per_second(100).with_capacity(1_000))?;
/// let rules = client.rules(vec![
///     Rule::new(
///         logins,
///         |request: &Request| request.user.clone(),
///         |_, _| "too many logins".to_owned(),
///     )
///     .and_by(|request| Some(request.address.clone())),
///     Rule::new(
///         traffic.with_name("traffic").with_prefix("traffic:"),
///         |request: &Request| Some(request.address.clone()),
///         |_, denied| format!("ask again in {:?}", denied.retry_after().unwrap_or_default()),
///     )
///     .cost(|request| request.bytes),
/// ])?;
///
/// let request = |user: Option<&str>, bytes| Request {
///     user: user.map(str::to_owned),
///     address: "192.0.2.1".to_owned(),
///     bytes,
/// };
/// assert!(matches!(rules.check(&request(Some("alice"), 500)).await?, Verdict::Granted(_)));
/// let Verdict::Rejected(why, _) = rules.check(&request(Some("alice"), 1)).await? else { panic!() };
/// assert_eq!(why, "too many logins");
/// // The denied login was not charged to the address.
/// assert!(matches!(rules.check(&request(None, 500)).await?, Verdict::Granted(_)));
/// let Verdict::Rejected(why, _) = rules.check(&request(None, 100)).await? else { panic!() };
/// assert_eq!(why, "ask again in 1s");
/// # Ok(()) }
/// ```
pub struct Rules<R, E> {
    registry: Arc<Registry>,
    in_force: RwLock<Arc<InForce<R, E>>>,
}

impl<R, E> Rules<R, E> {
    pub(crate) fn new(registry: Arc<Registry>, rules: Arc<[Rule<R, E>]>) -> Result<Self> {
        let in_force = InForce::none().replaced_by(&registry.store, rules, false)?;
        Ok(Self {
            registry,
            in_force: RwLock::new(Arc::new(in_force)),
        })
    }

    /// Replaces the rules while requests come in, and returns what has changed. A request in flight
    /// is decided by the old ones.
    ///
    /// A rule keeps what was used while its name, its algorithm and its keys stay: it is in the
    /// keys, where its limiter finds it. Otherwise it starts anew, and
    /// [`RulesChange::started_anew`] names it. Only the new rules decide.
    ///
    /// No limiter may have the keys of another algorithm that these rules have had since they were
    /// made, because what is stored there cannot be read. So give a limiter another prefix with
    /// another algorithm; rules from a file have the algorithm in their prefixes. To change the
    /// numbers of a limiter, see also
    /// [`PolicyLimiter::set_policy`](crate::PolicyLimiter::set_policy).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let none: [Rule<&str, i32>; 0] = [];
    /// let change = rules.replace(none)?;
    /// assert_eq!(change.removed.len(), 1);
    /// assert_eq!(rules.check(&"alice").await?, Verdict::Granted(RulesGrant::default()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::rules`](crate::RedissonClient::rules); the old rules stay.
    pub fn replace(&self, rules: impl Into<Arc<[Rule<R, E>]>>) -> Result<RulesChange> {
        let store = &self.registry.store;
        self.change(|before| before.replaced_by(store, rules.into(), before.is_shadow))
    }

    /// Puts rules in force, made of those before, in one step: no request is decided in between.
    fn change(
        &self,
        next: impl FnOnce(&InForce<R, E>) -> Result<InForce<R, E>>,
    ) -> Result<RulesChange> {
        // If a name mapper panics, the old ones stay.
        let mut in_force = self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let next = next(&in_force)?;
        let change = RulesChange::between(&in_force, &next);
        *in_force = Arc::new(next);
        Ok(change)
    }

    /// [Replaces](Self::replace) the rules by those of a file, read again, and in the same step
    /// [sets the shadow mode](Self::set_shadow) that it says: with the feature `rules-file`.
    /// [`RulesFile`] shows how.
    ///
    /// # Errors
    /// As [`RedissonClient::rules_from`](crate::RedissonClient::rules_from); the old rules stay.
    #[cfg(feature = "rules-file")]
    pub fn replace_from(&self, file: &RulesFile<R, E>) -> Result<RulesChange>
    where
        R: 'static,
        E: 'static,
    {
        let (rules, is_shadow) = file.read(&self.registry)?;
        let store = &self.registry.store;
        self.change(|before| before.replaced_by(store, rules.into(), is_shadow))
    }

    /// Sets all rules in [shadow mode](Rule::in_shadow), or ends that: nothing is enforced, and
    /// each request is decided and counted as before. Those that are in shadow mode by themselves
    /// stay so.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// rules.set_shadow(true);
    /// for _ in 0..2 {
    ///     assert_eq!(rules.check(&"alice").await?.decision(), None); // nothing is enforced
    /// }
    /// rules.set_shadow(false);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected(429, _)));
    /// # Ok(()) }
    /// ```
    pub fn set_shadow(&self, is_shadow: bool) {
        // It cannot fail: the rules are in force already.
        let _ = self.change(|before| Ok(before.in_shadow(is_shadow)));
    }

    /// Decides a request by all rules that apply to it, in one round trip, or on a cluster in some
    /// more, as [`check_all`](crate::RedissonClient::check_all) does; if rules in [shadow
    /// mode](Rule::in_shadow) apply, a request that the others grant takes another one. A granted
    /// request may proceed when this returns, as with `check_all`; it waits for no turn that a rule
    /// in shadow mode gives.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let verdict = rules.check(&"alice").await?;
    /// assert_eq!(verdict.decision().expect("a rule applies").deciding().1.remaining(), 0);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected(429, _)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    pub async fn check(&self, request: &R) -> Result<Verdict<E>> {
        self.check_all(slice::from_ref(request)).await
    }

    /// Gives back what these rules have charged for a request, those in [shadow
    /// mode](Rule::in_shadow) too, as
    /// [`RedissonClient::refund_all`](crate::RedissonClient::refund_all), and returns how many
    /// permits of rules of both modes.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let Verdict::Granted(granted) = rules.check(&"alice").await? else { panic!() };
    /// assert_eq!(rules.refund(granted).await?, 1);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    pub async fn refund(&self, granted: impl Into<RulesGrant> + Send) -> Result<u64> {
        let (mut refunded, mut failure) = (0, None);
        for decision in granted.into().into_decisions() {
            match refund_all(&self.registry, decision).await {
                Ok(permits) => refunded += permits,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(refunded), Err)
    }

    /// Gives back what these rules have charged for a request that is gone, as
    /// [`refund`](Self::refund), in the background: see
    /// [`Limiter::refund_in_background`](crate::Limiter::refund_in_background).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let Verdict::Granted(granted) = rules.check(&"alice").await? else { panic!() };
    /// rules.refund_in_background(granted);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub fn refund_in_background(&self, granted: impl Into<RulesGrant>) {
        for decision in granted.into().into_decisions() {
            for (name, grant) in decision.grants() {
                let limiter = self.registry.rate_limiter(&name);
                limiter.refund_in_background(&name, grant);
            }
        }
    }

    /// Corrects what these rules have charged for a request, those in [shadow
    /// mode](Rule::in_shadow) too, once the costs are known, as
    /// [`Limiter::settle`](crate::Limiter::settle) does: `cost` has what the request should have
    /// cost, by the rule's name and the place of the [part](Self::check_all) of the request, which
    /// is 0 where it has one, or `None` for a charge that is right. Of parts that were charged
    /// together it is the place of the first one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let client = RedissonClient::in_memory();
    /// let requests = client.policy_limiter(FixedWindow::new(10, minute))?.with_name("requests");
    /// let requests = requests.with_prefix("requests:");
    /// let tokens = client.keyed_rate_limiter("tokens:", Rate::overall(1_000, minute))?.with_name("tokens");
    /// let user = |user: &&str| Some(user.to_string());
    /// let rules = client.rules([
    ///     Rule::new(requests, user, |_, _| 429),
    ///     Rule::new(tokens.clone(), user, |_, _| 429).cost(|_| 500),
    /// ])?;
    /// let Verdict::Granted(granted) = rules.check(&"alice").await? else { panic!() };
    /// rules.settle(granted, |rule, _| (rule == "tokens").then_some(120)).await?;
    /// assert_eq!(tokens.rate_limiter("alice").available_permits().await?, 880);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Limiter::settle`](crate::Limiter::settle), once each charge was tried.
    ///
    /// # Cancel safety
    /// If the future is dropped, some charges may not have been corrected.
    pub async fn settle(
        &self,
        granted: impl Into<RulesGrant> + Send,
        cost: impl Fn(&str, usize) -> Option<u32> + Send,
    ) -> Result<()> {
        let mut failure = None;
        for decision in granted.into().into_decisions() {
            if let Err(error) = settle_all(decision, &cost).await {
                failure = failure.or(Some(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl<R, E> fmt::Debug for Rules<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("rules", &self.in_force)
            .finish_non_exhaustive()
    }
}
