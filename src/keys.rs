//! The names of a limiter's keys: the five that hold it, the audit's, and those of calls that were
//! granted in part.
//!
//! `name` is a hash with the settings. Its sibling keys are the permits left and the grants, once
//! for all clients and once for this client. They carry the name in braces, so that a cluster keeps
//! all five in one slot. A name that contains a brace is not put in braces, as in Redisson.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;

/// The keys of one limiter as one client sees them.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) client_id: Arc<str>,
    pub(crate) name: String,
    /// The other keys in one text, because a limiter for each user is made for each request: the
    /// client's value and the client's permits, which begin as those of all clients, and the audit.
    others: String,
    ends: [usize; 4],
}

impl Keys {
    pub(crate) fn new(name: &str, client_id: impl Into<Arc<str>>) -> Self {
        let client_id = client_id.into();
        let (open, close) = braces(name);
        let room = 3 * (name.len() + ":permits{}".len()) + 2 * (client_id.len() + 1);
        let mut others = String::with_capacity(room);
        let mut add = |parts: &[&str]| {
            others.extend(parts.iter().copied());
            others.len()
        };
        let ends = [
            add(&[open, name, close, ":value"]),
            add(&[":", &client_id]),
            add(&[open, name, close, ":permits"]),
            add(&[":", &client_id]),
        ];
        add(&[open, name, close, ":audit"]);
        Self {
            client_id,
            name: name.to_owned(),
            others,
            ends,
        }
    }

    /// All keys of the limiter, in the order in which scripts take them: its settings, and the
    /// permits left and the grants, each of all clients and of this client.
    pub(crate) fn in_order(&self) -> [&str; 5] {
        let [value, client_value, permits, client_permits] = self.ends;
        [
            &self.name,
            &self.others[..value],
            &self.others[..client_value],
            &self.others[client_value..permits],
            &self.others[client_value..client_permits],
        ]
    }

    /// The key of an audit, which exists while a client audits the limiter and for a while after.
    #[cfg(feature = "redis")]
    pub(crate) fn audit(&self) -> &str {
        &self.others[self.ends[3]..]
    }

    /// The channel of messages that permits came free.
    #[cfg(feature = "redis")]
    pub(crate) fn channel(&self) -> String {
        sibling(&self.name, ":freed")
    }

    /// Refuses a name that no server accepts, and on a cluster a name whose keys would be in
    /// different slots.
    #[inline]
    pub(crate) fn validate(&self, is_cluster: bool) -> Result<(), Error> {
        check_name(&self.name, is_cluster, || self.share_a_slot())
    }

    fn share_a_slot(&self) -> bool {
        share_a_slot(&self.in_order())
    }
}

/// The suffixes of sibling keys, behind which a client's id may follow. Names that must not be the
/// key of another limiter do not contain them.
pub(crate) const SEGMENTS: [&str; 2] = [":value", ":permits"];
/// The other ends that a key may have; `-window` is of version 0.1. A key may also end with `-` and
/// the time in ms at which a period ends.
pub(crate) const ENDS: [&str; 6] = ["-st", "-lock", "-window", "-periods", ":audit", ":call"];
/// The fewest digits of a time in ms at the end of a key: times since 2001 have as many or more.
pub(crate) const FEWEST_DIGITS: usize = 13;

/// Why a name cannot be used on a cluster.
pub(crate) const SEVERAL_SLOTS: &str =
    "its braces would spread its keys over several slots of the cluster";

/// Refuses a name that no server accepts, and on a cluster one whose keys would be in different
/// slots.
#[inline]
pub(crate) fn check_name(
    name: &str,
    is_cluster: bool,
    share_a_slot: impl FnOnce() -> bool,
) -> Result<(), Error> {
    check_not_empty(name)?;
    if is_cluster && !share_a_slot() {
        return Err(Error::InvalidName {
            name: name.to_owned(),
            reason: SEVERAL_SLOTS,
        });
    }
    Ok(())
}

