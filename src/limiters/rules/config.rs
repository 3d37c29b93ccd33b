//! Rules as a configuration has them: with the feature `serde`.
//!
//! `raw.rs` has the rules as a format has parsed them; here they are checked one by one. An error
//! names the place of the rule and the field, and `source.rs` finds the line of the field.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::condition::escaped;
use super::raw::{RawLimit, RawRule, RawRules};
use super::rule::{NOTHING_BACK, Reason, instead_of};
use super::source::Source;
use super::{Ending, Plan, Rule, RuleCost};
use crate::error::{Error, Result};
use crate::fields::{FieldValue, Scalar};
use crate::limiters::charge::first_too_many;
use crate::limiters::targets::{Names, Taken};
use crate::limiters::{PolicyLimiter, Registry};
use crate::policies::algorithm::Algorithm;
use crate::policies::any_policy::AnyPolicy;
use crate::rate::whole_millis;

/// Rules as a configuration has them. The feature `serde` reads them from any format; the features
/// `toml` and `yaml` read TOML and YAML, with errors that name the line.
/// [`RedissonClient::rules_from`](crate::RedissonClient::rules_from) makes [`Rules`](super::Rules)
/// of it.
///
/// ```
/// # #[cfg(feature = "toml")] {
/// # let text = r##"
/// [[rules]]
/// name = "per-user"
/// by = ["user"]                                 # each user; several names: each combination; none: all together
/// limit = { algorithm = "token_bucket", rate = "10/s", capacity = 100 }
/// [rules.plans]
/// paid = { rate = "100/s", capacity = 1000 }    # another limit; "allow" and "block" are plans too
/// [rules.keys]                                  # plans of keys; another request's is in its attribute `plan`
/// acme = "paid"
/// mallory = "block"
///
/// [[rules]]
/// name = "logins"
/// when = { method = "POST", path = "/login*" }  # all must match: a text, a list of texts, `*` at the end
/// by = ["address/64"]                           # a network of an IPv6 address; IPv4 whole
/// limit = { algorithm = "fixed_window", rate = "5/1m" }
/// penalty = "10m"                               # a denied request locks its key out
/// count = "failures"                            # only these stay charged: see `Rule::count_only`; or "successes"
/// shadow = true                                 # decided and counted, but not enforced
///
/// [[rules]]
/// name = "orders"
/// when = { route = "/orders" }
/// limiter = "orders:api"                        # Java: redisson.getRateLimiter("orders:api")
/// limit = { rate = "100/s" }                    # created where missing, never overwritten
/// cost = "items"                                # the attribute with the cost, otherwise `cost`; or a number
///
/// [[rules]]
/// name = "office"
/// when = { address = ["192.0.2.0/24"] }
/// instead_of = ["logins"]                       # where this one applies, that one does not
/// limit = "allow"                               # or "block"
/// # "##;
/// # redisson_rate_limiter::RulesConfig::from_toml(text).unwrap(); }
/// ```
///
/// [`Rule`] says what each part means; a `limit` has the fields of an [`AnyPolicy`]. The line
/// `shadow = true` before the rules puts all of them in shadow mode. Errors, which name the rule
/// and the field, are an unknown field, a value that is never valid, rules whose keys could be the
/// same, more rules than can decide a request together (32), and a fixed cost above the limit.
///
/// The limiters of a rule have its name, and the prefix `ALGORITHM:NAME:`, such as
/// `token_bucket:per-user:`. With a `limiter` they are RRateLimiters: the one of this name, or with
/// `by` the one of each key, `NAME:KEY`. So no two algorithms have the same keys, whatever was in
/// the configuration before. A rule keeps what was used while its name, its algorithm and its `by`
/// stay; otherwise it starts anew, and [`Rules::replace_from`](super::Rules::replace_from) says so.
///
/// ```
/// use redisson_rate_limiter::{RedissonClient, RulesConfig, Verdict};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config: RulesConfig = serde_json::from_str(r#"{
///     "rules": [{
///         "name": "per-user",
///         "by": ["user"],
///         "limit": { "algorithm": "fixed_window", "rate": "1/1m" },
///         "keys": { "monitoring": "allow" }
///     }]
/// }"#)?;
/// let rules = RedissonClient::in_memory().rules_from(&config)?;
/// let request = |user| [("user", user)];
/// assert!(matches!(rules.check(&request("alice")).await?, Verdict::Granted(_)));
/// assert!(matches!(rules.check(&request("alice")).await?, Verdict::Denied(_)));
/// assert_eq!(rules.check(&request("monitoring")).await?.decision(), None);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RulesConfig {
    /// Whether all rules are in shadow mode.
    pub shadow: bool,
    /// The rules, whose names differ.
    pub rules: Vec<RuleConfig>,
    /// The text that it was read from.
    pub(super) source: Source,
}

