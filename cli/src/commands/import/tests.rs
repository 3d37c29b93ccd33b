//! Compares the decisions of the imported rules with a walk down the tree.

use std::borrow::Cow;

use proptest::prelude::*;
use redisson_rate_limiter::{Attributes, RedissonClient, Rules, Verdict};
use tokio::runtime::Builder;

use super::*;

/// A descriptor of Envoy's protocol. A rule applies only if it names all its entries.
struct Descriptor<'a>(&'a [(&'a str, &'a str)]);

impl Attributes for Descriptor<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        if name == "domain" {
            return Some("edge".into());
        }
        let (name, number) = name.split_once('.').unwrap_or((name, "1"));
        let mut values = self.0.iter().filter(|(it, _)| *it == name);
        let value = values.nth(number.parse::<usize>().unwrap() - 1);
        value.map(|(_, value)| (*value).into())
    }

    fn may_be_named_by(&self, names: usize) -> bool {
        names == self.0.len()
    }
}

fn imported(text: &str) -> (Rules, Vec<String>) {
    let (text, notes) = rules_of(text).unwrap();
    let config = RulesConfig::from_toml(&text).unwrap_or_else(|it| panic!("{it}\n{text}"));
    let rules = RedissonClient::in_memory().rules_from(&config).unwrap();
    (rules, notes)
}

/// The limit of the rule that applies to a descriptor; `None` if no rule limits it.
fn limit(rules: &Rules, descriptor: &[(&str, &str)]) -> Option<u64> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let verdict = runtime.block_on(rules.peek_all(&[Descriptor(descriptor)]));
    let decisions = match verdict.unwrap() {
        Verdict::Denied(_) => return Some(0),
        Verdict::Granted(granted) => granted.into_decision().map(|it| it.into_decisions()),
    };
    let decisions = decisions.unwrap_or_default();
    assert!(decisions.len() < 2, "one limit applies: {decisions:?}");
    decisions.first().map(|it| it.limit())
}

/// The limit at the end of a walk down the tree; `None` if there is none or it is not enforced.
fn walked(entries: &[Entry], descriptor: &[(&str, &str)]) -> Option<u64> {
    let ((key, value), rest) = descriptor.split_first()?;
    let of_key = || entries.iter().filter(|it| it.key == *key);
    let exact = of_key().find(|it| it.value == *value && !it.value.ends_with('*'));
    let begins = || {
        of_key().find(|it| {
            it.value
                .strip_suffix('*')
                .is_some_and(|it| value.starts_with(it))
        })
    };
    let entry = exact
        .or_else(begins)
        .or_else(|| of_key().find(|it| it.value.is_empty()))?;
    if !rest.is_empty() {
        return walked(&entry.descriptors, rest);
    }
    let limit = entry.rate_limit.as_ref()?;
    let is_enforced = !entry.shadow_mode && !limit.unlimited;
    is_enforced.then(|| limit.requests_per_unit.unwrap_or(0).into())
}

/// Generates the entries of a level in YAML. A key is that of the level, or one that all levels
/// have.
fn entries(level: usize) -> BoxedStrategy<String> {
    let limit = prop_oneof![
        3 => (0..4_u32).prop_map(|it| format!("{{ unit: minute, requests_per_unit: {it} }}")),
        1 => Just("{ unlimited: true }".to_owned()),
    ];
    let below = match level {
        2 => Just(String::new()).boxed(),
        _ => entries(level + 1),
    };
    let key = prop::sample::select(vec![format!("k{level}"), "any".to_owned()]);
    let value = prop::sample::select(vec!["", "a", "b", "a*"]);
    let entry = (
        key,
        value,
        prop::option::weighted(0.7, limit),
        any::<bool>(),
        below,
    );
    let entry = entry.prop_map(move |(key, value, limit, is_shadow, below)| {
        let indent = "  ".repeat(2 * level);
        let mut text = format!("{indent}- key: {key}\n");
        if !value.is_empty() {
            text += &format!("{indent}  value: \"{value}\"\n");
        }
        if let Some(limit) = limit {
            text += &format!("{indent}  rate_limit: {limit}\n");
            if is_shadow {
                text += &format!("{indent}  shadow_mode: true\n");
            }
        }
        if !below.is_empty() {
            text += &format!("{indent}  descriptors:\n{below}");
        }
        ((key, value), text)
    });
    // Each pair of key and value occurs only once on a level.
    let all = prop::collection::btree_map(any::<u8>(), entry, usize::from(level == 0)..4);
    let all = all.prop_map(|all| {
        let each: BTreeMap<_, _> = all.into_values().collect();
        each.into_values().collect::<String>()
    });
    all.boxed()
}