/// Refuses the name that no server accepts.
#[inline]
pub(crate) fn check_not_empty(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::InvalidName {
            name: String::new(),
            reason: "it is empty",
        });
    }
    Ok(())
}

/// The name of a sibling key of `name`: in braces, or bare if it contains a brace.
pub(crate) fn sibling(name: &str, suffix: &str) -> String {
    let (open, close) = braces(name);
    [open, name, close, suffix].concat()
}

/// What stands around a name in its sibling keys.
fn braces(name: &str) -> (&'static str, &'static str) {
    match name.contains('{') {
        true => ("", ""),
        false => ("{", "}"),
    }
}

/// Whether the hash tags put all keys into one slot of a cluster.
pub(crate) fn share_a_slot(keys: &[impl AsRef<str>]) -> bool {
    let mut tags = keys.iter().map(|key| hash_tag(key.as_ref()));
    let first = tags.next();
    tags.all(|tag| Some(tag) == first)
}

/// The part of a key that decides its slot: what is between the first `{` and the next `}`, unless
/// it is empty or missing.
pub(crate) fn hash_tag(key: &str) -> &str {
    &key[hash_tag_range(key)]
}

fn hash_tag_range(key: &str) -> Range<usize> {
    let tag = key.find('{').and_then(|open| {
        let start = open + 1;
        let length = key[start..].find('}')?;
        (length > 0).then_some(start..start + length)
    });
    tag.unwrap_or(0..key.len())
}

/// A key like this one with another end of the hash tag, or else of the key, which puts it into
/// another slot.
#[cfg(feature = "redis")]
pub(crate) fn in_another_slot(key: &str, end: &str) -> String {
    let at = hash_tag_range(key).end;
    [&key[..at], end, &key[at..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(name: &str) -> String {
        Keys::new(name, "id").in_order()[1].to_owned()
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_limiter_has_the_keys_of_the_specification() {
        use crate::client_vectors::{hold, text};
        hold("keys", |given| {
            let keys = Keys::new(text(&given["name"]), text(&given["client_id"]));
            let call_id = u128::from_str_radix(text(&given["call_id"]), 16).unwrap();
            serde_json::json!({
                "keys": keys.in_order(),
                "audit": keys.audit(),
                "channel": keys.channel(),
                "call": keys.of_call(&call_id.to_be_bytes()),
                "is_valid": keys.validate(false).is_ok(),
                "is_valid_on_a_cluster": keys.validate(true).is_ok(),
            })
        });
    }

    #[test]
    fn a_plain_name_stands_in_braces_and_the_client_id_comes_last() {
        let keys = Keys::new("orders:api", "c1");
        assert_eq!(
            keys.in_order(),
            [
                "orders:api",
                "{orders:api}:value",
                "{orders:api}:value:c1",
                "{orders:api}:permits",
                "{orders:api}:permits:c1"
            ]
        );
    }

    #[test]
    fn a_name_with_an_opening_brace_stays_bare() {
        assert_eq!(value_of("a{b"), "a{b:value");
        assert_eq!(value_of("{}"), "{}:value");
        assert_eq!(value_of("a{t}b"), "a{t}b:value");
        assert_eq!(value_of("a}b"), "{a}b}:value");
    }

    #[test]
    fn on_a_cluster_all_keys_must_share_a_slot() {
        for name in ["a{b", "a}b", "{}", "x{}y", "", "{a", "}"] {
            assert!(
                matches!(
                    Keys::new(name, "id").validate(true),
                    Err(Error::InvalidName { .. })
                ),
                "{name:?}"
            );
        }
        for name in ["a", "a{t}b", "{t}", "a:b c", "a{t}}", "a{t}{"] {
            assert!(Keys::new(name, "id").validate(true).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn on_one_server_only_the_empty_name_is_refused() {
        assert!(Keys::new("", "id").validate(false).is_err());
        for name in ["a{b", "a}b", "{}", "x{}y"] {
            assert!(Keys::new(name, "id").validate(false).is_ok(), "{name:?}");
        }
    }
}
