//! Rules as a configuration file has them: with the feature `serde`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, iter};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::targets::{Names, Taken};
use super::{Plan, Rule};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::limiters::joint::first_too_many;
use crate::limiters::{PolicyLimiter, Registry};
use crate::policies::AnyPolicy;
use crate::policies::algorithm::{INTERNAL, Sealed};
use crate::rate::whole_millis;

/// Rules as a configuration file has them: with the feature `serde`, by which any format can be
/// read. `RulesFile`, with the feature `rules-file`, reads TOML and YAML. What a rule counts for is
/// a name, which the application gives a meaning;
/// [`RedissonClient::rule`](crate::RedissonClient::rule) makes the rule.
///
/// ```toml
/// shadow = false                  # all rules: decided and counted, but not enforced
///
/// [[rules]]
/// name = "per-user"
/// key = "user"                    # what the application calls so
/// policy = { algorithm = "token_bucket", per_second = 10, capacity = 100 }
/// penalty_ms = 60000              # a denied request locks its key out
/// shadow = true                   # this rule
/// [rules.plans]
/// paid = { algorithm = "token_bucket", per_second = 100 }
/// [rules.keys]                    # plans of keys; there are also those of RulesFile::plan_of
/// acme = "paid"
/// monitoring = "allow"            # the rule does not apply
/// mallory = "block"               # the rule denies
///
/// [[rules]]
/// name = "partner"
/// key = "partner"
/// prefix = "orders:"              # where Java services find the RRateLimiters
/// policy = { algorithm = "shared_rate", permits = 5, interval_ms = 1000 }
/// ```
///
/// An unknown field, a number that its policy refuses, a plan that is missing, a name that two
/// rules have a prefix by which two rules may have the same keys, and more rules with one `key`
/// than decide a request together (32) are errors when the file is read, which name the field and,
/// by the format's parser, the line.
///
/// The limiters of a rule have the name of the rule, and the prefix `algorithm:name:`, such as
/// `token_bucket:per-user:`. With a `prefix`, a `shared_rate` has that one, which Java services
/// know, and policies have `algorithm:prefix`. So no two algorithms have the same keys, whatever
/// was in the file before. A rule keeps what was used while its name or prefix, its algorithm and
/// its `key` stay; otherwise it starts anew, and [`Rules::replace`](super::Rules::replace) says so.
///
/// ```
/// use redisson_rate_limiter::{RedissonClient, Rule, RulesConfig, Verdict};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = r#"{
///     "rules": [{
///         "name": "per-user",
///         "key": "user",
///         "policy": { "algorithm": "fixed_window", "limit": 1, "window_ms": 60000 },
///         "keys": { "monitoring": "allow" }
///     }]
/// }"#;
/// let config: RulesConfig = serde_json::from_str(file)?;
/// let client = RedissonClient::in_memory();
/// let rules = config.rules.iter().map(|rule| {
///     let user = |user: &&str| Some(user.to_string()); // chosen by `rule.key`
///     client.rule(rule, user, |_, _| 429)
/// });
/// let rules = client.rules(rules.collect::<Result<Vec<_>, _>>()?)?;
/// rules.set_shadow(config.shadow);
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected(429, _)));
/// assert_eq!(rules.check(&"monitoring").await?.decision(), None);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RulesConfig {
    /// Whether all rules are in shadow mode: for [`Rules::set_shadow`](super::Rules::set_shadow).
    #[serde(default)]
    pub shadow: bool,
    /// The rules, whose names and keys differ.
    #[serde(deserialize_with = "with_names_and_keys_that_differ")]
    pub rules: Vec<RuleConfig>,
}

/// A rule as a configuration file has it: see [`RulesConfig`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Fields")]
#[non_exhaustive]
pub struct RuleConfig {
    /// The name of the rule and of its limiters.
    pub name: String,
    /// What a request counts for, by a name that the application knows.
    pub key: String,
    /// The policy of the rule's own limiter.
    pub policy: AnyPolicy,
    /// What the limiter's keys begin with instead of the rule's name; of a `shared_rate` without
    /// the algorithm before it.
    pub prefix: Option<String>,
    /// How long a denied request locks its key out, at least 1 ms.
    pub penalty: Option<Duration>,
    /// Whether the rule is in shadow mode.
    pub shadow: bool,
    /// The policies of the rule's plans, by their names. Each rule also has the plans `allow` and
    /// `block`.
    pub plans: BTreeMap<String, AnyPolicy>,
    /// The plans of keys.
    pub keys: BTreeMap<String, String>,
}

