//! The unit that rules decide: a request, or one descriptor of Envoy's protocol.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::Attributes;
use redisson_rate_limiter_tower::key::bounded;

/// A part of a request that rules decide. Its attributes are the entries, such as `user` with the
/// value `alice`. If several entries have one name, the second is the attribute `NAME.2`, the third
/// `NAME.3`, and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) domain: Arc<str>,
    pub(super) entries: Vec<(String, String)>,
    /// Whether a rule applies only if it names all entries, as Envoy's protocol requires. Otherwise
    /// a rule applies if it names some of them.
    pub(super) is_descriptor: bool,
    /// Whether rules for all requests apply: true for exactly one part of a request.
    pub(super) is_first: bool,
    /// The cost that the request asks for, which may be more than limiters can charge.
    pub(super) cost: u64,
    /// The longest wait for a turn in a leaky bucket: a part with a later turn is denied.
    pub(super) longest_turn: Duration,
}

impl Part {
    /// The domain and the names of the entries, without their values.
    pub(super) fn source(&self) -> String {
        let names: Vec<&str> = self.entries.iter().map(|(name, _)| &**name).collect();
        match (&*self.domain, names.join(", ")) {
            ("", names) => names,
            (domain, names) => format!("{domain}: {names}"),
        }
    }

    /// The value of the `nth` entry of this name, counted from 0.
    fn entry(&self, name: &str, nth: usize) -> Option<Cow<'_, str>> {
        let mut values = self.entries.iter().filter(|(it, _)| it == name);
        values.nth(nth).map(|(_, value)| Cow::Borrowed(&**value))
    }
}

impl Attributes for Part {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "domain" => Some(Cow::Borrowed(&self.domain)),
            "cost" => Some(self.cost.to_string().into()),
            _ => self.entry(name, 0).or_else(|| {
                let (name, number) = name.rsplit_once('.')?;
                let nth = number.parse::<usize>().ok().filter(|nth| *nth > 1)?;
                self.entry(name, nth - 1)
            }),
        }
    }

    fn longest_turn(&self) -> Option<Duration> {
        Some(self.longest_turn)
    }

    fn may_be_named_by(&self, names: usize) -> bool {
        match names {
            0 => self.is_first,
            names => !self.is_descriptor || names == self.entries.len(),
        }
    }

    fn counted<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        bounded(value)
    }
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::Rule;

    use super::*;

    fn part(entries: &[(&str, &str)]) -> Part {
        let entries = entries.iter();
        Part {
            domain: "edge".into(),
            entries: entries
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            is_descriptor: true,
            is_first: false,
            cost: 7,
            longest_turn: Duration::ZERO,
        }
    }

    #[test]
    fn a_descriptor_needs_a_rule_that_names_all_of_its_entries() {
        let one = part(&[("user", "alice")]);
        let two = part(&[("generic_key", "a"), ("generic_key", "b")]);
        let rule = || Rule::block("rule").when("domain", ["edge"]);
        assert!(rule().by(["user"]).applies_to(&one));
        assert!(rule().when("user", ["a*"]).applies_to(&one));
        assert!(!rule().by(["generic_key"]).applies_to(&two));
        let both = || rule().when("generic_key", ["a"]);
        assert!(both().when("generic_key.2", ["b"]).applies_to(&two));
        assert!(!both().when("generic_key.2", ["a"]).applies_to(&two));
        for none in ["generic_key.0", "generic_key.1", "generic_key.3"] {
            assert!(!both().when(none, ["*"]).applies_to(&two), "{none}");
        }
        assert!(!rule().applies_to(&one));
        let first = Part {
            is_first: true,
            ..one
        };
        assert!(rule().applies_to(&first));
    }

    #[test]
    fn an_entry_is_neither_the_domain_nor_the_cost() {
        let part = part(&[("domain", "shop"), ("cost", "0"), ("a.2", "b")]);
        assert_eq!(part.attribute("domain").as_deref(), Some("edge"));
        assert_eq!(part.attribute("cost").as_deref(), Some("7"));
        assert_eq!(part.attribute("a.2").as_deref(), Some("b"));
        for name in ["a", "a.1", "a.0", "cost.2", "a.2.2"] {
            assert_eq!(part.attribute(name), None, "{name}");
        }
    }
}
