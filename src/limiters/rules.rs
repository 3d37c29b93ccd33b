//! Rules of a service: which requests are limited, whom each counts for, and what a denied one gets.

#[cfg(feature = "serde")]
mod config;
mod deciding;
#[cfg(feature = "rules-file")]
mod file;
mod in_force;
mod rule;

use std::fmt;
use std::slice;
use std::sync::{Arc, PoisonError, RwLock};

use super::joint::{JointDecision, refund_all, settle_all};
use super::{Limiter, Registry};
use crate::error::Result;
#[cfg(feature = "serde")]
pub use config::{RuleConfig, RulesConfig};
#[cfg(feature = "rules-file")]
pub use file::RulesFile;
use in_force::InForce;
pub use rule::{Plan, Rule};

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
///     .with_penalty(Duration::from_secs(600))?;
/// let traffic = client.policy_limiter(TokenBucket::per_second(100).with_capacity(1_000))?.with_name("traffic");
/// let rules = client.rules(vec![
///     Rule::new(
///         logins,
///         |request: &Request| request.user.as_ref().map(|user| format!("login:{user}")),
///         |_, _| "too many logins".to_owned(),
///     )
///     .and_by(|request| Some(request.address.clone())),
///     Rule::new(
///         traffic,
///         |request: &Request| Some(format!("traffic:{}", request.address)),
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

/// What the rules decide about a request.
///
/// Like [`Decision`](crate::Decision), it is not `#[non_exhaustive]`: granted and rejected are all there is.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule, Verdict};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let per_user = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
/// let rules = client.rules([Rule::new(per_user, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
/// let status = |verdict| match verdict {
///     Verdict::Granted(_) => 200,
///     Verdict::Rejected(status, _) => status,
/// };
/// assert_eq!(status(rules.check(&"alice").await?), 200);
/// assert_eq!(status(rules.check(&"alice").await?), 429);
/// # Ok(()) }
/// ```
#[must_use = "a request that was rejected must not go on"]
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<E> {
    /// All rules that apply and are enforced granted it, with the decision of each, by the name of its limiter; `None` if
    /// there is no such rule.
    Granted(Option<JointDecision>),
    /// A rule denied it, and no rule charged it: the rejection of the rule that [decides](JointDecision::deciding), and the
    /// decision of each.
    Rejected(E, JointDecision),
}

impl<R, E> Rules<R, E> {
    pub(crate) fn new(registry: Arc<Registry>, rules: Arc<[Rule<R, E>]>) -> Result<Self> {
        let in_force = InForce::new(&registry.store, rules, false, None)?;
        Ok(Self {
            registry,
            in_force: RwLock::new(Arc::new(in_force)),
        })
    }

    /// Replaces the rules while requests come in. A request in flight is decided by the old ones.
    ///
    /// What the targets have used still counts. It is in the keys of the limiters, and a rule whose limiter has the same
    /// algorithm and prefix as before finds it there. If the limiter of a rule, or of its plan, has other keys than the one
    /// of the same name before, as it must if its algorithm changes, the one before takes part in the decisions too until its
    /// window and its penalty have passed. Until then a request is granted only if both grant it; the decision has the stricter
    /// answer of the two, and an [event](crate::Event::Request) both, that of the one before with ` (replaced)` behind its name. Keys
    /// that the limiter of another rule uses now are counted by that rule alone. To change the numbers of a limiter, see also [`PolicyLimiter::set_policy`](crate::PolicyLimiter::set_policy).
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
    /// rules.replace(none)?;
    /// assert_eq!(rules.check(&"alice").await?, Verdict::Granted(None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::rules`](crate::RedissonClient::rules); the old rules stay.
    pub fn replace(&self, rules: impl Into<Arc<[Rule<R, E>]>>) -> Result<()> {
        self.change(|before| {
            let store = &self.registry.store;
            InForce::new(store, rules.into(), before.is_shadow, Some(before))
        })
    }

    /// Puts rules in force, made of those before, in one step: no request is decided in between.
    fn change(&self, next: impl FnOnce(&InForce<R, E>) -> Result<InForce<R, E>>) -> Result<()> {
        // If a name mapper panics, the old ones stay.
        let mut in_force = self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *in_force = Arc::new(next(&in_force)?);
        Ok(())
    }

