//! Rules of a service: which requests are limited, whom each counts for, and what a denied one gets.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::joint::{Charged, JointDecision, check_all, check_limiters};
use super::{Chargeable, Registry};
use crate::decision::Decision;
use crate::error::Result;

/// A rule for requests of type `R`: a limiter, the target that a request counts for, what it costs, and the rejection of
/// type `E` that a denied request gets.
///
/// The limiter is one of this crate's: see [`Chargeable`]. A [`RateLimiter`](super::RateLimiter) is one for all, whatever target
/// the rule returns. To apply a limiter of your own as well, call its
/// [`check`](super::Limiter::check) before or after [`Rules::check`].
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let client = RedissonClient::in_memory();
/// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
/// let rule = Rule::new(logins, |user: &&str| Some(format!("login:{user}")), |_, _| "too many logins");
/// let rules = client.rules([rule])?;
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected("too many logins", _)));
/// # Ok(()) }
/// ```
pub struct Rule<R, E> {
    limiter: Arc<dyn Chargeable>,
    name: Arc<str>,
    /// Whether its grants can be given back.
    takes_permits: bool,
    targets: Vec<Target<R>>,
    cost: Cost<R>,
    rejection: Rejection<R, E>,
}

/// What is true of a limiter whatever the key is, is true of this one.
const ANY_KEY: &str = "key";

type Target<R> = Box<dyn Fn(&R) -> Option<String> + Send + Sync>;
type Cost<R> = Box<dyn Fn(&R) -> u32 + Send + Sync>;
type Rejection<R, E> = Box<dyn Fn(&R, &Decision) -> E + Send + Sync>;

impl<R, E> Rule<R, E> {
    /// A rule by which a request counts for the target (the limiter's key) that `target` returns: its user, address or
    /// application. The rule does not apply to a request for which `target` returns `None`. `rejection` creates the answer
    /// to a request that the rule denied. A request costs 1, unless [`cost`](Self::cost) says otherwise.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let for_users = |user: &Option<&str>| user.map(|user| format!("login:{user}"));
    /// let rules = client.rules([Rule::new(logins, for_users, |_, _| "too many logins")])?;
    /// assert_eq!(rules.check(&None).await?, Verdict::Granted(None)); // the rule does not apply
    /// # Ok(()) }
    /// ```
    pub fn new(
        limiter: impl Chargeable + 'static,
        target: impl Fn(&R) -> Option<String> + Send + Sync + 'static,
        rejection: impl Fn(&R, &Decision) -> E + Send + Sync + 'static,
    ) -> Self {
        let charge = limiter.charge(ANY_KEY, 1);
        let takes_permits = charge.is_ok_and(|it| it.charged().rate_limiter.is_some());
        Self {
            name: limiter.name().into(),
            takes_permits,
            limiter: Arc::new(limiter),
            targets: vec![Box::new(target)],
            cost: Box::new(|_| 1),
            rejection: Box::new(rejection),
        }
    }

    /// Counts for the combination of the targets so far and this one, for example a user at an address. The key is the
    /// targets joined by `:`; a `:` or `%` in a target is escaped as `%3A` or `%25`, so that no two combinations share a
    /// key.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rule = Rule::new(logins, |request: &(&str, &str)| Some(request.0.to_owned()), |_, _| "too many logins")
    ///     .and_by(|request| Some(request.1.to_owned()));
    /// let rules = client.rules([rule])?;
    /// assert!(matches!(rules.check(&("alice", "192.0.2.1")).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&("alice", "192.0.2.2")).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&("alice", "192.0.2.1")).await?, Verdict::Rejected(..)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn and_by(mut self, target: impl Fn(&R) -> Option<String> + Send + Sync + 'static) -> Self {
        self.targets.push(Box::new(target));
        self
    }

    /// Sets what a request costs, at least 1. The default is 1.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let traffic = client.policy_limiter(FixedWindow::new(1_000, Duration::from_secs(60)))?;
    /// let rule = Rule::new(traffic, |_: &u32| Some("all".to_owned()), |_, _| "too much").cost(|bytes| *bytes);
    /// let rules = client.rules([rule])?;
    /// assert!(matches!(rules.check(&700).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&700).await?, Verdict::Rejected("too much", _)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost(self, cost: impl Fn(&R) -> u32 + Send + Sync + 'static) -> Self {
        Self {
            cost: Box::new(cost),
            ..self
        }
    }

    fn charged(&self, key: &str) -> Result<Charged> {
        if self.takes_permits {
            return Ok(self.limiter.charge(key, 1)?.charged());
        }
        Ok(Charged {
            name: Arc::clone(&self.name),
            rate_limiter: None,
        })
    }

    /// The limiter's key for a request; `None` where the rule does not apply to it.
    fn key(&self, request: &R) -> Option<String> {
        if let [only] = &self.targets[..] {
            return only(request);
        }
        let names = self.targets.iter().map(|target| {
            let name = target(request)?;
            Some(name.replace('%', "%25").replace(':', "%3A"))
        });
        Some(names.collect::<Option<Vec<_>>>()?.join(":"))
    }
}

