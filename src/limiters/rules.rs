//! Rules of a service: which requests are limited, by what they are counted, and how much they may
//! have.
//!
//! ```layers
//! deciding read
//! change
//! in_force
//! config verdict
//! source
//! raw
//! rule
//! condition
//! attributes values
//! ```

mod attributes;
mod change;
mod condition;
#[cfg(feature = "serde")]
mod config;
mod deciding;
mod in_force;
#[cfg(feature = "serde")]
mod raw;
#[cfg(any(feature = "toml", feature = "yaml"))]
mod read;
mod rule;
#[cfg(feature = "serde")]
#[cfg_attr(
    not(any(feature = "toml", feature = "yaml")),
    expect(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "there is no format to read a text in"
    )
)]
mod source;
mod values;
mod verdict;

use std::slice;
use std::sync::{Arc, PoisonError, RwLock};

use super::Registry;
use super::joint::{JointDecision, refund_all, settle_all};
use crate::error::Result;
pub use attributes::Attributes;
pub use change::RulesChange;
#[cfg(feature = "serde")]
pub use config::{RuleConfig, RuleLimit, RulesConfig};
use in_force::InForce;
#[cfg(feature = "serde")]
pub use rule::RuleCost;
pub use rule::{Ending, Plan, Rule};
pub use verdict::{RulesGrant, Verdict};

/// Rules that decide a request together: either all that apply grant it, or none is charged. From
/// [`RedissonClient::rules`](crate::RedissonClient::rules).
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule, TokenBucket, Verdict};
/// use std::time::Duration;
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
/// let traffic = traffic.with_name("traffic").with_prefix("traffic:");
/// let rules = client.rules([
///     Rule::new(logins).when("path", ["/login"]).by(["user", "address"]),
///     Rule::new(traffic).by(["address"]).cost_from("bytes"),
/// ])?;
///
/// let login = |bytes| [("path", "/login"), ("user", "alice"), ("address", "192.0.2.1"), ("bytes", bytes)];
/// let order = |bytes| [("path", "/orders"), ("address", "192.0.2.1"), ("bytes", bytes)];
/// assert!(matches!(rules.check(&login("500")).await?, Verdict::Granted(_)));
/// let Verdict::Denied(by) = rules.check(&login("1")).await? else { panic!() };
/// assert_eq!(by.deciding().0, "logins");
/// // The denied login was not charged to the address.
/// assert!(matches!(rules.check(&order("500")).await?, Verdict::Granted(_)));
/// let Verdict::Denied(by) = rules.check(&order("100")).await? else { panic!() };
/// assert_eq!(by.deciding().1.retry_after(), Some(Duration::from_secs(1)));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Rules {
    registry: Arc<Registry>,
    in_force: RwLock<Arc<InForce>>,
}

impl Rules {
    pub(crate) fn new(registry: Arc<Registry>, rules: Arc<[Rule]>) -> Result<Self> {
        let in_force = InForce::default().replaced_by(&registry.store, rules, false)?;
        Ok(Self {
            registry,
            in_force: RwLock::new(Arc::new(in_force)),
        })
    }

    /// Replaces the rules while requests come in, and returns what has changed. A request in flight
    /// is decided by the old ones.
    ///
    /// A rule keeps what was used while its name, its algorithm and its keys stay, because the keys
    /// hold it. Otherwise it starts anew, and [`RulesChange::started_anew`] names it. Only the new
    /// rules decide.
    ///
    /// No limiter may have the keys of another algorithm that these rules have had since they were
    /// made, because what is stored there cannot be read. So give a limiter another prefix with
    /// another algorithm; those of a configuration have the algorithm in their prefixes. To change
    /// the numbers of a limiter, see also
    /// [`PolicyLimiter::set_policy`](crate::PolicyLimiter::set_policy).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins).by(["user"])])?;
    /// let change = rules.replace([])?;
    /// assert_eq!(change.removed.len(), 1);
    /// assert_eq!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(RulesGrant::default()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::rules`](crate::RedissonClient::rules); the old rules stay.
    pub fn replace(&self, rules: impl Into<Arc<[Rule]>>) -> Result<RulesChange> {
        let store = &self.registry.store;
        self.change(|before| before.replaced_by(store, rules.into(), before.is_shadow))
    }

    /// Replaces the rules in force by those that `next` makes of them, in one step: no request is
    /// decided in between.
    fn change(&self, next: impl FnOnce(&InForce) -> Result<InForce>) -> Result<RulesChange> {
        // If a name mapper panics, the old rules stay.
        let mut in_force = self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let next = next(&in_force)?;
        let change = RulesChange::between(&in_force, &next);
        *in_force = Arc::new(next);
        Ok(change)
    }