    /// [Replaces](Self::replace) the rules by those of a file, read again, and in the same step [sets the shadow
    /// mode](Self::set_shadow) that it says: with the feature `rules-file`. [`RulesFile`] shows how.
    ///
    /// # Errors
    /// As [`RedissonClient::rules_from`](crate::RedissonClient::rules_from); the old rules stay.
    #[cfg(feature = "rules-file")]
    pub fn replace_from(&self, file: &RulesFile<R, E>) -> Result<()>
    where
        R: 'static,
        E: 'static,
    {
        let (rules, is_shadow) = file.read(&self.registry)?;
        self.change(|before| {
            InForce::new(&self.registry.store, rules.into(), is_shadow, Some(before))
        })
    }

    /// Sets all rules in [shadow mode](Rule::in_shadow), or ends that: nothing is enforced, and each request is decided and
    /// counted as before. Those that are in shadow mode by themselves stay so.
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
    ///     assert_eq!(rules.check(&"alice").await?, Verdict::Granted(None));
    /// }
    /// rules.set_shadow(false);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected(429, _)));
    /// # Ok(()) }
    /// ```
    pub fn set_shadow(&self, is_shadow: bool) {
        // It cannot fail: the rules are in force already.
        let _ = self.change(|before| Ok(before.in_shadow(is_shadow)));
    }

    /// Decides a request by all rules that apply to it, in one round trip, or on a cluster in some more, as
    /// [`check_all`](crate::RedissonClient::check_all) does; if rules in [shadow mode](Rule::in_shadow) apply, a request that the
    /// others grant takes another one. A granted request may proceed when this returns, as with `check_all`; it waits for no
    /// turn that a rule in shadow mode gives.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let Verdict::Granted(Some(decision)) = rules.check(&"alice").await? else { panic!() };
    /// assert_eq!(decision.deciding().1.remaining(), 0);
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

    /// Gives back every grant of a decision of these rules, as [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let Verdict::Granted(Some(decision)) = rules.check(&"alice").await? else { panic!() };
    /// assert_eq!(rules.refund(decision).await?, 1);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    pub async fn refund(&self, decision: JointDecision) -> Result<u64> {
        refund_all(&self.registry, decision).await
    }

    /// Gives back what a decision of these rules has granted to a request that is gone, as [`refund`](Self::refund), in the
    /// background: see [`Limiter::refund_in_background`](crate::Limiter::refund_in_background).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// let Verdict::Granted(Some(decision)) = rules.check(&"alice").await? else { panic!() };
    /// rules.refund_in_background(decision);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub fn refund_in_background(&self, decision: JointDecision) {
        for (name, grant) in decision.grants() {
            let limiter = self.registry.rate_limiter(&name);
            limiter.refund_in_background(&name, grant);
        }
    }

    /// Corrects what a decision of these rules has charged, once the costs are known, as [`Limiter::settle`](crate::Limiter::settle)
    /// does: `cost` has what the request should have cost, by the rule's name and the place of the [part](Self::check_all) of the
    /// request, which is 0 where it has one, or `None` for a charge that is right. Of parts that were charged together it is the
    /// place of the first one.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let minute = Duration::from_secs(60);
    /// let client = RedissonClient::in_memory();
    /// let requests = client.policy_limiter(FixedWindow::new(10, minute))?.with_name("requests");
    /// let tokens = client.keyed_rate_limiter("tokens:", Rate::overall(1_000, minute))?.with_name("tokens");
    /// let user = |user: &&str| Some(user.to_string());
    /// let rules = client.rules([
    ///     Rule::new(requests, user, |_, _| 429),
    ///     Rule::new(tokens.clone(), user, |_, _| 429).cost(|_| 500),
    /// ])?;
    /// let Verdict::Granted(Some(decision)) = rules.check(&"alice").await? else { panic!() };
    /// rules.settle(decision, |rule, _| (rule == "tokens").then_some(120)).await?;
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
        decision: JointDecision,
        cost: impl Fn(&str, usize) -> Option<u32> + Send,
    ) -> Result<()> {
        settle_all(decision, cost).await
    }
}

impl<R, E> fmt::Debug for Rules<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("rules", &self.in_force)
            .finish_non_exhaustive()
    }
}
