//! Rules as a configuration file has them: with the feature `serde`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, iter};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::{Plan, Rule};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::limiters::{PolicyLimiter, Registry};
use crate::policies::AnyPolicy;
use crate::rate::whole_millis;

/// Rules as a configuration file has them: with the feature `serde`, by which any format can be read. `RulesFile`, with the feature
/// `rules-file`, reads TOML and YAML. What a rule counts for is a name, which the application gives a meaning;
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
/// An unknown field, a number that its policy refuses, a plan that is missing and a name or a prefix that two rules have are errors when
/// the file is read, which name the field and, by the format's parser, the line.
///
/// The limiters of a rule have the name of the rule, and the prefix `name:algorithm:`, such as `per-user:token_bucket:`. So
/// [`Rules::replace`](super::Rules::replace) with the rules of a changed file keeps what was used, also where an algorithm
/// changes. With a `prefix`, the rule's own limiter has that one, and so have its plans of the same algorithm; those of
/// another one have `algorithm:prefix`. If the algorithm of such a rule changes, its prefix must change.
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
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(Some(_))));
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected(429, _)));
/// assert_eq!(rules.check(&"monitoring").await?, Verdict::Granted(None));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RulesConfig {
    /// Whether all rules are in shadow mode: for [`Rules::set_shadow`](super::Rules::set_shadow).
    #[serde(default)]
    pub shadow: bool,
    /// The rules, whose names and prefixes differ.
    #[serde(deserialize_with = "with_names_and_prefixes_that_differ")]
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
    /// The prefix of the limiter's keys, if it is not made of the name and the algorithm.
    pub prefix: Option<String>,
    /// How long a denied request locks its key out, at least 1 ms.
    pub penalty: Option<Duration>,
    /// Whether the rule is in shadow mode.
    pub shadow: bool,
    /// The policies of the rule's plans, by their names. Each rule also has the plans `allow` and `block`.
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
        let is_shared = |policy: &AnyPolicy| matches!(policy, AnyPolicy::SharedRate(_));
        if penalty_ms.is_some() && (is_shared(&policy) || plans.values().any(is_shared)) {
            return Err(format!(
                "`penalty_ms` of `{name}`: a `shared_rate` has no penalty"
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

/// Reads rules, and refuses one that has the name or a prefix of an earlier one where it stands.
fn with_names_and_prefixes_that_differ<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<RuleConfig>, D::Error> {
    struct All;

    /// The rule of each name and of each prefix.
    #[derive(Default)]
    struct Earlier {
        names: HashSet<String>,
        prefixes: HashMap<String, String>,
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
            let (Earlier { names, prefixes }, name) = (self.0, &rule.name);
            if !names.insert(name.clone()) {
                let text = format!("duplicate `name`: `{name}` is that of an earlier rule");
                return Err(de::Error::custom(text));
            }
            for policy in iter::once(&rule.policy).chain(rule.plans.values()) {
                let prefix = rule.prefix_of(policy);
                if let Some(earlier) = prefixes.get(&prefix).filter(|earlier| *earlier != name) {
                    let text = format!("duplicate `prefix`: `{prefix}` is that of `{earlier}`");
                    return Err(de::Error::custom(text));
                }
                prefixes.insert(prefix, name.clone());
            }
            Ok(rule)
        }
    }

    // Not as a list, which formats make of nothing.
    deserializer.deserialize_any(All)
}

impl RuleConfig {
    /// The prefix of its limiter with this policy, by which no two rules share keys.
    fn prefix_of(&self, policy: &AnyPolicy) -> String {
        let algorithm = policy.algorithm();
        match &self.prefix {
            None => format!("{}:{algorithm}:", self.name),
            Some(prefix) if algorithm == self.policy.algorithm() => prefix.clone(),
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
