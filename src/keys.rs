//! The names of the five keys that hold one limiter.
//!
//! `name` is a hash with the settings. Beside it stand the permits left and the grants, once for all clients and
//! once for this client. They carry the name in braces, so that a cluster keeps all five in one slot; a name that
//! has a brace of its own stays bare, as Redisson does it.

use std::fmt::Write;

use smallvec::SmallVec;

use crate::error::Error;
use crate::permit::Random;
use crate::rate::RateType;

/// The keys of one limiter as one client sees them.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) client_id: String,
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) client_value: String,
    pub(crate) permits: String,
    pub(crate) client_permits: String,
    /// There while a client audits the limiter, and for a while after that.
    pub(crate) audit: String,
}

impl Keys {
    pub(crate) fn new(name: &str, client_id: &str) -> Self {
        let (value, permits) = (beside(name, ":value"), beside(name, ":permits"));
        Self {
            client_id: client_id.to_owned(),
            name: name.to_owned(),
            client_value: format!("{value}:{client_id}"),
            client_permits: format!("{permits}:{client_id}"),
            audit: beside(name, ":audit"),
            value,
            permits,
        }
    }

    /// Those that an audit of a limiter of this type reads.
    pub(crate) fn of_audit(&self, rate_type: RateType) -> [&str; 4] {
        let [name, value, permits] = self.of_type(rate_type);
        [name, value, permits, &self.audit]
    }

    /// Those that a script takes that gives permits of live grants back.
    pub(crate) fn of_refund(&self) -> [&str; 6] {
        let [name, value, client_value, permits, client_permits] = self.in_order();
        [
            name,
            value,
            client_value,
            permits,
            client_permits,
            &self.audit,
        ]
    }

    /// Those that an acquire of a limiter of this type touches.
    fn of_type(&self, rate_type: RateType) -> [&str; 3] {
        match rate_type {
            RateType::Overall => [&self.name, &self.value, &self.permits],
            RateType::PerClient => [&self.name, &self.client_value, &self.client_permits],
        }
    }

    /// Those that an acquire names: the ones of its type, and where it may set the limiter up also those of the other.
    /// The call's own comes last, where it has one.
    pub(crate) fn of_acquire<'a>(
        &'a self,
        rate_type: RateType,
        sets_up: bool,
        of_call: Option<&'a str>,
    ) -> SmallVec<[&'a str; 6]> {
        let mut keys = SmallVec::new();
        keys.extend(self.of_type(rate_type));
        if sets_up {
            let [_name, others @ ..] = self.of_type(rate_type.other());
            keys.extend(others);
        }
        keys.extend(of_call);
        keys
    }

    /// The key of one call, which has it for as long as a copy of the call may arrive that was granted in part.
    pub(crate) fn of_call(&self, id: &Random) -> String {
        let mut suffix = String::from(":");
        for byte in id {
            // Nothing fails that is written to a string.
            let _ = write!(suffix, "{byte:02x}");
        }
        beside(&self.name, &(suffix + ":call"))
    }

    /// All that hold the limiter, in the order in which every other script takes them.
    pub(crate) fn in_order(&self) -> [&str; 5] {
        [
            &self.name,
            &self.value,
            &self.client_value,
            &self.permits,
            &self.client_permits,
        ]
    }

    /// Refuses a name that no server takes, and on a cluster one whose keys would lie in different slots.
    #[inline]
    pub(crate) fn check(&self, is_cluster: bool) -> Result<(), Error> {
        let refuse = |reason| {
            Err(Error::InvalidName {
                name: self.name.clone(),
                reason,
            })
        };
        if self.name.is_empty() {
            return refuse("it is empty");
        }
        if is_cluster && !self.share_a_slot() {
            return refuse("its braces would spread its keys over several slots of the cluster");
        }
        Ok(())
    }

    fn share_a_slot(&self) -> bool {
        share_a_slot(&self.in_order())
    }
}

/// What the suffixes of the keys beside a name consist of, for those that take care that no name of theirs reads like such
/// a key. A client's id may follow these.
pub(crate) const SEGMENTS: [&str; 2] = [":value", ":permits"];
/// These end the key.
pub(crate) const ENDS: [&str; 5] = ["-st", "-lock", "-window", ":audit", ":call"];
/// So does a `-` with the time in ms at which a period ends. Times since 2001 have this many digits at least.
pub(crate) const FEWEST_DIGITS: usize = 13;

/// The name of a key that stands beside `name`: in braces, or bare where it has a brace of its own.
pub(crate) fn beside(name: &str, suffix: &str) -> String {
    if name.contains('{') {
        format!("{name}{suffix}")
    } else {
        format!("{{{name}}}{suffix}")
    }
}

/// Whether the hash tags put all keys into one slot of a cluster.
pub(crate) fn share_a_slot(keys: &[impl AsRef<str>]) -> bool {
    let mut tags = keys.iter().map(|key| hash_tag(key.as_ref()));
    let first = tags.next();
    tags.all(|tag| Some(tag) == first)
}

/// The part of a key that decides its slot: what stands between the first `{` and the next `}`, unless that is
/// empty or missing.
fn hash_tag(key: &str) -> &str {
    key.split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(name: &str) -> String {
        Keys::new(name, "id").value
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
                    Keys::new(name, "id").check(true),
                    Err(Error::InvalidName { .. })
                ),
                "{name:?}"
            );
        }
        for name in ["a", "a{t}b", "{t}", "a:b c", "a{t}}", "a{t}{"] {
            assert!(Keys::new(name, "id").check(true).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn on_one_server_only_the_empty_name_is_refused() {
        assert!(Keys::new("", "id").check(false).is_err());
        for name in ["a{b", "a}b", "{}", "x{}y"] {
            assert!(Keys::new(name, "id").check(false).is_ok(), "{name:?}");
        }
    }
}