/// A rule as a configuration has it: see [`RulesConfig`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleConfig {
    /// The name of the rule and of its limiters.
    pub name: String,
    /// The attributes that a request must have, and their values: see [`Rule::when`].
    pub when: BTreeMap<String, Vec<String>>,
    /// The attributes that it counts by: see [`Rule::by`].
    pub by: Vec<String>,
    /// The rule's own limit.
    pub limit: RuleLimit,
    /// The limits of its plans, by their names. Each rule also has the plans `allow` and `block`.
    pub plans: BTreeMap<String, RuleLimit>,
    /// The plans of keys.
    pub keys: BTreeMap<String, String>,
    /// The name of the RRateLimiter. With `by`, each key has an RRateLimiter of its own, whose name
    /// is this text, `:` and the key.
    pub limiter: Option<String>,
    /// What a request costs. If `None`, its attribute `cost` says so.
    pub cost: Option<RuleCost>,
    /// How long a denied request locks its key out, at least 1 ms.
    pub penalty: Option<Duration>,
    /// Which requests stay charged: see [`Rule::count_only`]. If `None`, all do.
    pub count: Option<Ending>,
    /// Whether the rule is in shadow mode.
    pub shadow: bool,
    /// The rules that do not apply where this one does.
    pub instead_of: Vec<String>,
}

/// The limit of a rule or a plan of a [`RulesConfig`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleLimit {
    /// A limiter with this policy.
    Policy(AnyPolicy),
    /// `allow`: no limit.
    Allow,
    /// `block`: nothing is granted.
    Block,
}

impl fmt::Display for RuleLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy) => policy.fmt(f),
            Self::Allow => f.write_str(ALLOW),
            Self::Block => f.write_str(BLOCK),
        }
    }
}

/// What is wrong with a field of a rule.
#[derive(Debug)]
pub(super) struct Mistake {
    /// The place of the rule.
    rule: usize,
    field: &'static str,
    /// The reason, with the names of the field and the rule.
    reason: String,
}

impl Mistake {
    fn of(rule: usize, name: &str, (field, reason): Reason) -> Self {
        Self {
            rule,
            field,
            reason: format!("`{field}` of `{name}`: {reason}"),
        }
    }

    /// The error, with the line of the text that the rules were read from.
    pub(super) fn error(self, source: &Source) -> Error {
        source.refused(Some((self.rule, self.field)), self.reason)
    }
}

/// The limits that are words, and the plans that each rule has.
pub(super) const ALLOW: &str = "allow";
pub(super) const BLOCK: &str = "block";

impl<'de> Deserialize<'de> for RulesConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawRules::deserialize(deserializer)?
            .try_into()
            .map_err(|it: Mistake| de::Error::custom(it.reason))
    }
}

impl TryFrom<RawRules> for RulesConfig {
    type Error = Mistake;

    fn try_from(raw: RawRules) -> Result<Self, Mistake> {
        let mut config = Self {
            shadow: raw.shadow,
            ..Self::default()
        };
        let (mut names, mut targets) = (HashSet::new(), Taken::default());
        let mut rules = Vec::new();
        for (place, raw) in raw.rules.into_iter().enumerate() {
            let name = raw.name.clone();
            let mistake = |reason| Mistake::of(place, &name, reason);
            if !names.insert(name.clone()) {
                return Err(mistake(("name", "is that of an earlier rule".to_owned())));
            }
            let read = RuleConfig::read(raw).map_err(mistake)?;
            read.take_targets(&mut targets).map_err(mistake)?;
            // Without limiters, which need a client.
            let rule = read.rule(|_| Ok(Plan::Allow)).map_err(mistake)?;
            rule.check().map_err(mistake)?;
            config.rules.push(read);
            rules.push(rule);
        }
        config.check_together(&rules)?;
        Ok(config)
    }
}

