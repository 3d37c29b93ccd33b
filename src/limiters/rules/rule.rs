//! One rule: whom a request counts for, what it costs, and which limiter decides.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::ANY_KEY;
use super::targets::Targets;
use crate::decision::Decision;
use crate::limiters::Chargeable;
use crate::limiters::joint::{Charged, JointDecision};
use crate::policies::algorithm::INTERNAL;

/// A rule for requests of type `R`: a limiter, the target that a request counts for, what it costs,
/// and the rejection of type `E` that a denied request gets.
///
/// The limiter is one of this crate's: see [`Chargeable`]. Its name, which
/// [`with_name`](crate::PolicyLimiter::with_name) gives it, is the name of the rule. A
/// [`RateLimiter`](crate::RateLimiter) is one for all, whatever target the rule returns. To apply a
/// limiter of your own as well, call its [`check`](crate::Limiter::check) before or after
/// [`Rules::check`](crate::Rules::check).
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
    pub(super) limited: Limited,
    pub(super) plans: HashMap<String, Limits>,
    plans_of: Vec<PlanOf<R>>,
    pub(super) is_shadow: bool,
    /// What a request counts by, if a configuration has given it a name.
    pub(super) counts_by: Option<String>,
    /// The plans of keys that a configuration has.
    pub(super) plans_of_keys: BTreeMap<String, String>,
    targets: Vec<Target<R>>,
    cost: Cost<R>,
    longest_turn: Option<LongestTurn<R>>,
    rejection: Rejection<R, E>,
}

/// What a [plan](Rule::with_plan) of a rule means for its requests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Plan {
    /// This limiter decides instead of the rule's own.
    Limit(Arc<dyn Chargeable>),
    /// The rule does not apply: an allow list.
    Allow,
    /// The rule denies the request, and nothing is asked or charged: a block list. The decision has
    /// the source [`Rule`](crate::DecisionSource::Rule), and a `retry_after` of a day, because no
    /// end is known.
    Block,
}

/// A [`Plan`], with what is known of its limiter.
#[derive(Debug)]
pub(super) enum Limits {
    To(Limited),
    Allow,
    Block,
}

/// A limiter of a rule.
#[derive(Debug, Clone)]
pub(super) struct Limited {
    pub(super) limiter: Arc<dyn Chargeable>,
    pub(super) name: Arc<str>,
}

impl Limited {
    pub(super) fn new(limiter: Arc<dyn Chargeable>) -> Self {
        let name = limiter.name().into();
        Self { limiter, name }
    }

    /// The numbers of its limiter; they have no other form that all limiters share.
    fn settings(&self) -> Option<String> {
        let charge = self.limiter.charge(ANY_KEY, 1).ok()?;
        Some(charge.settings())
    }

    pub(super) fn charged(&self, key: String) -> Charged {
        Charged {
            name: Arc::clone(&self.name),
            rate_limiter: self.limiter.rate_limiter_of(&key, INTERNAL),
            asked: Some((Arc::clone(&self.limiter), key)),
            parts: smallvec![0],
        }
    }
}

/// What a rule says about a request that it applies to.
pub(super) struct Applied<'a> {
    pub(super) key: String,
    pub(super) cost: u32,
    /// How long the request waits for its turn, if that is bounded.
    pub(super) longest_turn: Option<Duration>,
    /// `None` if it is blocked.
    pub(super) limited: Option<&'a Limited>,
}

type Target<R> = Box<dyn Fn(&R) -> Option<String> + Send + Sync>;
type Cost<R> = Box<dyn Fn(&R) -> u32 + Send + Sync>;
type LongestTurn<R> = Box<dyn Fn(&R) -> Duration + Send + Sync>;
type PlanOf<R> = Box<dyn Fn(&R, &str) -> Option<String> + Send + Sync>;
pub(super) type Rejection<R, E> = Box<dyn Fn(&R, &Decision) -> E + Send + Sync>;

impl<R, E> Rule<R, E> {
    /// A rule by which a request counts for the target (the limiter's key) that `target` returns:
    /// its user, address or application. The rule does not apply to a request for which `target`
    /// returns `None`. `rejection` creates the answer to a request that the rule denied. A request
    /// costs 1, unless [`cost`](Self::cost) says otherwise.
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
    /// assert_eq!(rules.check(&None).await?.decision(), None); // the rule does not apply
    /// # Ok(()) }
    /// ```
    pub fn new(
        limiter: impl Chargeable + 'static,
        target: impl Fn(&R) -> Option<String> + Send + Sync + 'static,
        rejection: impl Fn(&R, &Decision) -> E + Send + Sync + 'static,
    ) -> Self {
        Self {
            limited: Limited::new(Arc::new(limiter)),
            plans: HashMap::new(),
            plans_of: Vec::new(),
            is_shadow: false,
            counts_by: None,
            plans_of_keys: BTreeMap::new(),
            targets: vec![Box::new(target)],
            cost: Box::new(|_| 1),
            longest_turn: None,
            rejection: Box::new(rejection),
        }
    }

