//! The rules in force.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::targets::{Taken, Targets};
use super::{ANY_KEY, Rule};
use crate::error::{Error, Result};
use crate::policies::algorithm::INTERNAL;
use crate::store::Store;

pub(super) struct InForce<R, E> {
    pub(super) rules: Arc<[Rule<R, E>]>,
    /// Whether none of them is enforced. It is here so that it changes with the rules, in one step.
    pub(super) is_shadow: bool,
    /// The targets of all rules so far, by their algorithms: what they hold may still be in the
    /// store.
    targets: Arc<Taken<&'static str>>,
    /// The rules that there was a warning about.
    warned: Mutex<HashSet<String>>,
}

impl<R, E> InForce<R, E> {
    pub(super) fn none() -> Self {
        Self {
            rules: Arc::new([]),
            is_shadow: false,
            targets: Arc::default(),
            warned: Mutex::default(),
        }
    }

    /// These rules instead. Refuses rules that cannot decide together, whatever their targets are.
    pub(super) fn replaced_by(
        &self,
        store: &Arc<dyn Store>,
        rules: Arc<[Rule<R, E>]>,
        is_shadow: bool,
    ) -> Result<Self> {
        let (mut rule_names, mut targets) = (HashMap::new(), (*self.targets).clone());
        for (place, rule) in rules.iter().enumerate() {
            for limited in rule.all_limited().map(|(_, limited)| limited) {
                let refuse = |reason| Error::InvalidRule {
                    rule: limited.name.to_string(),
                    reason,
                };
                let earlier = rule_names.insert(Arc::clone(&limited.name), place);
                if earlier.is_some_and(|earlier| earlier != place) {
                    return Err(refuse("has the name of another rule"));
                }
                let charge = limited.limiter.charge(ANY_KEY, 1);
                let charge = charge.map_err(|error| match error {
                    Error::InvalidName { reason, .. } => refuse(reason),
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
        Ok(Self {
            rules,
            is_shadow,
            targets: Arc::new(targets),
            warned: Mutex::default(),
        })
    }

    /// Whether one of these rules is not enforced.
    pub(super) fn has_in_shadow(&self, rule: &Rule<R, E>) -> bool {
        self.is_shadow || rule.is_shadow
    }

    /// The same rules, in shadow mode or not.
    pub(super) fn in_shadow(&self, is_shadow: bool) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
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

impl<R, E> fmt::Debug for InForce<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InForce")
            .field("rules", &self.rules)
            .field("is_shadow", &self.is_shadow)
            .finish_non_exhaustive()
    }
}