field_types! {
    name: String,
    key: String,
    prefix: String,
    penalty_ms: u64,
    shadow: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    name: name,
    key: key,
    policy: AnyPolicy,
    prefix: Option<prefix>,
    penalty_ms: Option<penalty_ms>,
    shadow: Option<shadow>,
    #[serde(default)]
    plans: BTreeMap<String, AnyPolicy>,
    #[serde(default)]
    keys: BTreeMap<String, String>,
}

/// The plans that each rule has.
const ALLOW: &str = "allow";
const BLOCK: &str = "block";

impl TryFrom<Fields> for RuleConfig {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let Fields {
            name: name { value: name },
            key: key { value: key },
            policy,
            prefix,
            penalty_ms,
            shadow,
            plans,
            keys,
        } = fields;
        let penalty_ms = penalty_ms.map(|it| it.value);
        if name.is_empty() {
            return Err("`name` must not be empty".to_owned());
        }
        let penalty = penalty_ms.map(Duration::from_millis);
        if let Some(Err(Error::InvalidArgument { reason, .. })) =
            penalty.map(|it| whole_millis(it, "penalty_ms"))
        {
            return Err(format!("`penalty_ms` of `{name}` {reason}"));
        }
        if penalty_ms.is_some() && (is_shared(&policy) || plans.values().any(is_shared)) {
            return Err(format!(
                "`penalty_ms` of `{name}`: a `shared_rate` has no penalty"
            ));
        }
        let shared = iter::once(&policy)
            .chain(plans.values())
            .find(|it| is_shared(it));
        if let (Some(prefix { value: prefix }), Some(_)) = (&prefix, shared)
            && let Some(algorithm) = algorithm_of(prefix)
        {
            return Err(format!(
                "`prefix` of `{name}`: keys of a `{algorithm}` begin with `{algorithm}:`"
            ));
        }
        if let Some(reserved) = [ALLOW, BLOCK]
            .into_iter()
            .find(|it| plans.contains_key(*it))
        {
            return Err(format!(
                "`plans` of `{name}`: each rule has the plan `{reserved}`"
            ));
        }
        let is_known = |plan: &str| plans.contains_key(plan) || [ALLOW, BLOCK].contains(&plan);
        // Without the key, which may be somebody's name: errors are logged.
        if let Some(plan) = keys.values().find(|plan| !is_known(plan)) {
            return Err(format!(
                "`keys` of `{name}`: a key has the plan `{plan}`, which is none of its `plans`"
            ));
        }
        Ok(Self {
            name,
            key,
            policy,
            prefix: prefix.map(|it| it.value),
            penalty,
            shadow: shadow.is_some_and(|it| it.value),
            plans,
            keys,
        })
    }
}

fn is_shared(policy: &AnyPolicy) -> bool {
    matches!(policy, AnyPolicy::SharedRate(_))
}

/// How many members of logs and counters a request of 1 touches.
fn touches_of(policy: &AnyPolicy) -> u32 {
    // A policy that has no model is refused when its limiter is made.
    let model = policy.model("", INTERNAL);
    model.map_or(0, |model| model.0.touches(1))
}

/// The algorithm whose keys begin so.
fn algorithm_of(prefix: &str) -> Option<&'static str> {
    let (beginning, _) = prefix.split_once(':')?;
    let mut all = AnyPolicy::examples(1, Duration::from_secs(1)).map(|it| it.algorithm());
    all.find(|it| *it == beginning)
}

