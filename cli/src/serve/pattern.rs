//! Which requests a rule is for, and what of them it counts by: the `key` of a rule in the file.
//!
//! | `key` | applies to requests | counts by |
//! |---|---|---|
//! | `user` | with an entry `user` | its value |
//! | `user, path=/login` | with a `user`, and a `path` that is `/login` | the values of both |
//! | `path=/api/*` | whose `path` begins with `/api/` | the path |
//! | `edge: user` | of the domain `edge` with an entry `user` | its value |
//! | `*`, `edge: *` | all, or all of the domain | one target `all` |
//! | `peer/56` | with an entry `peer` | its value, of an IPv6 address its network of so many bits |
//!
//! `address` and `remote_address` are `address/64` and `remote_address/64`. `path` and `:path` are
//! without the query.
//!
//! `%2C`, `%3D`, `%3A`, `%2A`, `%20` and `%25` are `,`, `=`, `:`, `*`, a space and `%` in a name or
//! value.

use std::borrow::Cow;
use std::fmt::Write;

use percent_encoding::percent_decode_str;
use redisson_rate_limiter_tower::key::bounded;

use super::meaning::Meaning;
use super::part::Part;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// `None` for each domain.
    domain: Option<String>,
    /// Empty for all requests.
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    name: String,
    meaning: Meaning,
    value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Any,
    Exactly(String),
    BeginsWith(String),
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let end = text.find([':', '=', ',']);
        let (domain, entries) = match end.filter(|end| text[*end..].starts_with(':')) {
            Some(end) => (Some(decoded(&text[..end])?), &text[end + 1..]),
            None => (None, text),
        };
        if entries.trim() == "*" {
            return Ok(Self {
                domain,
                entries: Vec::new(),
            });
        }
        let entries = entries.split(',').map(Entry::parse);
        Ok(Self {
            domain,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// How many values it counts by.
    pub(super) fn values(&self) -> usize {
        self.entries.len().max(1)
    }

    /// Refuses a key of the file that no request counts by. Without the key, which may be
    /// somebody's name: errors are logged.
    pub(super) fn check_key(&self, key: &str) -> Result<(), String> {
        if self.entries.is_empty() {
            return match key {
                "all" => Ok(()),
                _ => Err("the only key of all requests is `all`".to_owned()),
            };
        }
        let values: Vec<_> = match self.entries.len() {
            1 => vec![key.into()],
            _ => key
                .split(':')
                .map(|it| it.replace("%3A", ":").replace("%25", "%"))
                .collect(),
        };
        if values.len() != self.entries.len() {
            let wanted = self.entries.len();
            return Err(format!("a key has {wanted} values, joined by `:`"));
        }
        let mut each = self.entries.iter().zip(&values);
        each.try_for_each(|(entry, value)| entry.check_counted(value))
    }

    pub(super) fn applies_to(&self, part: &Part) -> bool {
        if (self.domain.as_deref()).is_some_and(|domain| *domain != *part.domain) {
            return false;
        }
        if self.entries.is_empty() {
            return part.is_first;
        }
        if part.is_descriptor && part.entries.len() != self.entries.len() {
            return false;
        }
        let mut entries = self.entries.iter().enumerate();
        entries.all(|(place, entry)| {
            let value = entry.of(part, place);
            value.is_some_and(|value| entry.is(value))
        })
    }

    /// Whether it applies to each request that `other` applies to, if that is not a descriptor of
    /// Envoy's protocol.
    pub(super) fn applies_wherever(&self, other: &Self) -> bool {
        let is_of_domain = self.domain.is_none() || self.domain == other.domain;
        let mut entries = self.entries.iter();
        is_of_domain && entries.all(|entry| other.entries.iter().any(|it| entry.is_wider(it)))
    }

    /// A name that stands there twice: no request to the HTTP API has that, and few descriptors.
    pub(super) fn repeated(&self) -> Option<&str> {
        let mut names = self.entries.iter().map(|it| &*it.name).enumerate();
        let repeated = names.find(|(place, name)| {
            let before = &self.entries[..*place];
            before.iter().any(|it| it.name == *name)
        });
        repeated.map(|(_, name)| name)
    }

    /// One of the values that a part is counted by.
    pub(super) fn value(&self, part: &Part, place: usize) -> Option<String> {
        let Some(entry) = self.entries.get(place) else {
            return Some("all".to_owned());
        };
        let value = entry.of(part, place)?;
        Some(bounded(entry.meaning.counted(value)).into_owned())
    }

    /// What a part is counted by, for people.
    pub(super) fn label(&self, part: &Part) -> String {
        if self.entries.is_empty() {
            return "all requests".to_owned();
        }
        let mut label = String::new();
        for (place, entry) in self.entries.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            let value = self.value(part, place).unwrap_or_default();
            let _ = write!(label, "{separator}{}={value}", entry.name); // a String takes everything
        }
        label
    }
}