impl RulesConfig {
    /// Refuses a configuration that lacks one of these rules, such as those whose costs an
    /// application [settles](crate::Rules::settle) by name.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let read = |name: &str| -> serde_json::Result<RulesConfig> {
    ///     serde_json::from_str(&format!(r#"{{ "rules": [{{ "name": "{name}", "limit": "allow" }}] }}"#))
    /// };
    /// assert!(read("tokens")?.require(["tokens"]).is_ok());
    /// let missing = read("token")?.require(["tokens"]).unwrap_err();
    /// assert_eq!(missing.to_string(), "invalid rules: there is no rule `tokens`");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRules`] for the first one that is missing.
    pub fn require<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let is_missing = |name: &&str| self.rules.iter().all(|it| it.name != *name);
        match names.into_iter().find(is_missing) {
            None => Ok(self),
            Some(name) => Err(self
                .source
                .refused(None, format!("there is no rule `{name}`"))),
        }
    }

    /// Refuses a configuration with a rule that has a `count`, for a program that does not learn
    /// how requests end.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let read = |count: &str| -> serde_json::Result<RulesConfig> {
    ///     let limit = r#"{ "algorithm": "fixed_window", "rate": "5/1m" }"#;
    ///     serde_json::from_str(&format!(r#"{{ "rules": [{{ "name": "logins", "limit": {limit}{count} }}] }}"#))
    /// };
    /// assert!(read("")?.without_count().is_ok());
    /// let refused = read(r#", "count": "failures""#)?.without_count().unwrap_err();
    /// assert!(refused.to_string().starts_with("invalid rules: `count` of `logins`: "), "{refused}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRules`] for the first such rule.
    pub fn without_count(self) -> Result<Self> {
        match self.rules.iter().position(|it| it.count.is_some()) {
            None => Ok(self),
            Some(place) => {
                let reason = "is for programs that see how requests end, which this one does not";
                let mistake = ("count", reason.to_owned());
                let mistake = Mistake::of(place, &self.rules[place].name, mistake);
                Err(mistake.error(&self.source))
            }
        }
    }

    /// The rules that it describes.
    pub(super) fn rules(&self, registry: &Arc<Registry>) -> Result<Vec<Rule>> {
        let each = self.rules.iter();
        let each = each.map(|it| it.rule(|policy| it.plan(registry, policy)));
        each.collect()
    }

    /// Refuses names that no rule has, and rules of which more apply together than can decide.
    fn check_together(&self, rules: &[Rule]) -> Result<(), Mistake> {
        let touches = self.rules.iter().map(|it| model_of(it.limit.policy()?));
        let touches: Vec<_> = touches.map(|it| Some(it?.touches(1))).collect();
        let mistake = |place: usize, reason| Mistake::of(place, &self.rules[place].name, reason);
        let instead_of = instead_of(rules).map_err(|(place, reason)| mistake(place, reason))?;
        for (place, rule) in rules.iter().enumerate() {
            let applies = |other: &usize| rules[*other].covers(rule);
            let applying: Vec<_> = (0..rules.len()).filter(applies).collect();
            let is_shadow = |place: usize| rules[place].is_shadow;
            let is_replaced = |place: usize| {
                applying.iter().any(|other| {
                    let replaced = instead_of.get(*other);
                    replaced.is_some_and(|it| it.contains(&place))
                        && (!is_shadow(*other) || is_shadow(place))
                })
            };
            for mode in [false, true] {
                let deciding = applying.iter().copied();
                let deciding = deciding.filter(|it| is_shadow(*it) == mode && !is_replaced(*it));
                if first_too_many(deciding.filter_map(|it| touches[it])).is_some() {
                    let reason = "wherever this rule applies, more do than can decide a request: at \
                                  most 32, which touch at most 2,000 members of logs and counters";
                    return Err(mistake(place, ("name", reason.to_owned())));
                }
            }
        }
        Ok(())
    }
}

impl RuleLimit {
    fn read(raw: RawLimit, inherited: Option<&str>) -> Result<Self, String> {
        match raw {
            RawLimit::Word(word) if word == ALLOW => Ok(Self::Allow),
            RawLimit::Word(word) if word == BLOCK => Ok(Self::Block),
            RawLimit::Word(word) => Err(format!(
                "`{word}` is neither \"{ALLOW}\" nor \"{BLOCK}\" nor a limit such as \
                 {{ algorithm = \"fixed_window\", rate = \"5/1m\" }}"
            )),
            RawLimit::Fields(mut fields) => {
                if let Some(algorithm) = inherited.filter(|_| !fields.has("algorithm")) {
                    fields.put("algorithm", algorithm.to_owned());
                }
                fields.try_into().map(Self::Policy)
            }
        }
    }