impl<R, E> fmt::Debug for Rule<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

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
///     .with_penalty(Duration::from_secs(600))?;
/// let traffic = client.policy_limiter(TokenBucket::per_second(100).with_capacity(1_000))?;
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
    rules: RwLock<Arc<[Rule<R, E>]>>,
}

/// What the rules decide about a request.
///
/// Like [`Decision`], it is not `#[non_exhaustive]`: granted and rejected are all there is.
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
    /// All rules that apply granted it, with the decision of each, by the name of its limiter; `None` if no rule applies.
    Granted(Option<JointDecision>),
    /// A rule denied it, and no rule charged it: the rejection of the rule that [decides](JointDecision::deciding), and the
    /// decision of each.
    Rejected(E, JointDecision),
}

impl<R, E> Rules<R, E> {
    pub(crate) fn new(registry: Arc<Registry>, rules: Arc<[Rule<R, E>]>) -> Result<Self> {
        let made = Self {
            registry,
            rules: RwLock::default(),
        };
        made.replace(rules)?;
        Ok(made)
    }

    /// Replaces the rules while requests come in. A request in flight is decided by the old ones. What the targets have used
    /// stays, in the keys of the limiters. To change the numbers of a limiter, see
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
    /// rules.replace(none)?;
    /// assert_eq!(rules.check(&"alice").await?, Verdict::Granted(None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::rules`](crate::RedissonClient::rules); the old rules stay.
    pub fn replace(&self, rules: impl Into<Arc<[Rule<R, E>]>>) -> Result<()> {
        let rules = rules.into();
        let charges = rules.iter().map(|rule| rule.limiter.charge(ANY_KEY, 1));
        let charges = charges.collect::<Result<Vec<_>>>()?;
        check_limiters(&self.registry.store, &charges, "rules")?;
        // Nothing panics while the lock is held.
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    /// Decides a request by all rules that apply to it, in one round trip.
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
    /// A call dropped in flight may or may not have been charged.
    pub async fn check(&self, request: &R) -> Result<Verdict<E>> {
        let rules = Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner));
        let mut applying = Vec::with_capacity(rules.len());
        for rule in &*rules {
            if let Some(key) = rule.key(request) {
                applying.push((rule, key, (rule.cost)(request)));
            }
        }
        let (rule, joint) = match &applying[..] {
            [] => return Ok(Verdict::Granted(None)),
            [(rule, key, cost)] => {
                let decision = rule.limiter.check(key, *cost).await?;
                (*rule, JointDecision::of_one(rule.charged(key)?, decision))
            }
            several => {
                let charges = several
                    .iter()
                    .map(|(rule, key, cost)| rule.limiter.charge(key, *cost));
                let charges = charges.collect::<Result<Vec<_>>>();
                let events = &self.registry.state.events;
                let charges = charges.map_err(|error| events.joint_request().failed(error))?;
                let joint = check_all(&self.registry, charges).await?;
                (several[joint.deciding_place()].0, joint)
            }
        };
        Ok(if joint.is_granted() {
            Verdict::Granted(Some(joint))
        } else {
            let (_, decision) = joint.deciding();
            let rejection = (rule.rejection)(request, decision);
            Verdict::Rejected(rejection, joint)
        })
    }
}

impl<R, E> fmt::Debug for Rules<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
