//! One rule: which requests it applies to, whom they count for, what they cost, and which limiter
//! decides.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;

use super::Attributes;
use super::condition::Condition;
use crate::error::{Error, Result};
use crate::limiters::Chargeable;
use crate::limiters::chargeable::sealed::INTERNAL;
use crate::limiters::joint::{Part, Parts};
use crate::limiters::targets::Targets;

/// A rule: which requests it applies to, by what it counts them, what they cost, and a limiter that
/// decides. It applies to all requests and counts them together, unless [`when`](Self::when) and
/// [`by`](Self::by) say otherwise.
///
/// The limiter is one of this crate's: see [`Chargeable`]. Its name, which
/// [`with_name`](crate::PolicyLimiter::with_name) gives it, is the name of the rule. A
/// [`RateLimiter`](crate::RateLimiter) counts all requests together, whatever the rule counts by.
/// To apply a limiter of your own as well, call its [`check`](crate::Limiter::check) before or
/// after [`Rules::check`](crate::Rules::check).
///
/// ```
/// # use redisson_rate_limiter::*;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let client = RedissonClient::in_memory();
/// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?.with_name("logins");
/// let rule = Rule::new(logins).when("path", ["/login*"]).by(["user"]);
/// let rules = client.rules([rule])?;
/// let request = [("path", "/login?next=/"), ("user", "alice")];
/// assert!(matches!(rules.check(&request).await?, Verdict::Granted(_)));
/// let Verdict::Denied(by) = rules.check(&request).await? else { panic!() };
/// assert_eq!(by.deciding().0, "logins");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Rule {
    pub(super) name: Arc<str>,
    plan: Plan,
    plans: HashMap<String, Plan>,
    /// The name of the plan of each key that has one.
    pub(super) keys: BTreeMap<String, String>,
    condition: Condition,
    /// The key of every request if all count together.
    pub(super) sole_key: &'static str,
    pub(super) cost: RuleCost,
    /// The ending of the requests that stay charged; `None` if all do.
    pub(super) counts_only: Option<Ending>,
    pub(super) is_shadow: bool,
    /// The rules that do not apply where this one does.
    pub(super) instead_of: Vec<String>,
    /// Why the rule is invalid, if it is.
    mistake: Option<Reason>,
}

/// Omits the keys that have plans, because they may be names of persons.
impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("plan", &self.plan)
            .field("plans", &self.plans)
            .field("condition", &self.condition)
            .field("is_shadow", &self.is_shadow)
            .finish_non_exhaustive()
    }
}

/// What a request costs by a rule of a [`RulesConfig`](crate::RulesConfig).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleCost {
    /// A number, at least 1.
    Fixed(u32),
    /// The name of the attribute that holds the cost.
    Attribute(String),
}

/// How a granted request ended, for rules that [count only](Rule::count_only) requests with one
/// ending.
///
/// ```
/// # use redisson_rate_limiter::Ending;
/// let ending = |status: u16| match status {
///     400.. => Ending::Failure,
///     _ => Ending::Success,
/// };
/// assert_eq!(ending(401), Ending::Failure);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was answered as it should be.
    Success,
    /// It was refused or could not be answered.
    Failure,
}

/// A part of a rule, and what is wrong with it.
pub(super) type Reason = (&'static str, String);

/// A key for a question whose answer is the same for every key of a limiter.
pub(super) const ANY_KEY: &str = "key";

/// The attribute that holds the cost where a rule does not say which.
const COST: &str = "cost";

/// Why a rule with a leaky bucket cannot count only some requests.
pub(super) const NOTHING_BACK: &str = "a `leaky_bucket` gives nothing back";

/// The attribute that names the plan.
const PLAN: &str = "plan";

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

/// A rule that applies to one or more parts of a request that count for the same target.
pub(super) struct Applying<'a> {
    pub(super) rule: &'a Rule,
    pub(super) parts: Parts,
    pub(super) key: String,
    /// The cost of all `parts` together; `None` if the cost of one is not a whole number.
    pub(super) cost: Option<u64>,
    /// How long the request may wait for its turn, if that is bounded.
    pub(super) longest_turn: Option<Duration>,
    /// `None` if it is blocked.
    pub(super) limiter: Option<&'a Arc<dyn Chargeable>>,
}

