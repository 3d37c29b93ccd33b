//! The rules in force.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::rule::ANY_KEY;
use super::verdict::CountsOnly;
use super::{Attributes, Rule};
use crate::error::{Error, Result};
use crate::limiters::chargeable::sealed::INTERNAL;
use crate::limiters::targets::{Taken, Targets};
use crate::store::Store;

pub(super) struct InForce {
    pub(super) rules: Arc<[Rule]>,
    /// The places of the rules that do not apply where the rule at this place does. Empty if there
    /// are none of any rule.
    instead_of: Arc<[Vec<usize>]>,
    /// Of which rules only some requests stay charged.
    pub(super) counts_only: Option<Arc<CountsOnly>>,
    /// Whether none of them is enforced. It is here so that it changes with the rules, in one step.
    pub(super) is_shadow: bool,
    /// The targets of all rules so far, by their algorithms: what they hold may still be in the
    /// store.
    targets: Arc<Taken<&'static str>>,
    /// The rules that there was a warning about.
    warned: Mutex<HashSet<String>>,
}

impl InForce {
    pub(super) fn none() -> Self {
        Self {
            rules: Arc::new([]),
            instead_of: Arc::new([]),
            counts_only: None,
            is_shadow: false,
            targets: Arc::default(),
            warned: Mutex::default(),
        }
    }

    /// These rules instead. Refuses rules that cannot decide together, whatever their targets are.
    pub(super) fn replaced_by(
        &self,
        store: &Arc<dyn Store>,
        rules: Arc<[Rule]>,
        is_shadow: bool,
    ) -> Result<Self> {
        let (mut rule_names, mut targets) = (HashMap::new(), (*self.targets).clone());
        for (place, rule) in rules.iter().enumerate() {
            rule.check()?;
            let refuse = |reason: &str| Error::InvalidRule {
                rule: rule.name.to_string(),
                reason: reason.to_owned(),
            };
            if rule_names.insert(Arc::clone(&rule.name), place).is_some() {
                return Err(refuse("has the name of another rule"));
            }
            for limited in rule.all_limited().map(|(_, limited)| limited) {
                let refuse = |reason: &str| Error::InvalidRule {
                    rule: limited.name.to_string(),
                    reason: reason.to_owned(),
                };
                let earlier = rule_names.insert(Arc::clone(&limited.name), place);
                if earlier.is_some_and(|earlier| earlier != place) {
                    return Err(refuse("has the name of another rule"));
                }
                let charge = limited.limiter.charge(ANY_KEY, 1);
                let charge = charge.map_err(|error| match error {
                    Error::InvalidName { reason, .. } => refuse(&format!(
                        "has a limiter whose name cannot be used: {reason}"
                    )),
                    other => other,
                })?;
                if !charge.is_of(store) {
                    return Err(refuse("has a limiter of another client"));
                }
                let Targets { names, algorithm } = limited.limiter.targets(INTERNAL);
                if targets.add(names, algorithm).is_err() {
                    return Err(refuse(
                        "may have the keys of another algorithm, of another rule or of one before: \
                         give its limiter a prefix of its own",
                    ));
                }
            }
        }
        let instead_of = instead_of(&rules)?;
        let counts_only = counts_only(&rules);
        Ok(Self {
            rules,
            instead_of,
            counts_only,
            is_shadow,
            targets: Arc::new(targets),
            warned: Mutex::default(),
        })
    }

    /// The rules that apply to a request, with their places.
    pub(super) fn applying_to<'a>(
        &'a self,
        request: &(impl Attributes + ?Sized),
    ) -> impl Iterator<Item = (usize, &'a Rule)> {
        let rules = self.rules.iter().enumerate();
        let mut applying: SmallVec<[bool; 32]> = SmallVec::new();
        if !self.instead_of.is_empty() {
            let matched = self.rules.iter().map(|it| it.applies_to(request));
            let matched: SmallVec<[bool; 32]> = matched.collect();
            applying.extend_from_slice(&matched);
            for (place, others) in self
                .instead_of
                .iter()
                .enumerate()
                .filter(|it| matched[it.0])
            {
                let is_shadow = self.has_in_shadow(&self.rules[place]);
                for other in others {
                    applying[*other] &= is_shadow && !self.has_in_shadow(&self.rules[*other]);
                }
            }
        }
        rules.filter(move |(place, rule)| match applying.get(*place) {
            Some(applies) => *applies,
            None => rule.applies_to(request),
        })
    }

    /// Whether one of these rules is not enforced.
    pub(super) fn has_in_shadow(&self, rule: &Rule) -> bool {
        self.is_shadow || rule.is_shadow
    }

    /// The same rules, in shadow mode or not.
    pub(super) fn in_shadow(&self, is_shadow: bool) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            instead_of: Arc::clone(&self.instead_of),
            counts_only: self.counts_only.clone(),
            is_shadow,
            targets: Arc::clone(&self.targets),
            warned: Mutex::default(),
        }
    }

    /// Whether there was no warning about one of these rules yet.
    pub(super) fn is_first_warning(&self, rules: &[&str]) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let new = rules.iter().filter(|it| !warned.contains(**it));
        let new: Vec<_> = new.map(|it| (*it).to_owned()).collect();
        let is_first = !new.is_empty();
        warned.extend(new);
        is_first
    }
}

fn counts_only(rules: &[Rule]) -> Option<Arc<CountsOnly>> {
    let each = rules.iter().flat_map(|rule| {
        let names = rule.all_limited().map(|(_, it)| Arc::clone(&it.name));
        names.filter_map(|name| Some((name, rule.counts_only?)))
    });
    let all: CountsOnly = each.collect();
    (!all.is_empty()).then(|| Arc::new(all))
}

fn instead_of(rules: &[Rule]) -> Result<Arc<[Vec<usize>]>> {
    if rules.iter().all(|it| it.instead_of.is_empty()) {
        return Ok(Arc::new([]));
    }
    let each = rules.iter().map(|rule| {
        let places = rule.instead_of.iter().map(|other| {
            let place = rules.iter().position(|it| *it.name == **other);
            place
                .filter(|it| !std::ptr::eq(&raw const rules[*it], rule))
                .ok_or_else(|| Error::InvalidRule {
                    rule: rule.name.to_string(),
                    reason: format!("is `instead_of` `{other}`, which is no other rule"),
                })
        });
        places.collect::<Result<Vec<_>>>()
    });
    each.collect()
}

impl fmt::Debug for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InForce")
            .field("rules", &self.rules)
            .field("is_shadow", &self.is_shadow)
            .finish_non_exhaustive()
    }
}
