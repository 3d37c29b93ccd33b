//! The rules in force.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::rule::{ANY_KEY, NOTHING_BACK, Reason, instead_of, refused};
use super::verdict::CountsOnly;
use super::{Attributes, Rule};
use crate::error::{Error, Result};
use crate::limiters::chargeable::sealed::INTERNAL;
use crate::limiters::joint::Mode;
use crate::limiters::targets::{Taken, Targets};
use crate::lock::Lock;
use crate::store::Store;

#[derive(Debug, Default, Clone)]
pub(super) struct InForce {
    pub(super) rules: Arc<[Rule]>,
    /// For each rule, the indices of the rules that do not apply where it does. Empty if no rule is
    /// instead of another.
    instead_of: Arc<[Vec<usize>]>,
    /// The rules that count only some requests; `None` if there are none.
    pub(super) counts_only: Option<Arc<CountsOnly>>,
    /// Whether all rules are in shadow mode. Stored here so that it changes with the rules in one
    /// step.
    pub(super) is_shadow: bool,
    /// The targets of all rules that were ever in force, with their algorithms: their state may
    /// still be in the store.
    targets: Arc<Taken>,
    /// The names of the rules that a warning has named.
    warned: Arc<Lock<HashSet<String>>>,
}

impl InForce {
    /// Makes these rules the next ones in force. Refuses rules that can never decide together.
    pub(super) fn replaced_by(
        &self,
        store: &Arc<dyn Store>,
        rules: Arc<[Rule]>,
        is_shadow: bool,
    ) -> Result<Self> {
        let (mut owners, mut targets) = (HashMap::new(), (*self.targets).clone());
        for (place, rule) in rules.iter().enumerate() {
            rule.check().map_err(|reason| mistaken(rule, reason))?;
            for name in rule.limiters().map(|it| it.name()).chain([rule.name()]) {
                let owner = *owners.entry(name).or_insert(place);
                if owner != place {
                    return Err(refused(name, "has the name of another rule"));
                }
            }
            for limiter in rule.limiters() {
                let refuse = |reason: &str| refused(limiter.name(), reason);
                let charge = limiter.charge(ANY_KEY, 1);
                let charge = charge.map_err(|error| match error {
                    Error::InvalidName { reason, .. } => refuse(&format!(
                        "has a limiter whose name cannot be used: {reason}"
                    )),
                    other => other,
                })?;
                if rule.counts_only.is_some() && limiter.gives_turns(INTERNAL) {
                    let reason = format!("counts only some requests: {NOTHING_BACK}");
                    return Err(refused(rule.name(), reason));
                }
                if !charge.is_of(store) {
                    return Err(refuse("has a limiter of another client"));
                }
                let Targets { names, algorithm } = limiter.targets(INTERNAL);
                if targets.add(names, algorithm).is_err() {
                    return Err(refuse(
                        "may have the keys of another algorithm, of another rule or of one before: \
                         give its limiter a prefix of its own",
                    ));
                }
            }
        }
        let instead_of = instead_of(&rules);
        let instead_of = instead_of.map_err(|(place, reason)| mistaken(&rules[place], reason))?;
        let counts_only = counts_only(&rules);
        Ok(Self {
            rules,
            instead_of,
            counts_only,
            is_shadow,
            targets: Arc::new(targets),
            warned: Arc::default(),
        })
    }

    /// The rules that apply to a request.
    pub(super) fn applying_to<'a>(
        &'a self,
        request: &(impl Attributes + ?Sized),
    ) -> impl Iterator<Item = &'a Rule> {
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
                let is_shadow = self.mode_of(&self.rules[place]) == Mode::Shadow;
                for other in others {
                    applying[*other] &=
                        is_shadow && self.mode_of(&self.rules[*other]) == Mode::Enforced;
                }
            }
        }
        let applying = rules.filter(move |(place, rule)| match applying.get(*place) {
            Some(applies) => *applies,
            None => rule.applies_to(request),
        });
        applying.map(|(_, rule)| rule)
    }

    /// Whether a rule is enforced or in shadow mode.
    pub(super) fn mode_of(&self, rule: &Rule) -> Mode {
        match self.is_shadow || rule.is_shadow {
            true => Mode::Shadow,
            false => Mode::Enforced,
        }
    }

    /// These rules, in shadow mode or not.
    pub(super) fn in_shadow(&self, is_shadow: bool) -> Self {
        Self {
            is_shadow,
            warned: Arc::default(),
            ..self.clone()
        }
    }

    /// Notes a warning about these rules, and returns whether it is the first about any of them.
    pub(super) fn is_first_warning(&self, rules: &[&str]) -> bool {
        let mut warned = self.warned.lock();
        let each = rules.iter().map(|it| warned.insert((*it).to_owned()));
        each.fold(false, |is_first, is_new| is_first | is_new)
    }
}

fn counts_only(rules: &[Rule]) -> Option<Arc<CountsOnly>> {
    let each = rules.iter().flat_map(|rule| {
        let names = rule.limiters().map(|it| it.name().into());
        names.filter_map(|name| Some((name, rule.counts_only?)))
    });
    let all: CountsOnly = each.collect();
    (!all.is_empty()).then(|| Arc::new(all))
}

fn mistaken(rule: &Rule, (part, reason): Reason) -> Error {
    refused(rule.name(), format!("has a mistake in `{part}`: {reason}"))
}
