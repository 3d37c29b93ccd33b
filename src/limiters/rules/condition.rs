//! Which requests a rule applies to, and which of their attributes it counts them by.

use std::borrow::Cow;
use std::fmt::Write;

use super::Attributes;
use super::values::{By, Pattern, compared};

/// The condition of a rule, and the attributes that it counts by.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Condition {
    /// Each attribute, and what its value may be.
    when: Vec<(String, Vec<Pattern>)>,
    by: Vec<By>,
    /// How many attributes it names, besides the domain.
    names: usize,
}

/// The attribute that says which of several services a request is for: the domain of Envoy's
/// protocol.
const DOMAIN: &str = "domain";

impl Condition {
    /// Adds an attribute that must have one of these values. Fails with the reason.
    pub(super) fn require<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), String> {
        let values = values.into_iter().map(|it| Pattern::parse(name, it));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        if values.is_empty() {
            return Err(format!("`{name}` has no value"));
        }
        if self.when.iter().any(|(it, _)| it == name) {
            return Err(format!("`{name}` is there twice"));
        }
        self.when.push((name.to_owned(), values));
        self.count_names();
        Ok(())
    }

    /// Adds an attribute that it counts by. Fails with the reason.
    pub(super) fn count_by(&mut self, text: &str) -> Result<(), String> {
        let by = By::parse(text)?;
        if self.by.iter().any(|it| it.name == by.name) {
            return Err(format!("`{}` is there twice", by.name));
        }
        self.by.push(by);
        self.count_names();
        Ok(())
    }

    pub(super) fn counts_all_together(&self) -> bool {
        self.by.is_empty()
    }

    /// Whether the rule applies to a request by its `when` and `by`.
    pub(super) fn matches(&self, request: &(impl Attributes + ?Sized)) -> bool {
        request.may_be_named_by(self.names)
            && self.when.iter().all(|(name, patterns)| {
                let value = value(request, name).map(|it| compared(name, it));
                value.is_some_and(|value| patterns.iter().any(|it| it.matches(&value)))
            })
            && (self.by.iter()).all(|by| value(request, &by.name).is_some())
    }

    /// The key of a request that matches: its only value, or its values joined by `:`, in which `:`
    /// and `%` are escaped so that no two combinations have the same key.
    pub(super) fn key(&self, request: &(impl Attributes + ?Sized)) -> Option<String> {
        if let [only] = &self.by[..] {
            return Some(counted(only, request)?.into_owned());
        }
        let mut key = String::new();
        for (place, by) in self.by.iter().enumerate() {
            let value = counted(by, request)?;
            let separator = if place == 0 { "" } else { ":" };
            key.extend([separator, &escaped(&value)]);
        }
        Some(key)
    }

    /// The attributes that a request counts by, with their values, as text for people; empty if all
    /// requests count together.
    pub(super) fn label(&self, request: &(impl Attributes + ?Sized)) -> String {
        let mut label = String::new();
        for by in &self.by {
            let separator = if label.is_empty() { "" } else { ", " };
            let value = counted(by, request).unwrap_or_default();
            let _ = write!(label, "{separator}{}={value}", by.name); // a String takes everything
        }
        label
    }

    /// Refuses a key that no request can have. Fails with the reason, which does not contain the
    /// key.
    pub(super) fn check_key(&self, key: &str) -> Result<(), String> {
        let values: Vec<Cow<'_, str>> = match self.by.len() {
            0 => return Err("all requests count together: there are no keys".to_owned()),
            1 => vec![key.into()],
            _ => key.split(':').map(|it| unescaped(it).into()).collect(),
        };
        if values.len() != self.by.len() {
            let wanted = self.by.len();
            return Err(format!("a key has {wanted} values, joined by `:`"));
        }
        let mut each = self.by.iter().zip(&values);
        each.try_for_each(|(by, value)| by.check(value))
    }

    pub(super) fn counts_otherwise_than(&self, other: &Self) -> bool {
        self.by != other.by
    }

    /// Whether it matches each request that `other` matches.
    #[cfg(any(feature = "serde", test))]
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.by
            .iter()
            .all(|by| other.names().any(|it| it == by.name))
            && self.when.iter().all(|(name, patterns)| {
                let theirs = other.when.iter().find(|(it, _)| it == name);
                let any = [Pattern::BeginsWith(String::new())];
                let theirs = match theirs {
                    Some((_, theirs)) => &theirs[..],
                    None if other.by.iter().any(|by| by.name == *name) => &any,
                    None => return false,
                };
                let covered = |other| patterns.iter().any(|it| it.covers(other));
                theirs.iter().all(covered)
            })
    }

    fn count_names(&mut self) {
        self.names = self.names().filter(|it| *it != DOMAIN).count();
    }

    /// The attributes that it names, each once.
    fn names(&self) -> impl Iterator<Item = &str> {
        let when = self.when.iter().map(|(name, _)| &**name);
        let by = self.by.iter().map(|by| &*by.name);
        when.chain(by.filter(|name| self.when.iter().all(|(it, _)| it != name)))
    }
}