impl Rule {
    /// A rule by which this limiter decides.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let all = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(all)])?;
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&[("user", "bob")]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    pub fn new(limiter: impl Chargeable + 'static) -> Self {
        let name = limiter.name().into();
        Self::with(name, Plan::Limit(Arc::new(limiter)))
    }

    /// A rule without a limiter: it allows every request that it applies to, and only
    /// [events](crate::Event::Request) count them. It is useful [instead of](Self::instead_of)
    /// others.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let one = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?.with_name("one");
    /// let office = Rule::allow("office").when("address", ["192.0.2.0/24"]).instead_of(["one"]);
    /// let rules = client.rules([Rule::new(one).by(["address"]), office])?;
    /// for _ in 0..3 {
    ///     assert!(matches!(rules.check(&[("address", "192.0.2.7")]).await?, Verdict::Granted(_)));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn allow(name: impl Into<Arc<str>>) -> Self {
        Self::with(name.into(), Plan::Allow)
    }

    /// A rule that denies every request that it applies to, as [`Plan::Block`] does.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let rules = RedissonClient::in_memory().rules([Rule::block("banned").when("user", ["mallory"])])?;
    /// assert!(matches!(rules.check(&[("user", "mallory")]).await?, Verdict::Denied(_)));
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    pub fn block(name: impl Into<Arc<str>>) -> Self {
        Self::with(name.into(), Plan::Block)
    }

    pub(super) fn with(name: Arc<str>, plan: Plan) -> Self {
        Self {
            name,
            plan,
            plans: HashMap::new(),
            keys: BTreeMap::new(),
            condition: Condition::default(),
            sole_key: "all",
            cost: RuleCost::Attribute(COST.to_owned()),
            counts_only: None,
            is_shadow: false,
            instead_of: Vec::new(),
            mistake: None,
        }
    }

    /// The name of the rule.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Applies the rule only to requests whose attribute of this name has one of these values: a
    /// text, or, with a `*` at its end, all values that begin with the text before it. An `address`
    /// may also be in a network, such as `192.0.2.0/24`. A `path` is compared without its query. If
    /// it is called for several attributes, all must match.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let rule = Rule::block("old clients").when("path", ["/v1/*", "/v2/*"]).when("method", ["POST"]);
    /// assert!(rule.applies_to(&[("path", "/v1/orders"), ("method", "POST")]));
    /// assert!(!rule.applies_to(&[("path", "/v1/orders"), ("method", "GET")]));
    /// assert!(!rule.applies_to(&[("path", "/v1/orders")]));
    /// ```
    #[must_use]
    pub fn when<'a>(mut self, name: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let required = self.condition.require(name, values);
        self.note("when", required);
        self
    }

    /// Counts requests by these attributes: each value separately, or, with several attributes,
    /// each combination of their values. The rule does not apply to a request that lacks one of
    /// them.
    ///
    /// `address` counts by the network of an IPv6 address, of 64 bits, because a client usually has
    /// all of it; `address/56` counts by 56 bits. `NAME/BITS` does so for any attribute that holds
    /// an address. A `path` counts without its query.
    ///
    /// The key of the limiter is the value; of several attributes it is their values, joined by
    /// `:`, in which `:` and `%` are escaped as `%3A` and `%25`. Requests that count together have
    /// the key `all`.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins.clone()).by(["user", "address"])])?;
    /// let request = |user, address| [("user", user), ("address", address)];
    /// assert!(matches!(rules.check(&request("alice", "192.0.2.1")).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&request("alice", "192.0.2.2")).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&request("alice", "192.0.2.1")).await?, Verdict::Denied(_)));
    /// assert_eq!(logins.peek("alice:192.0.2.1", 1).await?.is_granted(), false);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn by<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names = names.into_iter();
        let counted = names.try_for_each(|it| self.condition.count_by(it));
        self.note("by", counted);
        self
    }

    /// Sets what each request costs. Without it, a request costs what its attribute `cost` says, or
    /// 1.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = |name: &str| {
    ///     let limiter = client.policy_limiter(FixedWindow::new(1_000, Duration::from_secs(60)))?;
    ///     redisson_rate_limiter::Result::Ok(limiter.with_prefix(name).with_name(name))
    /// };
    /// let (requests, traffic) = (limiter("requests")?, limiter("traffic")?);
    /// let rules = client.rules([Rule::new(requests.clone()).cost(1), Rule::new(traffic.clone())])?;
    /// assert!(matches!(rules.check(&[("cost", "700")]).await?, Verdict::Granted(_)));
    /// assert_eq!(requests.peek("all", 1).await?.remaining(), 998); // 1 charged, 1 peeked
    /// assert_eq!(traffic.peek("all", 1).await?.remaining(), 299);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = RuleCost::Fixed(cost);
        self
    }

    /// Sets which attribute says what a request costs, a whole number. Without it a request costs
    /// 1. The rule does not apply to a request that costs 0, unless it blocks the request.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let traffic = client.policy_limiter(FixedWindow::new(1_000, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(traffic).cost_from("bytes")])?;
    /// assert!(matches!(rules.check(&[("bytes", "700")]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&[("bytes", "700")]).await?, Verdict::Denied(_)));
    /// let wrong = rules.check(&[("bytes", "many")]).await;
    /// assert!(matches!(wrong, Err(Error::InvalidArgument { argument: "cost", .. })));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost_from(mut self, attribute: impl Into<String>) -> Self {
        self.cost = RuleCost::Attribute(attribute.into());
        self
    }

    /// Counts only requests with this ending, such as failed logins: each request is charged before
    /// it goes on, and [`Rules::end`](crate::Rules::end) gives back the charge of a request with
    /// the other ending. Until they end all requests count, so no more requests than the limit are
    /// under way at a time. [`Limiter::refund`](crate::Limiter::refund) says how much each
    /// algorithm gives back. A [`LeakyBucket`](crate::LeakyBucket) gives nothing back, so a rule
    /// with one is refused.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(600)))?;
    /// let rules = client.rules([Rule::new(logins).by(["user"]).count_only(Ending::Failure)])?;
    /// for ending in [Ending::Success, Ending::Success, Ending::Failure] {
    ///     let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
    ///     rules.end(granted, ending).await?;
    /// }
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn count_only(mut self, ending: Ending) -> Self {
        self.counts_only = Some(ending);
        self
    }

    /// Adds a plan, or replaces the one of this name: another limiter for some requests, or none. A
    /// request has the plan of its [key](Self::key), or else the one that its attribute `plan`
    /// names. If the rule has no plan of that name, its own limiter decides.
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
    /// let rule = Rule::new(free).by(["user"])
    ///     .with_plan("paid", Plan::Limit(Arc::new(paid)))
    ///     .with_plan("abuser", Plan::Block)
    ///     .key("mallory", "abuser");
    /// let rules = client.rules([rule])?;
    /// for _ in 0..2 {
    ///     let request = [("user", "acme"), ("plan", "paid")];
    ///     assert!(matches!(rules.check(&request).await?, Verdict::Granted(_)));
    /// }
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&[("user", "mallory")]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_plan(mut self, name: impl Into<String>, plan: Plan) -> Self {
        self.plans.insert(name.into(), plan);
        self
    }

    /// Sets the [plan](Self::with_plan) of a key, a value that the rule [counts by](Self::by).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let one = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rule = Rule::new(one).by(["address"]).with_plan("own", Plan::Allow).key("127.0.0.1", "own");
    /// let rules = client.rules([rule])?;
    /// for _ in 0..3 {
    ///     let verdict = rules.check(&[("address", "127.0.0.1")]).await?;
    ///     assert_eq!(verdict.decision(), None); // not asked, not counted
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn key(mut self, key: impl Into<String>, plan: impl Into<String>) -> Self {
        self.keys.insert(key.into(), plan.into());
        self
    }

    /// Where this rule applies, the rules of these names do not: for exceptions, bans and more
    /// specific rules. It replaces them even where it is replaced itself. A rule in [shadow
    /// mode](Self::in_shadow) replaces only others in shadow mode.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limit = |name: &str, limit| {
    ///     let limiter = client.policy_limiter(FixedWindow::new(limit, Duration::from_secs(60)))?;
    ///     redisson_rate_limiter::Result::Ok(Rule::new(limiter.with_prefix(name).with_name(name)).by(["user"]))
    /// };
    /// let paths = limit("paths", 1)?;
    /// let search = limit("search", 2)?.when("path", ["/search"]).instead_of(["paths"]);
    /// let rules = client.rules([paths, search])?;
    /// for granted in [true, true, false] {
    ///     let verdict = rules.check(&[("user", "alice"), ("path", "/search")]).await?;
    ///     assert_eq!(matches!(verdict, Verdict::Granted(_)), granted);
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn instead_of<'a>(mut self, rules: impl IntoIterator<Item = &'a str>) -> Self {
        self.instead_of.extend(rules.into_iter().map(str::to_owned));
        self
    }

    /// Lets the rule decide without being enforced: each request that the other rules grant is
    /// charged, settled, given back and counted as if the rule were enforced, and goes on whatever
    /// the rule decides, even if it fails. An [event](crate::Event::Request) reports its decision.
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
    /// let rules = client.rules([Rule::new(strict).in_shadow()])?;
    /// for _ in 0..2 {
    ///     assert_eq!(rules.check(&[("user", "alice")]).await?.decision(), None);
    /// }
    /// assert_eq!(results.try_iter().collect::<Vec<_>>(), ["granted", "denied"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        self.is_shadow = true;
        self
    }

    /// Whether the rule applies to a request by its [`when`](Self::when) and [`by`](Self::by).
    /// Another rule may apply [instead](Self::instead_of).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let rule = Rule::block("banned").by(["user"]);
    /// assert!(rule.applies_to(&[("user", "alice")]));
    /// assert!(!rule.applies_to(&[("address", "192.0.2.1")]));
    /// ```
    #[must_use]
    pub fn applies_to(&self, request: &(impl Attributes + ?Sized)) -> bool {
        self.condition.matches(request)
    }

    /// What a request counts by, as text for people: the names and values of [`by`](Self::by).
    /// Empty if all requests count together.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// let rule = Rule::block("banned").by(["user", "address"]);
    /// let request = [("user", "alice"), ("address", "2001:db8::1")];
    /// assert_eq!(rule.counts_by(&request), "user=alice, address=2001:db8::/64");
    /// ```
    #[must_use]
    pub fn counts_by(&self, request: &(impl Attributes + ?Sized)) -> String {
        self.condition.label(request)
    }

    /// Fails if the rule is invalid.
    pub(super) fn check(&self) -> Result<(), Reason> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        for (key, plan) in &self.keys {
            let checked = self.condition.check_key(key);
            checked.map_err(|reason| ("keys", reason))?;
            if !self.plans.contains_key(plan) {
                // Without the key, which may be somebody's name: errors are logged.
                let reason = format!("a key has the plan `{plan}`, which is none of its plans");
                return Err(("keys", reason));
            }
        }
        Ok(())
    }

    /// Whether it applies to each request that `other` applies to.
    #[cfg(feature = "serde")]
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.condition.covers(&other.condition)
    }

    fn note(&mut self, field: &'static str, made: Result<(), String>) {
        if let (None, Err(reason)) = (&self.mistake, made) {
            self.mistake = Some((field, reason));
        }
    }

    /// Whether it allows every request that it applies to.
    pub(super) fn allows_all(&self) -> bool {
        matches!(self.plan, Plan::Allow)
    }

    /// The rule's own limiter and those of its plans, as far as they have one.
    pub(super) fn limiters(&self) -> impl Iterator<Item = &Arc<dyn Chargeable>> {
        let plans = std::iter::once(&self.plan).chain(self.plans.values());
        plans.filter_map(Plan::limiter)
    }

    /// Whether what was used under `before`, the earlier rule of this name, does not count for this
    /// rule, or not for all of its plans.
    pub(super) fn starts_anew_after(&self, before: &Self) -> bool {
        let plans = self.plans.keys().chain(before.plans.keys());
        let mut plans = plans.map(|it| Some(&**it)).chain([None]);
        self.condition.counts_otherwise_than(&before.condition)
            || plans.any(|plan| {
                let [now, before] = [self, before].map(|it| it.targets_of(plan));
                now.is_some() && before.is_some() && now != before
            })
    }

    /// The targets of a plan; `None` if it has none because it allows or blocks.
    fn targets_of(&self, plan: Option<&str>) -> Option<Targets> {
        let plan = plan.and_then(|plan| self.plans.get(plan));
        let limiter = plan.unwrap_or(&self.plan).limiter()?;
        Some(limiter.targets(INTERNAL))
    }

    /// Whether it differs from `before`, as far as that is known.
    pub(super) fn differs_from(&self, before: &Self) -> bool {
        let [now, before] = [self, before].map(|rule| {
            let plans = rule.plans.iter();
            let plans: BTreeMap<_, _> = plans.map(|(name, it)| (name, it.settings())).collect();
            let by = (&rule.condition, &rule.keys, &rule.cost, &rule.instead_of);
            (by, rule.counts_only, rule.plan.settings(), plans)
        });
        now != before
    }

    /// What the rule says about a part of a request that it applies to; `None` if it limits nothing
    /// of it.
    pub(super) fn applying(
        &self,
        place: usize,
        request: &(impl Attributes + ?Sized),
    ) -> Option<Applying<'_>> {
        let key = match self.condition.counts_all_together() {
            true => self.sole_key.to_owned(),
            false => self.condition.key(request)?,
        };
        let limiter = match self.plan_of(&key, request) {
            Plan::Allow => return None,
            Plan::Block => None,
            Plan::Limit(limiter) => Some(limiter),
        };
        let cost = match &self.cost {
            RuleCost::Fixed(cost) => Some((*cost).into()),
            RuleCost::Attribute(name) => {
                match request.attribute(name).filter(|it| !it.is_empty()) {
                    Some(cost) => whole_number(&cost),
                    None => Some(1),
                }
            }
        };
        let of_part = cost.unwrap_or(0).try_into().unwrap_or(u32::MAX);
        (cost != Some(0) || limiter.is_none()).then(|| Applying {
            rule: self,
            parts: smallvec![Part {
                place,
                cost: of_part,
            }],
            key,
            cost,
            longest_turn: request.longest_turn(),
            limiter,
        })
    }

    fn plan_of(&self, key: &str, request: &(impl Attributes + ?Sized)) -> &Plan {
        if self.plans.is_empty() {
            return &self.plan;
        }
        let of_key = self.keys.get(key).and_then(|plan| self.plans.get(plan));
        let of_request = || self.plans.get(&*request.attribute(PLAN)?);
        of_key.or_else(of_request).unwrap_or(&self.plan)
    }
}