    fn policy(&self) -> Option<&AnyPolicy> {
        match self {
            Self::Policy(policy) => Some(policy),
            Self::Allow | Self::Block => None,
        }
    }
}

fn read_cost(value: Scalar) -> Result<RuleCost, String> {
    match value {
        Scalar::Text(name) if !name.is_empty() => Ok(RuleCost::Attribute(name)),
        number @ Scalar::Number(_) => u32::read(number).map(RuleCost::Fixed),
        _ => Err("must be a number or the name of an attribute".to_owned()),
    }
}

fn read_count(value: Scalar) -> Result<Ending, String> {
    match &*String::read(value)? {
        "failures" => Ok(Ending::Failure),
        "successes" => Ok(Ending::Success),
        other => Err(format!(
            "`{other}` is neither \"failures\" nor \"successes\""
        )),
    }
}

/// What the value of a field means.
fn read<T>(
    field: &'static str,
    value: Option<Scalar>,
    read: fn(Scalar) -> Result<T, String>,
) -> Result<Option<T>, Reason> {
    value
        .map(read)
        .transpose()
        .map_err(|reason| (field, reason))
}

fn model_of(policy: &AnyPolicy) -> Option<Algorithm> {
    // A policy that has no model is refused when it is read.
    policy.clone().model("").ok()
}

fn is_shared(policy: &AnyPolicy) -> bool {
    matches!(policy, AnyPolicy::SharedRate(_))
}

/// The algorithm whose keys begin so.
fn algorithm_of(name: &str) -> Option<&'static str> {
    let (beginning, _) = name.split_once(':')?;
    let mut all = AnyPolicy::examples(1, Duration::from_secs(1)).map(|it| it.algorithm());
    all.find(|it| *it == beginning)
}

impl RuleConfig {
    fn read(raw: RawRule) -> Result<Self, Reason> {
        if raw.name.is_empty() {
            return Err(("name", "must not be empty".to_owned()));
        }
        let limiter = read("limiter", raw.limiter, String::read)?;
        let shared = limiter.as_ref().map(|_| "shared_rate");
        let limit = RuleLimit::read(raw.limit, shared).map_err(|reason| ("limit", reason))?;
        let inherited = limit.policy().map(AnyPolicy::algorithm).or(shared);
        let mut plans = BTreeMap::new();
        for (name, raw) in raw.plans {
            if [ALLOW, BLOCK].contains(&&*name) {
                return Err(("plans", format!("each rule has the plan `{name}`")));
            }
            let read = RuleLimit::read(raw, inherited);
            let plan = read.map_err(|reason| ("plans", format!("`{name}`: {reason}")))?;
            plans.insert(name, plan);
        }
        let rule = Self {
            name: raw.name,
            when: raw
                .when
                .into_iter()
                .map(|(it, values)| (it, values.0))
                .collect(),
            by: raw.by,
            limit,
            plans,
            keys: raw.keys,
            limiter,
            cost: read("cost", raw.cost, read_cost)?,
            penalty: read("penalty", raw.penalty, Duration::read)?,
            count: read("count", raw.count, read_count)?,
            shadow: read("shadow", raw.shadow, bool::read)?.unwrap_or_default(),
            instead_of: raw.instead_of,
        };
        rule.check()?;
        Ok(rule)
    }

    /// Its policies, its own first.
    fn policies(&self) -> impl Iterator<Item = &AnyPolicy> {
        let limits = std::iter::once(&self.limit).chain(self.plans.values());
        limits.filter_map(RuleLimit::policy)
    }