impl Entry {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            None => (text, Value::Any),
            Some((name, value)) => {
                let value = value.trim();
                let value = match value.strip_suffix('*') {
                    Some(beginning) => Value::BeginsWith(decoded(beginning)?),
                    None if value.is_empty() => {
                        return Err(format!("`{}` has no value", text.trim()));
                    }
                    None => Value::Exactly(decoded(value)?),
                };
                (name, value)
            }
        };
        let (name, bits) = match name.split_once('/') {
            Some((name, bits)) => (name, Some(bits.trim())),
            None => (name, None),
        };
        let name = decoded(name)?;
        if name.is_empty() {
            return Err("an entry has no name".to_owned());
        }
        let meaning = Meaning::of(&name, bits)?;
        if let Value::Exactly(value) | Value::BeginsWith(value) = &value {
            meaning.check(value)?;
        }
        Ok(Self {
            name,
            meaning,
            value,
        })
    }

    /// Refuses a value that nothing is counted by.
    fn check_counted(&self, value: &str) -> Result<(), String> {
        if let Some(hash) = value.strip_prefix("sha256-") {
            let is_digit = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
            return match hash.len() == 64 && hash.bytes().all(is_digit) {
                true => Ok(()),
                false => Err(
                    "a hash is `sha256-` and 64 hexadecimal digits in lower case; \
                              `rratelimiter hash-key` computes it"
                        .to_owned(),
                ),
            };
        }
        if matches!(bounded(value.into()), Cow::Owned(_)) {
            return Err("a value of more than 256 bytes counts by its hash; \
                        `rratelimiter hash-key` computes it"
                .to_owned());
        }
        self.meaning.check_counted(value)
    }

    fn is(&self, value: &str) -> bool {
        let is_that = |value: &str| match &self.value {
            Value::Any => true,
            Value::Exactly(wanted) => value == wanted,
            Value::BeginsWith(beginning) => value.starts_with(beginning),
        };
        is_that(&self.meaning.compared(value)) || is_that(&self.meaning.counted(value))
    }

    /// Whether a request that has `other` has this one too.
    fn is_wider(&self, other: &Self) -> bool {
        let matches_all =
            matches!(&self.value, Value::BeginsWith(beginning) if beginning.is_empty());
        let is_wider = match (&self.value, &other.value) {
            (Value::Any, _) => true,
            (Value::BeginsWith(_), Value::Any) => matches_all,
            (Value::Exactly(value), Value::Exactly(other)) => value == other,
            (Value::BeginsWith(value), Value::Exactly(other) | Value::BeginsWith(other)) => {
                other.starts_with(value)
            }
            (Value::Exactly(_), _) => false,
        };
        let is_compared_alike =
            self.value == Value::Any || matches_all || self.meaning == other.meaning;
        is_wider && is_compared_alike && self.name == other.name
    }

    /// Its value in a part; an empty one is none. `place` is the place that it has in the pattern.
    fn of<'a>(&self, part: &'a Part, place: usize) -> Option<&'a str> {
        let mut entries = part.entries.iter();
        let entry = match part.is_descriptor {
            true => entries.nth(place).filter(|(name, _)| *name == self.name),
            false => entries.find(|(name, _)| *name == self.name),
        };
        let value = entry.map(|(_, value)| &**value);
        value.filter(|value| !value.is_empty())
    }
}

