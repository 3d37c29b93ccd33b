//! `import`: converts a configuration of envoyproxy/ratelimit into rules.
//!
//! In envoyproxy/ratelimit, a descriptor follows a tree of keys and values, at each level the most
//! specific entry, and only the limit of the last entry applies. In a rules file, all rules apply
//! that name the entries of the descriptor. So each limit of the tree becomes a rule. If a more
//! specific entry would have led a descriptor to another place in the tree, the rule of the limit
//! at that place is `instead_of` the less specific rule; if there is no limit at that place, a rule
//! that allows the request is.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use redisson_rate_limiter::RulesConfig;
use serde::Deserialize;
use serde_json::json;

use crate::failure::Failure;
use crate::report::Report;

pub(super) fn import(file: &Path) -> Result<Report, Failure> {
    let refused = |error: String| Failure::usage(format!("{}: {error}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    let (rules, notes) = rules_of(&text).map_err(refused)?;
    let json = json!({ "rules": rules, "notes": notes });
    let mut text = String::new();
    for note in &notes {
        let _ = writeln!(text, "# Not as there: {note}"); // writing to a String never fails
    }
    Ok(Report::new(format!("{text}{rules}").trim_end(), json))
}

/// Returns the rules in TOML, and notes on how they differ from the configuration.
fn rules_of(text: &str) -> Result<(String, Vec<String>), String> {
    let config: Config = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mut import = Import::new(&config.domain);
    import.add_limits(&config.descriptors, &mut Vec::new())?;
    import.replace_less_specific(&config.descriptors);
    import.note_orders();
    let rules = import.in_toml();
    // The library may refuse rules that envoyproxy/ratelimit accepts.
    RulesConfig::from_toml(&rules).map_err(|error| error.to_string())?;
    Ok((rules, import.notes.into_iter().collect()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    domain: String,
    #[serde(default)]
    descriptors: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: String,
    #[serde(default)]
    value: String,
    rate_limit: Option<Limit>,
    #[serde(default)]
    shadow_mode: bool,
    #[serde(default)]
    detailed_metric: bool,
    #[serde(default)]
    value_to_metric: bool,
    #[serde(default)]
    share_threshold: bool,
    #[serde(default)]
    quota_mode: bool,
    #[serde(default)]
    descriptors: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    unit: Option<String>,
    requests_per_unit: Option<u32>,
    unit_multiplier: Option<u32>,
    #[serde(default)]
    unlimited: bool,
    name: Option<String>,
    #[serde(default)]
    replaces: Vec<Replaced>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    #[expect(dead_code, reason = "what it names has no form here")]
    name: String,
}

impl Entry {
    fn value(&self) -> Value<'_> {
        match self.value.strip_suffix('*') {
            _ if self.value.is_empty() => Value::Any,
            Some(_) if self.share_threshold => Value::Together(&self.value),
            Some(_) => Value::Each(&self.value),
            None => Value::Is(&self.value),
        }
    }
}

/// The condition on the value of a descriptor's entry, in ascending order of specificity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Value<'a> {
    /// Any value; each value is counted by itself.
    Any,
    /// A value that matches this text, which ends with `*`; each value is counted by itself.
    Each(&'a str),
    /// A value that matches this text, which ends with `*`; all are counted together.
    Together(&'a str),
    /// Exactly this value.
    Is(&'a str),
}

impl Value<'_> {
    /// Whether this condition is more specific than `other`, and values that fulfil it may fulfil
    /// `other` too.
    fn replaces(self, other: Value<'_>) -> bool {
        let begins = |one: &str, other: &str| one.starts_with(other.trim_end_matches('*'));
        match (self, other) {
            (Self::Any, _) | (_, Value::Is(_)) => false,
            (_, Value::Any) => true,
            (Self::Is(one), Value::Each(other) | Value::Together(other)) => begins(one, other),
            (_, Value::Each(_) | Value::Together(_)) => false,
        }
    }
}

/// A key in the tree, and the condition on the value of its entry.
type Step<'a> = (&'a str, Value<'a>);

struct Rule<'a> {
    name: String,
    /// The path in the tree that leads to the limit.
    steps: Vec<Step<'a>>,
    /// The value of the field `limit` in TOML.
    limit: String,
    is_shadow: bool,
    /// The names of the rules that do not apply if this one does.
    instead_of: BTreeSet<String>,
}

struct Import<'a> {
    domain: &'a str,
    rules: Vec<Rule<'a>>,
    /// The names of all rules, which must differ.
    names: HashSet<String>,
    /// How the rules differ from the configuration.
    notes: BTreeSet<String>,
}

impl<'a> Import<'a> {
    fn new(domain: &'a str) -> Self {
        Self {
            domain,
            rules: Vec::new(),
            names: HashSet::new(),
            notes: BTreeSet::new(),
        }
    }

    /// Adds a rule for each limit of these entries and those below them. `path` leads to them.
    fn add_limits(&mut self, all: &'a [Entry], path: &mut Vec<Step<'a>>) -> Result<(), String> {
        for entry in all {
            path.push((&entry.key, entry.value()));
            if entry.quota_mode {
                self.note(format!("`quota_mode` of `{}` has no form", entry.key));
            }
            if entry.detailed_metric || entry.value_to_metric {
                self.note(
                    "`detailed_metric` and `value_to_metric`: metrics have no keys".to_owned(),
                );
            }
            if let Some(limit) = &entry.rate_limit {
                let name = limit.name.clone().unwrap_or_else(|| self.name_of(path));
                let rule = Rule {
                    limit: self.limit(limit, &name)?,
                    name: self.unique(name),
                    steps: path.clone(),
                    is_shadow: entry.shadow_mode,
                    instead_of: BTreeSet::new(),
                };
                self.note_counts(&rule);
                self.rules.push(rule);
            }
            self.add_limits(&entry.descriptors, path)?;
            path.pop();
        }
        Ok(())
    }

    fn limit(&mut self, limit: &Limit, name: &str) -> Result<String, String> {
        if !limit.replaces.is_empty() {
            self.note(format!(
                "`replaces` of `{name}` has no form: it is about other descriptors of a request"
            ));
        }
        if limit.unlimited {
            return Ok("\"allow\"".to_owned());
        }
        let requests = limit.requests_per_unit.unwrap_or(0);
        if requests == 0 {
            return Ok("\"block\"".to_owned());
        }
        let unit = limit.unit.as_deref().unwrap_or_default().to_lowercase();
        let multiplier = limit.unit_multiplier.unwrap_or(1);
        let (time, is_aligned) = match (&*unit, multiplier) {
            ("second", count) => (format!("{count}s"), true),
            ("minute", count) => (format!("{count}m"), true),
            ("hour", count) => (format!("{count}h"), true),
            ("day", count) => (format!("{count}d"), true),
            ("week" | "month" | "year", 1) => {
                self.note(format!("`{name}` is by the calendar's {unit}, in UTC"));
                (unit, false)
            }
            ("week", count) => (format!("{}d", u64::from(count) * 7), true),
            _ => {
                return Err(format!(
                    "`{name}`: there is no unit `{unit}` of {multiplier}"
                ));
            }
        };
        if multiplier > 1 {
            self.note(format!(
                "`{name}`: windows of several units begin otherwise"
            ));
        }
        let aligned = if is_aligned {
            ", aligned_to_clock = true"
        } else {
            ""
        };
        Ok(format!(
            "{{ algorithm = \"fixed_window\", rate = \"{requests}/{time}\"{aligned} }}"
        ))
    }

    /// Notes which entries of a rule are counted in another way than by envoyproxy/ratelimit.
    fn note_counts(&mut self, rule: &Rule<'_>) {
        for (key, value) in &rule.steps {
            let is_counted = matches!(value, Value::Any | Value::Each(_));
            if is_counted && is_path(key) {
                self.note(format!("`{key}` counts without its query"));
            }
        }
    }

    /// Makes the rules of more specific entries replace those of less specific ones, on all levels.
    fn replace_less_specific(&mut self, all: &'a [Entry]) {
        for place in 0..self.rules.len() {
            let steps = self.rules[place].steps.clone();
            let mut siblings = all;
            for (level, (key, value)) in steps.iter().enumerate() {
                let specific = siblings.iter().filter(|it| it.key == *key);
                for entry in specific.filter(|it| it.value().replaces(*value)) {
                    let mut path = steps.clone();
                    path[level].1 = entry.value();
                    self.replace(place, &path, level);
                }
                let own = siblings.iter();
                let mut own = own.filter(|it| it.key == *key && it.value() == *value);
                siblings = own.next().map_or(&[], |it| &it.descriptors);
            }
        }
    }

    /// Makes the rules below a more specific entry replace the rule at index `replaced`. `path` is
    /// that rule's path with the more specific entry at `level`.
    fn replace(&mut self, replaced: usize, path: &[Step<'a>], level: usize) {
        let (name, is_shadow) = (
            self.rules[replaced].name.clone(),
            self.rules[replaced].is_shadow,
        );
        let mut covers_all = false;
        for rule in &mut self.rules {
            let keys = |steps: &[Step<'a>]| steps.iter().map(|it| it.0).collect::<Vec<_>>();
            let begins = rule.steps.get(..=level) == Some(&path[..=level]);
            if begins && keys(&rule.steps) == keys(path) {
                rule.instead_of.insert(name.clone());
                // A rule in shadow mode does not replace one that is enforced.
                covers_all |= (is_shadow || !rule.is_shadow)
                    && rule.steps[level + 1..].iter().all(|it| it.1 == Value::Any);
            }
        }
        if covers_all {
            return;
        }
        let mut steps = path.to_vec();
        for step in &mut steps[level + 1..] {
            step.1 = Value::Any;
        }
        let known = self.rules.iter_mut();
        let mut known = known.filter(|it| it.limit == "\"allow\"" && it.steps == steps);
        if let Some(known) = known.find(|it| !it.is_shadow || is_shadow) {
            known.instead_of.insert(name);
            return;
        }
        let allowing = self.unique(format!("{} without limit", self.name_of(&steps)));
        self.rules.push(Rule {
            name: allowing,
            steps,
            limit: "\"allow\"".to_owned(),
            is_shadow: false,
            instead_of: BTreeSet::from([name]),
        });
    }

    /// Notes the keys that occur in several orders: a rule applies to entries in any order, but
    /// envoyproxy/ratelimit distinguishes the orders.
    fn note_orders(&mut self) {
        let mut orders: BTreeMap<Vec<&str>, BTreeSet<Vec<&str>>> = BTreeMap::new();
        for rule in &self.rules {
            let keys: Vec<_> = rule.steps.iter().map(|it| it.0).collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            orders.entry(sorted).or_default().insert(keys);
        }
        let several = orders.into_iter().filter(|(_, orders)| orders.len() > 1);
        for (keys, _) in several.collect::<Vec<_>>() {
            let keys = keys.join(", ");
            self.note(format!(
                "entries {keys} are limited in each order, by all limits of them"
            ));
        }
    }

    fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// The name for a rule with these steps, which envoyproxy/ratelimit gives to its statistics.
    fn name_of(&self, steps: &[Step<'_>]) -> String {
        let mut name = self.domain.to_owned();
        for (key, value) in steps {
            let value = match value {
                Value::Any => String::new(),
                Value::Each(value) | Value::Together(value) | Value::Is(value) => {
                    format!("_{value}")
                }
            };
            let _ = write!(name, ".{key}{value}"); // writing to a String never fails
        }
        name
    }

    fn unique(&mut self, name: String) -> String {
        let others = (2..).map(|number| format!("{name} {number}"));
        let mut candidates = std::iter::once(name.clone()).chain(others);
        // This always finds one, because there are infinitely many candidates.
        let unique = candidates
            .find(|it| !self.names.contains(it))
            .unwrap_or(name);
        self.names.insert(unique.clone());
        unique
    }

    fn in_toml(&self) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            let separator = if text.is_empty() { "" } else { "\n" };
            // Writing to a String never fails.
            let _ = writeln!(text, "{separator}[[rules]]\nname = {}", quoted(&rule.name));
            let (when, by) = conditions(self.domain, &rule.steps);
            let _ = writeln!(text, "when = {{ {} }}", when.join(", "));
            let lists = [
                ("by", by),
                ("instead_of", rule.instead_of.iter().cloned().collect()),
            ];
            for (field, names) in lists.iter().filter(|it| !it.1.is_empty()) {
                let names: Vec<_> = names.iter().map(|it| quoted(it)).collect();
                let _ = writeln!(text, "{field} = [{}]", names.join(", "));
            }
            let _ = writeln!(text, "limit = {}", rule.limit);
            if rule.is_shadow {
                text.push_str("shadow = true\n");
            }
        }
        match text.is_empty() {
            true => "rules = []\n".to_owned(),
            false => text,
        }
    }
}

/// The fields of a rule's `when`, and the names of its `by`.
fn conditions(domain: &str, steps: &[Step<'_>]) -> (Vec<String>, Vec<String>) {
    let mut when = vec![format!("domain = {}", quoted(domain))];
    let mut by = Vec::new();
    for (place, (key, value)) in steps.iter().enumerate() {
        // The second entry named `NAME` is written `NAME.2`.
        let number = steps[..=place].iter().filter(|it| it.0 == *key).count();
        let name = match number {
            1 => (*key).to_owned(),
            _ => format!("{key}.{number}"),
        };
        if let Value::Is(text) | Value::Each(text) | Value::Together(text) = value {
            when.push(format!("{} = {}", quoted(&name), quoted(text)));
        }
        if let Value::Any | Value::Each(_) = value {
            // In envoyproxy/ratelimit, each address counts by itself.
            let bits = if is_address(&name) { "/128" } else { "" };
            by.push(format!("{name}{bits}"));
        }
    }
    (when, by)
}

/// Whether rules read the value of this entry as an address.
fn is_address(name: &str) -> bool {
    ["address", "remote_address"].contains(&name)
}

/// Whether rules read the value of this entry as a path.
fn is_path(name: &str) -> bool {
    ["path", ":path"].contains(&name)
}

/// A basic string of TOML, which has the form of a string of JSON.
fn quoted(text: &str) -> String {
    json!(text).to_string()
}

#[cfg(test)]
mod tests;
