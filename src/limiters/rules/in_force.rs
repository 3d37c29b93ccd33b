//! The rules in force, and the limiters that they have replaced and that still count.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::rule::Limited;
use super::{ANY_KEY, Rule};
use crate::error::{Error, Result};
use crate::limiters::Charge;
use crate::limiters::joint::Keys;
use crate::store::Store;

pub(super) struct InForce<R, E> {
    pub(super) rules: Arc<[Rule<R, E>]>,
    /// Whether none of them is enforced. It is here so that it changes with the rules, in one step.
    pub(super) is_shadow: bool,
    replaced: Vec<Replaced>,
}

/// The limiter that a rule, or a plan of it, had before. Its targets hold what was used.
#[derive(Debug, Clone)]
struct Replaced {
    /// The place of the rule.
    rule: usize,
    plan: Option<String>,
    limited: Limited,
    until: Instant,
}

impl<R, E> InForce<R, E> {
    /// Refuses rules that cannot decide together, whatever their targets are.
    pub(super) fn new(
        store: &Arc<dyn Store>,
        rules: Arc<[Rule<R, E>]>,
        is_shadow: bool,
        before: Option<&Self>,
    ) -> Result<Self> {
        let (mut names, mut replaced) = (HashMap::new(), Vec::new());
        for (place, rule) in rules.iter().enumerate() {
            for (plan, limited) in rule.all_limited() {
                let refuse = |reason| Error::InvalidRule {
                    rule: limited.name.to_string(),
                    reason,
                };
                let earlier = names.insert(Arc::clone(&limited.name), place);
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
                if let Some(before) = before {
                    let found = before.replaced_by(rule, place, plan, &charge);
                    replaced.extend(found.map_err(refuse)?);
                }
            }
        }
        Ok(Self {
            rules,
            is_shadow,
            replaced,
        })
    }

    /// The same rules, in shadow mode or not.
    pub(super) fn in_shadow(&self, is_shadow: bool) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            is_shadow,
            replaced: self.replaced.clone(),
        }
    }

    /// The limiters that count beside the one that has their place from now on, which makes this charge.
    fn replaced_by(
        &self,
        rule: &Rule<R, E>,
        place: usize,
        plan: Option<&str>,
        charge: &Charge,
    ) -> Result<Vec<Replaced>, &'static str> {
        let mut named = self.rules.iter().enumerate();
        let named = named.find(|(_, it)| it.limited.name == rule.limited.name);
        let Some((place_before, rule_before)) = named else {
            return Ok(Vec::new());
        };
        let now = Instant::now();
        let of_plan = rule_before.all_limited().find(|(it, _)| *it == plan);
        let last = of_plan.and_then(|(_, limited)| {
            let counted_for = limited.limiter.charge(ANY_KEY, 1).ok()?.counts_for()?;
            Some(Replaced {
                rule: place_before,
                plan: plan.map(str::to_owned),
                limited: limited.clone(),
                until: now.checked_add(counted_for)?,
            })
        });
        let earlier = self
            .replaced
            .iter()
            .filter(|it| it.rule == place_before && it.plan.as_deref() == plan && now < it.until);
        let mut found = Vec::new();
        for replaced in last.into_iter().chain(earlier.cloned()) {
            let before = replaced.limited.limiter.charge(ANY_KEY, 1);
            match before.map_or(Keys::Others, |before| before.keys_of(charge)) {
                Keys::Same => {}
                Keys::OfAnotherAlgorithm => {
                    return Err(
                        "has another algorithm than before: give its limiter another prefix",
                    );
                }
                Keys::Others => {
                    let name = format!("{} (replaced)", rule.limited.name);
                    found.push(Replaced {
                        rule: place,
                        limited: replaced.limited.with_name(name.into()),
                        ..replaced
                    });
                }
            }
        }
        Ok(found)
    }

    /// Whether a limiter that was replaced still counts.
    pub(super) fn has_replaced(&self) -> bool {
        !self.replaced.is_empty() && {
            let now = Instant::now();
            self.replaced.iter().any(|it| now < it.until)
        }
    }

    /// Those that count beside the limiter of a rule or of its plan.
    pub(super) fn replaced(
        &self,
        rule: usize,
        plan: Option<&str>,
    ) -> impl Iterator<Item = &Limited> {
        let of_rule = self.replaced.iter();
        let of_rule = of_rule.filter(move |it| it.rule == rule && it.plan.as_deref() == plan);
        let still = of_rule.filter(|it| Instant::now() < it.until);
        still.map(|it| &it.limited)
    }
}

impl<R, E> fmt::Debug for InForce<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InForce")
            .field("rules", &self.rules)
            .field("is_shadow", &self.is_shadow)
            .field("replaced", &self.replaced)
            .finish()
    }
}