    /// [Replaces](Self::replace) the rules by those of a configuration, and in the same step [sets
    /// the shadow mode](Self::set_shadow) that it says: with the feature `serde`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = |limit: &str| -> serde_json::Result<RulesConfig> {
    ///     serde_json::from_str(&format!(r#"{{ "rules": [{{ "name": "all", "limit": {limit} }}] }}"#))
    /// };
    /// let rules = RedissonClient::in_memory().rules_from(&config(r#""block""#)?)?;
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Denied(_)));
    /// let change = rules.replace_from(&config(r#""allow""#)?)?; // such as at SIGHUP
    /// assert_eq!(change.changed, ["all"]);
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::rules_from`](crate::RedissonClient::rules_from); the old rules stay.
    #[cfg(feature = "serde")]
    pub fn replace_from(&self, config: &RulesConfig) -> Result<RulesChange> {
        let rules = config.rules(&self.registry)?;
        let store = &self.registry.store;
        self.change(|before| before.replaced_by(store, rules.into(), config.shadow))
    }

    /// The rules in force.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<()> {
    /// let rules = RedissonClient::in_memory().rules([Rule::block("banned").by(["user"])])?;
    /// assert_eq!(rules.in_force()[0].name(), "banned");
    /// # Ok(()) }
    /// ```
    pub fn in_force(&self) -> Arc<[Rule]> {
        Arc::clone(&self.current().rules)
    }

    /// Sets all rules in [shadow mode](Rule::in_shadow), or ends that: nothing is enforced, and
    /// each request is decided and counted as before. Rules that are in shadow mode by themselves
    /// stay in it.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins).by(["user"])])?;
    /// rules.set_shadow(true);
    /// for _ in 0..2 {
    ///     assert_eq!(rules.check(&[("user", "alice")]).await?.decision(), None); // nothing is enforced
    /// }
    /// rules.set_shadow(false);
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    pub fn set_shadow(&self, is_shadow: bool) {
        // The change cannot fail: the rules are in force already.
        let _ = self.change(|before| Ok(before.in_shadow(is_shadow)));
    }

    /// Decides a request by all rules that apply to it, in one round trip, or in several on a
    /// cluster, as [`check_all`](crate::RedissonClient::check_all) does. If rules in [shadow
    /// mode](Rule::in_shadow) apply and the others grant the request, it takes one more round trip.
    /// A granted request may proceed when this returns, as with `check_all`; this does not wait for
    /// a turn that a rule in shadow mode gives.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins).by(["user"])])?;
    /// let verdict = rules.check(&[("user", "alice")]).await?;
    /// assert_eq!(verdict.decision().expect("a rule applies").deciding().1.remaining(), 0);
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    pub async fn check(&self, request: &impl Attributes) -> Result<Verdict> {
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
    /// let rules = client.rules([Rule::new(mails).by(["user"])])?;
    /// let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
    /// assert_eq!(rules.refund(granted).await?, 1);
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::refund_all`](crate::RedissonClient::refund_all).
    pub async fn refund(&self, granted: impl Into<RulesGrant> + Send) -> Result<u64> {
        refund_all(&self.registry, granted.into().into_decisions()).await
    }

    /// Gives back what these rules have charged for a request that was abandoned, as
    /// [`refund`](Self::refund) does, but in the background: see
    /// [`Limiter::refund_in_background`](crate::Limiter::refund_in_background).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails).by(["user"])])?;
    /// let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
    /// rules.refund_in_background(granted);
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub fn refund_in_background(&self, granted: impl Into<RulesGrant>) {
        let decisions = granted.into().into_decisions();
        for (limiter, grant) in decisions.flat_map(JointDecision::into_taken) {
            limiter.by.refund_in_background(&self.registry, grant);
        }
    }

    /// Corrects what these rules have charged for a request once the costs are known, as
    /// [`Limiter::settle`](crate::Limiter::settle) does. Rules in [shadow mode](Rule::in_shadow)
    /// are corrected too. `cost` is called with the name of a rule and the index of a
    /// [part](Self::check_all) of the request, which is 0 if the request has only one part. It
    /// returns what the part should have cost, or `None` if its charge is right. Parts that were
    /// charged together cost the sum of what `cost` returns for each.
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
    /// let rules = client.rules([
    ///     Rule::new(requests).by(["user"]),
    ///     Rule::new(tokens.clone()).by(["user"]).cost(500),
    /// ])?;
    /// let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
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
        settle_all(granted.into().into_decisions(), cost).await
    }

    /// Tells how a request ended: what rules that [count only](Rule::count_only) others have
    /// charged for it is given back, as by [`refund`](Self::refund). All other charges stay. It has
    /// no effect on a charge that was settled or given back before.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = |name: &str| {
    ///     let limiter = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(600)))?;
    ///     redisson_rate_limiter::Result::Ok(limiter.with_name(name).with_prefix(name))
    /// };
    /// let (requests, failed) = (limiter("requests")?, limiter("failed")?);
    /// let rules = client.rules([
    ///     Rule::new(requests.clone()).by(["user"]),
    ///     Rule::new(failed.clone()).by(["user"]).count_only(Ending::Failure),
    /// ])?;
    /// let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
    /// rules.end(granted, Ending::Success).await?;
    /// assert_eq!(requests.peek("alice", 1).await?.remaining(), 3); // and the peek
    /// assert_eq!(failed.peek("alice", 1).await?.remaining(), 4);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Limiter::refund`](crate::Limiter::refund), once each charge was tried.
    ///
    /// # Cancel safety
    /// If the future is dropped, some charges may not have been given back.
    pub async fn end(&self, granted: RulesGrant, ending: Ending) -> Result<()> {
        let counts = RulesGrant {
            counts_only: granted.counts_only.clone(),
            ..RulesGrant::default()
        };
        let cost = move |limiter: &str, _| (!counts.counts(limiter, ending)).then_some(0);
        self.settle(granted, cost).await
    }
}