/// Parses a whole number; a larger one than `u64::MAX` is read as `u64::MAX`.
fn whole_number(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

impl Plan {
    fn limiter(&self) -> Option<&Arc<dyn Chargeable>> {
        match self {
            Self::Limit(limiter) => Some(limiter),
            Self::Allow | Self::Block => None,
        }
    }

    /// The limiter's settings as text, the only form that all limiters share.
    fn settings(&self) -> Option<String> {
        match self.limiter() {
            Some(limiter) => Some(limiter.charge(ANY_KEY, 1).ok()?.settings()),
            None => Some(format!("{self:?}")),
        }
    }
}

/// The places of the rules that do not apply where each one does; none if that is so of no rule.
/// Fails with the place of a rule that is wrong.
pub(super) fn instead_of(rules: &[Rule]) -> Result<Arc<[Vec<usize>]>, (usize, Reason)> {
    if rules.iter().all(|it| it.instead_of.is_empty()) {
        return Ok(Arc::new([]));
    }
    let each = rules.iter().enumerate().map(|(own, rule)| {
        let places = rule.instead_of.iter().map(|other| {
            let place = rules.iter().position(|it| *it.name == **other);
            place.filter(|it| *it != own).ok_or_else(|| {
                let reason = format!("`{other}` is the name of no other rule");
                (own, ("instead_of", reason))
            })
        });
        places.collect::<Result<Vec<_>, _>>()
    });
    each.collect()
}

pub(super) fn refused(rule: &str, reason: impl Into<String>) -> Error {
    Error::InvalidRule {
        rule: rule.to_owned(),
        reason: reason.into(),
    }
}