/// The value of an attribute; an empty value counts as missing.
fn value<'a>(request: &'a (impl Attributes + ?Sized), name: &str) -> Option<Cow<'a, str>> {
    request.attribute(name).filter(|it| !it.is_empty())
}

fn counted<'a>(by: &By, request: &'a (impl Attributes + ?Sized)) -> Option<Cow<'a, str>> {
    Some(request.counted(by.counted(value(request, &by.name)?)))
}

pub(super) fn escaped(value: &str) -> Cow<'_, str> {
    match value.contains(['%', ':']) {
        true => value.replace('%', "%25").replace(':', "%3A").into(),
        false => value.into(),
    }
}

fn unescaped(value: &str) -> String {
    value.replace("%3A", ":").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(when: &[(&str, &[&str])], by: &[&str]) -> Condition {
        let mut condition = Condition::default();
        for (name, values) in when {
            condition.require(name, values.iter().copied()).unwrap();
        }
        by.iter().for_each(|it| condition.count_by(it).unwrap());
        condition
    }

    /// The key of a request, if the condition matches.
    fn key(condition: &Condition, request: &[(&str, &str)]) -> Option<String> {
        condition.matches(request).then(|| condition.key(request))?
    }

    #[test]
    fn each_when_must_match_and_each_by_attribute_must_be_present() {
        let request = [
            ("path", "/api/orders?page=2"),
            ("user", "alice"),
            ("empty", ""),
        ];
        for (when, by, expected) in [
            (&[][..], &["user"][..], Some("alice")),
            (&[], &["user", "path"], Some("alice:/api/orders")),
            (&[], &[], Some("")),
            (&[("path", &["/api/*"][..])], &["user"], Some("alice")),
            (&[("path", &["/", "/api/orders"])], &[], Some("")),
            (&[("user", &["bob"])], &["path"], None),
            (&[("tenant", &["*"])], &[], None),
            (&[], &["user", "tenant"], None),
            (&[], &["empty"], None),
        ] {
            let key = key(&condition(when, by), &request);
            assert_eq!(key.as_deref(), expected, "{when:?} {by:?}");
        }
    }

    #[test]
    fn no_two_combinations_of_values_have_one_key() {
        let both = condition(&[], &["a", "b"]);
        let mut keys = Vec::new();
        for (a, b) in [("x", "y:z"), ("x:y", "z"), ("x%3Ay", "z"), ("x", "y%3Az")] {
            keys.push(key(&both, &[("a", a), ("b", b)]).unwrap());
            let last = keys.last().unwrap();
            both.check_key(last).unwrap();
        }
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn a_wider_condition_covers_a_narrower_one() {
        let narrow = condition(&[("path", &["/a/b"]), ("domain", &["edge"])], &["user"]);
        for (when, by) in [
            (&[][..], &[][..]),
            (&[("domain", &["edge", "shop"][..])], &[]),
            (&[("path", &["/a/*"])], &["user"]),
            (&[("user", &["*"])], &["path"]),
        ] {
            assert!(condition(when, by).covers(&narrow), "{when:?} {by:?}");
        }
        for (when, by) in [
            (&[("user", &["a*"][..])][..], &[][..]),
            (&[("path", &["/b*"])], &[]),
            (&[("tenant", &["*"])], &[]),
            (&[], &["tenant"]),
        ] {
            assert!(!condition(when, by).covers(&narrow), "{when:?} {by:?}");
        }
    }

    #[test]
    fn a_condition_counts_each_attribute_that_it_names_once_without_domain() {
        for (when, by, expected) in [
            (&[][..], &[][..], 0),
            (&[("path", &["/a"][..])], &["user"], 2),
            (&[("path", &["/a"])], &["path", "user"], 2),
            (&[("domain", &["edge"])], &["user"], 1),
            (&[], &["domain", "user"], 1),
        ] {
            assert_eq!(condition(when, by).names, expected, "{when:?} {by:?}");
        }
    }

    #[test]
    fn an_attribute_may_occur_once_in_when_and_once_in_by() {
        let mut condition = condition(&[("path", &["/a"])], &["address/64"]);
        assert!(condition.require("path", ["/b"]).is_err());
        assert!(condition.require("user", []).is_err());
        assert!(condition.count_by("address").is_err());
        condition.count_by("path").unwrap();
    }
}