proptest! {
    #[test]
    fn the_rules_limit_each_descriptor_as_a_walk_down_the_tree_does(
        entries in entries(0),
        asked in prop::collection::vec(
            prop::collection::vec((any::<bool>(), prop::sample::select(vec!["a", "ab", "b", "c"])), 1..4),
            16,
        ),
    ) {
        let text = format!("domain: edge\ndescriptors:\n{entries}");
        let config: Config = serde_saphyr::from_str(&text).unwrap();
        let (rules, _) = imported(&text);
        for asked in &asked {
            let names = ["k0", "k1", "k2"];
            let each = asked.iter().zip(names);
            let descriptor: Vec<_> = each
                .map(|((is_any, value), name)| (if *is_any { "any" } else { name }, *value))
                .collect();
            let expected = walked(&config.descriptors, &descriptor);
            prop_assert_eq!(limit(&rules, &descriptor), expected, "{:?}\n{}", descriptor, text);
        }
    }
}

#[test]
fn imported_windows_are_aligned_to_the_clock() {
    let (rules, notes) = rules_of(
        "domain: edge\ndescriptors:\n- key: a\n  rate_limit: { unit: HOUR, requests_per_unit: 5, name: hourly }\n",
    )
    .unwrap();
    assert_eq!(
        rules,
        "[[rules]]\nname = \"hourly\"\nwhen = { domain = \"edge\" }\nby = [\"a\"]\n\
         limit = { algorithm = \"fixed_window\", rate = \"5/1h\", aligned_to_clock = true }\n"
    );
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn differences_from_the_configuration_are_listed() {
    let text = "
domain: edge
descriptors:
- key: path
  detailed_metric: true
  rate_limit: { unit: month, requests_per_unit: 9, replaces: [{ name: other }] }
- key: a
  descriptors:
  - key: b
    rate_limit: { unit: minute, unit_multiplier: 5, requests_per_unit: 9 }
- key: b
  descriptors:
  - key: a
    rate_limit: { unit: minute, requests_per_unit: 9 }
";
    let (_, notes) = imported(text);
    for expected in [
        "`detailed_metric`",
        "`edge.path` is by the calendar's month",
        "`replaces` of `edge.path` has no form",
        "`path` counts without its query",
        "`edge.a.b`: windows of several units begin otherwise",
        "entries a, b are limited in each order",
    ] {
        assert!(
            notes.iter().any(|it| it.contains(expected)),
            "{expected}: {notes:?}"
        );
    }
}

#[test]
fn an_invalid_configuration_is_refused() {
    for (text, reason) in [
        ("descriptors: []", "domain"),
        ("domain: a\ndescriptors:\n- kye: a", "kye"),
        ("domain: a\ndescriptors:\n- value: a", "key"),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit: { unit: era, requests_per_unit: 1 }",
            "`a.a`: there is no unit `era`",
        ),
        (
            "domain: a\ndescriptors:\n- key: path\n  value: /a?b\n  rate_limit: { unit: day, requests_per_unit: 1 }",
            "a path is compared without its query",
        ),
        (
            "domain: a\ndescriptors:\n- key: a\n  rate_limit: { unit: day, unit_multiplier: 0, requests_per_unit: 1 }",
            "rate",
        ),
    ] {
        let refused = rules_of(text).unwrap_err();
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    let (rules, _) = rules_of("domain: a").unwrap();
    assert_eq!(rules, "rules = []\n");
}