/// Reads rules, and refuses one where it stands that has the name of an earlier one, or may have
/// its keys.
fn with_names_and_keys_that_differ<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<RuleConfig>, D::Error> {
    struct All;

    #[derive(Default)]
    struct Earlier {
        names: HashSet<String>,
        targets: Taken<String>,
        /// How many members of logs and counters the rules with each `key` touch.
        touches: HashMap<String, Vec<u32>>,
    }

    struct Next<'a>(&'a mut Earlier);

    impl<'de> Visitor<'de> for All {
        type Value = Vec<RuleConfig>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of rules")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut rules: A) -> Result<Self::Value, A::Error> {
            let (mut read, mut earlier) = (Vec::new(), Earlier::default());
            while let Some(rule) = rules.next_element_seed(Next(&mut earlier))? {
                read.push(rule);
            }
            Ok(read)
        }
    }

    impl<'de> DeserializeSeed<'de> for Next<'_> {
        type Value = RuleConfig;

        fn deserialize<D: Deserializer<'de>>(self, rule: D) -> Result<RuleConfig, D::Error> {
            // A format says where a visitor finds an error.
            rule.deserialize_newtype_struct("RuleConfig", self)
        }
    }

    impl<'de> Visitor<'de> for Next<'_> {
        type Value = RuleConfig;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a rule")
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(
            self,
            rule: D,
        ) -> Result<RuleConfig, D::Error> {
            let rule = RuleConfig::deserialize(rule)?;
            let name = &rule.name;
            let Earlier {
                names,
                targets,
                touches,
            } = self.0;
            if !names.insert(name.clone()) {
                let text = format!("duplicate `name`: `{name}` is that of an earlier rule");
                return Err(de::Error::custom(text));
            }
            for policy in iter::once(&rule.policy).chain(rule.plans.values()) {
                let names = Names::BeginWith(rule.prefix_of(policy));
                targets.add(names, name.clone()).map_err(|earlier| {
                    let text =
                        format!("`prefix` of `{name}`: its keys may be those of `{earlier}`");
                    de::Error::custom(text)
                })?;
            }
            let touches = touches.entry(rule.key.clone()).or_default();
            touches.push(touches_of(&rule.policy));
            if first_too_many(touches.iter().copied()).is_some() {
                let key = &rule.key;
                let text = format!(
                    "`key` of `{name}`: all rules with the key `{key}` apply together, and at most 32 decide \
                     a request, which touch at most 2,000 members of logs and counters"
                );
                return Err(de::Error::custom(text));
            }
            Ok(rule)
        }
    }

    // Not as a list, which formats make of nothing.
    deserializer.deserialize_any(All)
}

impl RuleConfig {
    /// The prefix of its limiter with this policy. No limiter of another algorithm has one that
    /// begins with it, and no limiter of another rule that has no `prefix`.
    fn prefix_of(&self, policy: &AnyPolicy) -> String {
        let algorithm = policy.algorithm();
        match &self.prefix {
            None => {
                let name = self.name.replace('%', "%25").replace(':', "%3A");
                format!("{algorithm}:{name}:")
            }
            Some(prefix) if is_shared(policy) => prefix.clone(),
            Some(prefix) => format!("{algorithm}:{prefix}"),
        }
    }

    /// The rule that it describes.
    pub(crate) fn rule<R, E>(
        &self,
        registry: &Arc<Registry>,
        target: impl Fn(&R) -> Option<String> + Send + Sync + 'static,
        rejection: impl Fn(&R, &Decision) -> E + Send + Sync + 'static,
    ) -> Result<Rule<R, E>> {
        let limiter = |policy: &AnyPolicy| {
            let limiter = PolicyLimiter::new(Arc::clone(registry), policy.clone())?;
            let limiter = { limiter.with_prefix(self.prefix_of(policy)) }.with_name(&*self.name);
            match self.penalty {
                Some(penalty) => limiter.with_penalty(penalty),
                None => Ok(limiter),
            }
        };
        let mut rule = Rule::new(limiter(&self.policy)?, target, rejection);
        rule = rule
            .with_plan(ALLOW, Plan::Allow)
            .with_plan(BLOCK, Plan::Block);
        for (plan, policy) in &self.plans {
            rule = rule.with_plan(plan, Plan::Limit(Arc::new(limiter(policy)?)));
        }
        rule.counts_by = Some(self.key.clone());
        rule.plans_of_keys = self.keys.clone();
        if !self.keys.is_empty() {
            let keys = self.keys.clone();
            rule = rule.plan_of(move |_, key| keys.get(key).cloned());
        }
        Ok(match self.shadow {
            true => rule.in_shadow(),
            false => rule,
        })
    }
}
