//! The names of the targets of rules' limiters, and their owners.
//!
//! A key of Redis holds the state of one algorithm. So targets of different algorithms must have
//! different names, also those of a rule before and after it is replaced: its state stays in Redis
//! for a while.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The targets of a limiter: their names in the store, and their algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    pub(super) names: Names,
    pub(super) algorithm: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// All names that begin with this text.
    BeginWith(String),
    /// Only this name: the limiter ignores the key.
    Is(String),
}

/// Names of targets, or the texts that names begin with, and their owners.
#[derive(Debug, Default, Clone)]
pub(super) struct Taken(BTreeMap<String, Owned>);

#[derive(Debug, Clone)]
struct Owned {
    by: String,
    may_be_followed: bool,
}

impl Taken {
    /// Adds names of an owner. Fails with the other owner if one of the names may be another
    /// owner's too.
    pub(super) fn add(&mut self, names: Names, owner: &str) -> Result<(), String> {
        let (name, may_be_followed) = match names {
            Names::BeginWith(prefix) => (prefix, true),
            Names::Is(name) => (name, false),
        };
        let is_others = |it: &&Owned| it.by != owner;
        let shorter = name.char_indices().map(|(end, _)| &name[..end]);
        let mut shorter = shorter.filter_map(|it| self.0.get(it).filter(|it| it.may_be_followed));
        let longer = (Bound::Included(&*name), Bound::Unbounded);
        let longer = { self.0.range::<str, _>(longer) }
            .take_while(|(it, _)| it.starts_with(&*name) && (may_be_followed || **it == name));
        let mut longer = longer.map(|(_, owned)| owned);
        if let Some(others) = shorter.find(is_others).or_else(|| longer.find(is_others)) {
            return Err(others.by.clone());
        }
        let owned = self.0.entry(name).or_insert(Owned {
            by: owner.to_owned(),
            may_be_followed,
        });
        owned.may_be_followed |= may_be_followed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(prefix: &str, algorithm: &'static str) -> Targets {
        let names = Names::BeginWith(prefix.to_owned());
        Targets { names, algorithm }
    }

    fn name(name: &str) -> Targets {
        Targets {
            names: Names::Is(name.to_owned()),
            algorithm: "shared_rate",
        }
    }

    fn first_refused(all: &[Targets]) -> Option<usize> {
        let mut taken = Taken::default();
        let mut adds = |it: &Targets| taken.add(it.names.clone(), it.algorithm).is_ok();
        all.iter().position(|targets| !adds(targets))
    }

    #[test]
    fn names_of_one_algorithm_may_begin_with_each_other() {
        let log = |text| prefix(text, "sliding_window_log");
        let all = ["a:", "", "a:b:", "a:"].map(log);
        assert_eq!(first_refused(&all), None);
        assert_eq!(first_refused(&[name("a"), name("a"), name("ab")]), None);
    }

    #[test]
    fn names_of_two_algorithms_must_not_begin_with_each_other() {
        let log = |text| prefix(text, "sliding_window_log");
        let bucket = |text| prefix(text, "token_bucket");
        for (one, other) in [("a:", "a:"), ("", "a:"), ("a:", "a:b:"), ("ä", "äö")] {
            assert_eq!(first_refused(&[log(one), bucket(other)]), Some(1));
            assert_eq!(first_refused(&[log(other), bucket(one)]), Some(1));
        }
        let apart = [log("a:"), bucket("b:"), log("a"), bucket("ba"), log("c")];
        assert_eq!(first_refused(&apart), None);
        // Behind one of the same algorithm there may be another one.
        let hidden = [log("a:b:"), bucket("a:c:"), log("a:")];
        assert_eq!(first_refused(&hidden), Some(2));
    }

    #[test]
    fn a_single_name_meets_what_it_begins_with_but_nothing_longer() {
        let bucket = |text| prefix(text, "token_bucket");
        for meets in ["", "or", "orders"] {
            assert_eq!(first_refused(&[name("orders"), bucket(meets)]), Some(1));
            assert_eq!(first_refused(&[bucket(meets), name("orders")]), Some(1));
        }
        for apart in ["orders:", "other"] {
            assert_eq!(first_refused(&[name("orders"), bucket(apart)]), None);
            assert_eq!(first_refused(&[bucket(apart), name("orders")]), None);
        }
        let both = [name("orders"), prefix("orders", "shared_rate")];
        let [one, other] = both;
        let after = [one, other, bucket("orders:a")];
        assert_eq!(first_refused(&after), Some(2));
    }
}