    /// Counts for the combination of the targets so far and this one, for example a user at an
    /// address. The key is the targets joined by `:`; a `:` or `%` in a target is escaped as `%3A`
    /// or `%25`, so that no two combinations share a key.
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

    /// Sets what a request costs. The default is 1. The rule does not apply to a request that costs
    /// 0, unless its plan blocks the request.
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

    /// Bounds how long a request waits for the turn that a leaky bucket gives it: a request whose
    /// turn would come later is denied, and nothing is charged. So the caller of a request that has
    /// a deadline never waits in vain. Of the bucket's capacity as much counts as flows out in the
    /// whole periods of that time, also as the limit that a decision states.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let paced = client.policy_limiter(LeakyBucket::new(1, Duration::from_secs(1)).with_capacity(100))?;
    /// let rule = Rule::new(paced, |user: &&str| Some(user.to_string()), |_, _| 503);
    /// let rules = client.rules([rule.longest_turn(|_| Duration::from_millis(2_500))])?;
    /// let (one, two, three, four) = tokio::join!(
    ///     rules.check(&"alice"),
    ///     rules.check(&"alice"), // its turn is in a second
    ///     rules.check(&"alice"), // in two
    ///     rules.check(&"alice"), // and this one's would be in three
    /// );
    /// for granted in [one?, two?, three?] {
    ///     assert!(matches!(granted, Verdict::Granted(_)));
    /// }
    /// assert!(matches!(four?, Verdict::Rejected(503, _)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn longest_turn(self, longest: impl Fn(&R) -> Duration + Send + Sync + 'static) -> Self {
        Self {
            longest_turn: Some(Box::new(longest)),
            ..self
        }
    }

    /// Adds a plan, or replaces the one of this name: another limiter for some requests, or none.
    /// Which plan a request has is said by [`plan_of`](Self::plan_of).
    ///
    /// The limiters of the plans are separate: give each a prefix of its own, unless they have the
    /// same algorithm; otherwise [`RedissonClient::rules`](crate::RedissonClient::rules) refuses
    /// them. What a key has used under one plan does not count under a plan with another prefix.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let free = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?.with_prefix("free:");
    /// let paid = client.policy_limiter(TokenBucket::per_second(100))?.with_prefix("paid:");
    /// let rule = Rule::new(free, |user: &&str| Some(user.to_string()), |_, _| 429)
    ///     .with_plan("paid", Plan::Limit(Arc::new(paid)))
    ///     .with_plan("abuser", Plan::Block)
    ///     .plan_of(|_, user| match user {
    ///         "acme" => Some("paid".to_owned()),
    ///         "mallory" => Some("abuser".to_owned()),
    ///         _ => None,
    ///     });
    /// let rules = client.rules([rule])?;
    /// for user in ["acme", "acme", "alice"] {
    ///     assert!(matches!(rules.check(&user).await?, Verdict::Granted(_)));
    /// }
    /// for user in ["mallory", "alice"] {
    ///     assert!(matches!(rules.check(&user).await?, Verdict::Rejected(429, _)));
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_plan(mut self, name: impl Into<String>, plan: Plan) -> Self {
        let limits = match plan {
            Plan::Limit(limiter) => Limits::To(Limited::new(limiter)),
            Plan::Allow => Limits::Allow,
            Plan::Block => Limits::Block,
        };
        self.plans.insert(name.into(), limits);
        self
    }

    /// Chooses the [plan](Self::with_plan) of each request that the rule applies to, by the request
    /// and its key. The rule's own limiter decides where `plan` returns `None` or a name that the
    /// rule has no plan for. Of several such functions the first that names a plan of the rule
    /// counts.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let one = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rule = Rule::new(one, |address: &&str| Some(address.to_string()), |_, _| 429)
    ///     .with_plan("allowed", Plan::Allow)
    ///     .plan_of(|_, address| (address == "127.0.0.1").then(|| "allowed".to_owned()));
    /// let rules = client.rules([rule])?;
    /// for _ in 0..3 {
    ///     assert_eq!(rules.check(&"127.0.0.1").await?.decision(), None); // not asked, not counted
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn plan_of(
        mut self,
        plan: impl Fn(&R, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.plans_of.push(Box::new(plan));
        self
    }

    /// Lets the rule decide without being enforced: each request that the other rules grant is
    /// charged, settled, given back and counted as if it were, and goes on whatever this rule says,
    /// also if it fails. An [event](crate::Event::Request) tells its decision.
    ///
    /// The rules in shadow mode are asked together, with one call more for each request that the
    /// other rules grant. See also [`Rules::set_shadow`](crate::Rules::set_shadow).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let (sender, results) = std::sync::mpsc::channel();
    /// let builder = RedissonClient::builder().on_event(move |event| {
    ///     if let Event::Request { result, is_shadow: true, .. } = event {
    ///         sender.send(result.as_str()).unwrap();
    ///     }
    /// });
    /// let client = builder.in_memory(&MemoryStore::new());
    /// let strict = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rule = Rule::new(strict, |user: &&str| Some(user.to_string()), |_, _| 429);
    /// let rules = client.rules([rule.in_shadow()])?;
    /// for _ in 0..2 {
    ///     assert_eq!(rules.check(&"alice").await?.decision(), None);
    /// }
    /// assert_eq!(results.try_iter().collect::<Vec<_>>(), ["granted", "denied"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn in_shadow(self) -> Self {
        Self {
            is_shadow: true,
            ..self
        }
    }

    pub(super) fn rejects(&self, request: &R, joint: &JointDecision) -> E {
        (self.rejection)(request, joint.deciding().1)
    }

    /// Its limiters: its own, and those of its plans, with the plan's name.
    pub(super) fn all_limited(&self) -> impl Iterator<Item = (Option<&str>, &Limited)> {
        let of_plans = self.plans.iter().filter_map(|(name, limits)| match limits {
            Limits::To(limited) => Some((Some(&**name), limited)),
            Limits::Allow | Limits::Block => None,
        });
        std::iter::once((None, &self.limited)).chain(of_plans)
    }

    /// Whether what was used under the rule of this name before does not count for this one, or not
    /// for all of its plans.
    pub(super) fn starts_anew_after(&self, before: &Self) -> bool {
        let plans = self.plans.keys().chain(before.plans.keys());
        let mut plans = plans.map(|it| Some(&**it)).chain([None]);
        self.counts_by != before.counts_by
            || plans.any(|plan| {
                let [now, before] = [self, before].map(|it| it.targets_of(plan));
                now.is_some() && before.is_some() && now != before
            })
    }

    /// The targets of a plan; `None` if it has none because it allows or blocks.
    fn targets_of(&self, plan: Option<&str>) -> Option<Targets> {
        let limited = match plan.and_then(|plan| self.plans.get(plan)) {
            None => &self.limited,
            Some(Limits::To(limited)) => limited,
            Some(Limits::Allow | Limits::Block) => return None,
        };
        Some(limited.limiter.targets(INTERNAL))
    }

    /// Whether it has other limits or plans, as far as that is known.
    pub(super) fn differs_from(&self, before: &Self) -> bool {
        let settings = |rule: &Self| -> BTreeMap<_, _> {
            let plans = rule.plans.iter().map(|(name, limits)| {
                let limits = match limits {
                    Limits::To(limited) => limited.settings(),
                    other => Some(format!("{other:?}")),
                };
                (Some(name.clone()), limits)
            });
            plans.chain([(None, rule.limited.settings())]).collect()
        };
        self.plans_of_keys != before.plans_of_keys || settings(self) != settings(before)
    }

    /// What the rule says about a request; `None` if it does not apply.
    pub(super) fn applied(&self, request: &R) -> Option<Applied<'_>> {
        let key = self.key(request)?;
        let plan = self.plans_of.iter().find_map(|of| {
            let name = of(request, &key)?;
            self.plans.get(&name)
        });
        let limited = match plan {
            None => Some(&self.limited),
            Some(Limits::Allow) => return None,
            Some(Limits::Block) => None,
            Some(Limits::To(limited)) => Some(limited),
        };
        let cost = (self.cost)(request);
        (cost > 0 || limited.is_none()).then(|| Applied {
            cost,
            longest_turn: self.longest_turn.as_ref().map(|longest| longest(request)),
            key,
            limited,
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
            .field("limiter", &self.limited.limiter)
            .field("plans", &self.plans)
            .field("is_shadow", &self.is_shadow)
            .finish_non_exhaustive()
    }
}