fn decoded(text: &str) -> Result<String, String> {
    let text = text.trim();
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| format!("`{text}` is not UTF-8"))?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(entries: &[(&str, &str)]) -> Part {
        let entries = entries.iter();
        Part {
            domain: "edge".into(),
            entries: entries
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            is_descriptor: false,
            is_first: true,
            cost: 1,
            longest_turn: std::time::Duration::ZERO,
        }
    }

    fn descriptor(entries: &[(&str, &str)]) -> Part {
        Part {
            is_descriptor: true,
            ..part(entries)
        }
    }

    /// What a part is counted by, if the pattern applies.
    fn values(pattern: &str, part: &Part) -> Option<Vec<String>> {
        let pattern = Pattern::parse(pattern).unwrap();
        let each = (0..pattern.values()).map(|place| pattern.value(part, place).unwrap());
        pattern.applies_to(part).then(|| each.collect())
    }

    #[test]
    fn a_pattern_applies_to_requests_that_have_what_it_names() {
        let request = part(&[("path", "/api/orders"), ("user", "alice")]);
        for (pattern, counted) in [
            ("user", vec!["alice"]),
            ("user, path", vec!["alice", "/api/orders"]),
            ("path=/api/orders", vec!["/api/orders"]),
            ("user , path = /api/*", vec!["alice", "/api/orders"]),
            ("edge: user=*", vec!["alice"]),
            ("*", vec!["all"]),
            ("edge: *", vec!["all"]),
        ] {
            assert_eq!(values(pattern, &request).unwrap(), counted, "{pattern}");
        }
        for pattern in [
            "address",
            "user=bob",
            "path=/api",
            "other: user",
            "user, tenant",
        ] {
            assert_eq!(values(pattern, &request), None, "{pattern}");
        }
    }

    #[test]
    fn a_descriptor_needs_all_its_entries_named_in_order() {
        let one = descriptor(&[("user", "alice")]);
        let two = descriptor(&[("generic_key", "a"), ("generic_key", "b")]);
        assert!(values("user", &one).is_some());
        assert!(values("generic_key", &two).is_none());
        assert!(values("generic_key=b, generic_key=a", &two).is_none());
        let counted = values("generic_key=a, generic_key", &two);
        assert_eq!(counted.unwrap(), ["a", "b"]);
        let later = Part {
            is_first: false,
            ..one.clone()
        };
        assert!(values("*", &one).is_some());
        assert!(values("*", &later).is_none());
    }

    #[test]
    fn a_wider_pattern_applies_wherever_a_narrower_one_does() {
        let pattern = |text| Pattern::parse(text).unwrap();
        let narrow = pattern("edge: user, path=/api/orders");
        for wide in [
            "*",
            "edge: *",
            "user",
            "path",
            "path=/api/*",
            "path=/api/orders",
            "path, user=*",
            "edge: user, path=/api/orders",
        ] {
            assert!(pattern(wide).applies_wherever(&narrow), "{wide}");
        }
        for other in [
            "user=a",
            "path=/api",
            "path=/api/b*",
            "tenant",
            "shop: user",
        ] {
            assert!(!pattern(other).applies_wherever(&narrow), "{other}");
        }
        assert!(!pattern("edge: *").applies_wherever(&pattern("*")));
        assert!(!pattern("path=/api/*").applies_wherever(&pattern("path=/*")));
    }

    #[test]
    fn special_characters_are_percent_encoded() {
        let request = part(&[("a=b,c", "x*"), (":path", "/a:b=c")]);
        assert!(values("a%3Db%2Cc=x%2A", &request).is_some());
        assert!(values("%3Apath=/a:b=c", &request).is_some());
        assert!(values("edge:%3Apath", &request).is_some());
    }

    #[test]
    fn an_empty_value_is_none() {
        for pattern in ["user", "user=*", "user, path"] {
            assert_eq!(values(pattern, &part(&[("user", ""), ("path", "/")])), None);
        }
    }

    #[test]
    fn a_long_value_is_counted_by_its_hash() {
        let long = "a".repeat(10_000);
        let counted = values("user", &part(&[("user", &long)])).unwrap();
        assert!(counted[0].starts_with("sha256-"), "{counted:?}");
    }

    #[test]
    fn a_pattern_that_names_nothing_is_refused() {
        for text in ["", " ", "user,", "=a", "user=", "edge:", "%ff", "/64"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_counts_by_its_network_and_is_compared_as_a_whole() {
        for (pattern, address, counted) in [
            ("address", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
            (
                "remote_address",
                "2001:DB8:1:2:0:0:0:9",
                "2001:db8:1:2::/64",
            ),
            ("address/56", "2001:db8:1:2ff::4", "2001:db8:1:200::/56"),
            ("address/128", "2001:db8::4", "2001:db8::4/128"),
            ("peer/64", "2001:db8::4", "2001:db8::/64"),
            ("peer", "2001:db8::4", "2001:db8::4"),
            ("address", "192.0.2.1", "192.0.2.1"),
            ("address", "::ffff:192.0.2.1", "192.0.2.1"),
            ("address", "::ffff:c000:201", "192.0.2.1"),
            ("address", "unknown", "unknown"),
            ("address=2001:db8::4", "2001:db8:0::4", "2001:db8::/64"),
            ("address=2001:db8::/64", "2001:db8::4", "2001:db8::/64"),
            ("address=192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            let pattern = format!("edge: {pattern}");
            let entries = [
                ("address", address),
                ("remote_address", address),
                ("peer", address),
            ];
            assert_eq!(
                values(&pattern, &part(&entries)).unwrap(),
                [counted],
                "{pattern}"
            );
        }
        assert_eq!(
            values("address=2001:db8::5", &part(&[("address", "2001:db8::4")])),
            None
        );
        for text in [
            "a/",
            "a/0",
            "a/129",
            "a/x",
            "a/64/64",
            "address=2001:DB8::1",
        ] {
            assert!(Pattern::parse(&format!("edge: {text}")).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_that_nothing_counts_by_is_refused() {
        let hash = format!("sha256-{}", "0a".repeat(32));
        for (pattern, key) in [
            ("user", "alice"),
            ("user", "a:b"),
            ("user", &*hash),
            ("user, address", "a%3Ab:192.0.2.1"),
            ("user, address", "a:2001%3Adb8%3A%3A/64"),
            ("address", "2001:db8::/64"),
            ("address/56", "2001:db8::/56"),
            ("address", "unknown"),
            ("path", "/login"),
            ("*", "all"),
        ] {
            assert_eq!(
                Pattern::parse(pattern).unwrap().check_key(key),
                Ok(()),
                "{key}"
            );
        }
        let upper = hash.to_uppercase().replace("SHA256", "sha256");
        let long = "a".repeat(257);
        for (pattern, key, why) in [
            ("user", "", "empty"),
            ("user", "sha256-abc", "64 hexadecimal digits"),
            ("user", &*upper, "64 hexadecimal digits"),
            ("user", &long, "hash-key"),
            ("user, address", "alice", "2 values"),
            ("user, address", "a:2001:db8::", "2 values"),
            ("address", "2001:db8::1", "2001:db8::/64"),
            ("address", "2001:db8::1/64", "2001:db8::/64"),
            ("address", "2001:db8::/56", "2001:db8::/64"),
            ("address", "2001:DB8::/64", "2001:db8::/64"),
            ("address", "::ffff:192.0.2.1", "192.0.2.1"),
            ("path", "/login?a", "query"),
            ("*", "alice", "`all`"),
        ] {
            let refused = Pattern::parse(pattern).unwrap().check_key(key).unwrap_err();
            assert!(refused.contains(why), "{key}: {refused}");
        }
    }

    #[test]
    fn a_path_is_without_its_query() {
        for path in ["/login", "/login?", "/login?a=/b", "/login#a", "/login?#?"] {
            for (pattern, name) in [("edge: path=/login", "path"), ("edge: %3Apath", ":path")] {
                let counted = values(pattern, &part(&[(name, path)]));
                assert_eq!(counted.unwrap(), ["/login"], "{path}");
            }
        }
        assert_eq!(values("path", &part(&[("path", "?a")])).unwrap(), ["/"]);
        assert_eq!(values("url", &part(&[("url", "/a?b")])).unwrap(), ["/a?b"]);
        assert!(Pattern::parse("path=/login?a").is_err());
    }
}