    /// Refuses fields that do not go together.
    fn check(&self) -> Result<(), Reason> {
        if let Some(time) = self.penalty {
            if let Err(Error::InvalidArgument { reason, .. }) = whole_millis(time, "penalty") {
                return Err(("penalty", reason.to_owned()));
            }
            if self.policies().any(is_shared) {
                return Err(("penalty", "an RRateLimiter has no penalty".to_owned()));
            }
            if self.policies().next().is_none() {
                return Err(("penalty", "there is no limit to exceed".to_owned()));
            }
        }
        if self.count.is_some() {
            if self.policies().next().is_none() {
                return Err(("count", "there is no limit that counts".to_owned()));
            }
            let gives_turns =
                |it: &AnyPolicy| model_of(it).is_some_and(|it| it.properties().gives_turns);
            if self.policies().any(gives_turns) {
                return Err(("count", NOTHING_BACK.to_owned()));
            }
        }
        if let Some(limiter) = &self.limiter {
            let reason = match algorithm_of(limiter) {
                _ if limiter.is_empty() => "must not be empty".to_owned(),
                Some(algorithm) => format!("keys of a `{algorithm}` begin with `{algorithm}:`"),
                None if self.policies().any(|it| !is_shared(it)) => {
                    "an RRateLimiter has a `rate` and no other algorithm".to_owned()
                }
                None if self.policies().next().is_none() => "there is no `rate`".to_owned(),
                None if self.by.is_empty() && self.policies().count() > 1 => {
                    "one RRateLimiter has no second rate: a plan needs a rule with `by`".to_owned()
                }
                None => return self.check_cost(),
            };
            return Err(("limiter", reason));
        }
        if self.policies().any(is_shared) {
            let reason = "a `shared_rate` is that of a `limiter`, which is missing".to_owned();
            return Err(("limit", reason));
        }
        self.check_cost()
    }

    /// Refuses a cost that no request could be granted.
    fn check_cost(&self) -> Result<(), Reason> {
        match &self.cost {
            Some(RuleCost::Fixed(0)) => Err(("cost", "must be at least 1".to_owned())),
            Some(RuleCost::Fixed(cost)) => {
                let mut limits = self.policies().filter_map(|it| model_of(it)?.limit());
                match limits.find(|limit| i64::from(*cost) > *limit) {
                    Some(limit) => Err(("cost", format!("is above a limit, {limit}"))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The names of its limiter's targets with this policy. No limiter of another algorithm, and
    /// none of another rule without a `limiter`, has such ones.
    fn names_of(&self, policy: &AnyPolicy) -> Names {
        let Some(limiter) = &self.limiter else {
            let name = escaped(&self.name);
            return Names::BeginWith(format!("{}:{name}:", policy.algorithm()));
        };
        match self.by.is_empty() {
            true => Names::Is(limiter.clone()),
            false => Names::BeginWith(format!("{limiter}:")),
        }
    }

    fn take_targets(&self, targets: &mut Taken) -> Result<(), Reason> {
        for policy in self.policies() {
            let taken = targets.add(self.names_of(policy), &self.name);
            let field = if self.limiter.is_some() {
                "limiter"
            } else {
                "name"
            };
            taken.map_err(|earlier| (field, format!("its keys may be those of `{earlier}`")))?;
        }
        Ok(())
    }

    /// The rule that it describes.
    /// The plan of a limit of this policy.
    fn plan(&self, registry: &Arc<Registry>, policy: &AnyPolicy) -> Result<Plan> {
        let limiter = PolicyLimiter::new(Arc::clone(registry), policy.clone())?;
        let limiter = match self.names_of(policy) {
            Names::BeginWith(prefix) => limiter.with_prefix(prefix),
            // The key is then empty.
            Names::Is(name) => limiter.with_prefix(name).accept_empty_key(),
        };
        let limiter = limiter.with_name(&*self.name);
        Ok(Plan::Limit(match self.penalty {
            Some(penalty) => Arc::new(limiter.with_penalty(penalty)?),
            None => Arc::new(limiter),
        }))
    }

    /// The rule, with these plans of its policies.
    fn rule<E>(&self, plan: impl Fn(&AnyPolicy) -> Result<Plan, E>) -> Result<Rule, E> {
        let plan = |limit: &RuleLimit| match limit {
            RuleLimit::Policy(policy) => plan(policy),
            RuleLimit::Allow => Ok(Plan::Allow),
            RuleLimit::Block => Ok(Plan::Block),
        };
        let mut rule = Rule::with(self.name.as_str().into(), plan(&self.limit)?)
            .by(self.by.iter().map(|it| &**it))
            .with_plan(ALLOW, Plan::Allow)
            .with_plan(BLOCK, Plan::Block);
        for (name, values) in &self.when {
            rule = rule.when(name, values.iter().map(|it| &**it));
        }
        for (name, limit) in &self.plans {
            rule = rule.with_plan(name, plan(limit)?);
        }
        if self.limiter.is_some() {
            rule.sole_key = "";
        }
        if let Some(cost) = &self.cost {
            rule.cost = cost.clone();
        }
        rule.keys = self.keys.clone();
        rule.instead_of = self.instead_of.clone();
        rule.counts_only = self.count;
        rule.is_shadow = self.shadow;
        Ok(rule)
    }
}
