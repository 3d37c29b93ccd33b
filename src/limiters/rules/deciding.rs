//! How rules decide a request, of one part or of several.

use std::slice;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::in_force::InForce;
use super::rule::{Applied, Limited};
use super::{Attributes, Rule, Rules, RulesGrant, Verdict};
use crate::decision::{Decision, DecisionSource, Denied};
use crate::error::{Error, Result};
use crate::escaped::Escaped;
use crate::event::{Reports, RequestResult};
use crate::limiters::Charge;
use crate::limiters::charge::{MOST_LIMITERS, first_too_many};
use crate::limiters::chargeable::sealed::INTERNAL;
use crate::limiters::joint::{
    By, Charged, JointDecision, Mode, Part, Participation, Parts, Taken, check_all, peek_all,
};
use crate::limiters::limiter::at_once;

/// What a blocked request is told to wait: no end is known.
const BLOCKED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Why more rules than may decide a request are refused.
const TOO_MANY: &str = "is one too many for a request that it applies to: at most 32 rules decide together, \
                        and touch at most 2,000 members of logs and counters";

/// A rule that applies to a part of a request, and to others that count for the same target.
struct Applying<'a> {
    place: Place,
    parts: Parts,
    /// What they cost together; `None` if one of them does not say that.
    cost: Option<u64>,
    applied: Applied<'a>,
}

impl Applying<'_> {
    fn cost(&self) -> Result<u32> {
        let cost = self.cost.ok_or(Error::InvalidArgument {
            argument: "cost",
            reason: "must be a whole number",
        })?;
        u32::try_from(cost).map_err(|_| Error::InvalidArgument {
            argument: "cost",
            reason: "must be lower: what counts for one target costs at most 4294967295 together",
        })
    }

    fn reported_cost(&self) -> u32 {
        self.cost.unwrap_or(1).try_into().unwrap_or(u32::MAX)
    }

    /// The part that its limiter has in the decision.
    fn charge(&self, limited: &Limited) -> Result<Charge> {
        let charge = limited.limiter.charge(&self.applied.key, self.cost()?)?;
        match self.applied.longest_turn {
            Some(longest) => charge.with_longest_turn(longest),
            None => Ok(charge),
        }
    }

    /// Whether its limiter may give the request a turn that is too late.
    fn has_longest_turn(&self) -> bool {
        let limited = self.applied.limited;
        self.applied.longest_turn.is_some()
            && limited.is_some_and(|it| it.limiter.gives_turns(INTERNAL))
    }

    fn is_same_target(&self, other: &Self) -> bool {
        let limiters = [self, other].map(|it| it.applied.limited.map(std::ptr::from_ref));
        self.place.rule == other.place.rule
            && limiters[0] == limiters[1]
            && self.applied.key == other.applied.key
    }
}

/// Adds a rule that applies, or its part to the one that counts for the same target. With more
/// limiters than decide together it is not looked for: they are refused.
fn add<'a, A>(all: &mut A, applying: Applying<'a>)
where
    A: Extend<Applying<'a>> + std::ops::DerefMut<Target = [Applying<'a>]>,
{
    let mut known = all.iter_mut().take(MOST_LIMITERS + 1);
    match known.find(|it| it.is_same_target(&applying)) {
        Some(known) => {
            known.parts.extend(applying.parts);
            known.cost = known
                .cost
                .zip(applying.cost)
                .map(|(known, more)| known.saturating_add(more));
        }
        None => all.extend([applying]),
    }
}

/// The places of a rule and of a part.
#[derive(Clone, Copy)]
struct Place {
    rule: usize,
    part: usize,
}

/// Few rules apply to a request: the list of them needs no memory of its own.
type Few<T> = SmallVec<[T; 4]>;

/// The rules that apply to a request.
struct AllApplying<'a> {
    enforced: Few<Applying<'a>>,
    in_shadow: Few<Applying<'a>>,
    /// The places of rules that allow all.
    allowed: SmallVec<[usize; 2]>,
    /// One that is enforced, and blocks the request.
    blocks: Option<Applying<'a>>,
}

/// What the limiters of rules were asked for, in the order of their charges.
fn asked_for(applying: Few<Applying<'_>>) -> Few<Participation> {
    let each = applying.into_iter().filter_map(|it| {
        Some(Participation {
            parts: it.parts,
            by: By::Asked(Arc::clone(&it.applied.limited?.limiter), it.applied.key),
        })
    });
    each.collect()
}

impl Rules {
    /// Decides a request of several parts, such as the descriptors of Envoy's protocol: each rule
    /// applies to each part by itself, and all limiters of all parts decide together, as
    /// [`check`](Self::check) has those of one part decide. Which part a limiter decided on is told
    /// by [`JointDecision::of_part`].
    ///
    /// Parts that count for the same target of a rule are charged together, as one that costs as
    /// much as all of them.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let two = client.policy_limiter(FixedWindow::new(2, Duration::from_secs(60)))?.with_name("two");
    /// let rules = client.rules([Rule::new(two).by(["user"])])?;
    /// let (alice, bob) = ([("user", "alice")], [("user", "bob")]);
    /// assert!(matches!(rules.check_all(&[alice, bob]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&bob).await?, Verdict::Granted(_)));
    /// // Bob has had his two, so Alice is not charged either.
    /// assert!(matches!(rules.check_all(&[alice, bob]).await?, Verdict::Denied(_)));
    /// assert!(matches!(rules.check(&alice).await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    pub async fn check_all(&self, parts: &[impl Attributes]) -> Result<Verdict> {
        let in_force = self.current();
        let all = Self::applying(&in_force, parts);
        self.verdict(&in_force, all).await
    }

    /// Decides as [`check`](Self::check) if that needs no call and waits for nobody: in memory,
    /// unless a limiter may have the request wait for its turn. `None` otherwise; nothing is
    /// charged then. It is for middleware, as [`Limiter::check_now`](crate::Limiter::check_now).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins).by(["user"])])?;
    /// assert!(matches!(rules.check_now(&[("user", "alice")]), Some(Ok(Verdict::Granted(_)))));
    /// assert!(matches!(rules.check_now(&[("user", "alice")]), Some(Ok(Verdict::Denied(_)))));
    /// # Ok(()) }
    /// ```
    pub fn check_now(&self, request: &impl Attributes) -> Option<Result<Verdict>> {
        self.registry.store.in_memory()?;
        let in_force = self.current();
        let parts = slice::from_ref(request);
        let all = Self::applying(&in_force, parts);
        let limited = all.enforced.iter().filter_map(|it| it.applied.limited);
        let mut limiters = limited.map(|it| &it.limiter);
        if limiters.any(|it| it.gives_turns(INTERNAL)) {
            return None;
        }
        at_once(self.verdict(&in_force, all))
    }

    async fn verdict(&self, in_force: &InForce, all: AllApplying<'_>) -> Result<Verdict> {
        if let Some(blocks) = &all.blocks {
            let joint = self.blocked(in_force, blocks, Mode::Enforced)?;
            return Ok(Verdict::Denied(joint));
        }
        let enforced = match self.decide(in_force, all.enforced).await? {
            Some(joint) if !joint.is_granted() => return Ok(Verdict::Denied(joint)),
            decided => decided,
        };
        for place in all.allowed {
            self.tell_of_allowed(in_force, &in_force.rules[place]);
        }
        let in_shadow = self
            .decide_in_shadow(in_force, all.in_shadow, enforced.as_ref())
            .await;
        Ok(Verdict::Granted(RulesGrant {
            enforced,
            in_shadow: in_shadow.map(Box::new),
            counts_only: in_force.counts_only.clone(),
        }))
    }

    /// Returns what [`check_all`](Self::check_all) would decide, and charges nothing. Rules in
    /// shadow mode are not asked. There is no event.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let one = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(one).by(["user"])])?;
    /// assert!(matches!(rules.peek_all(&[[("user", "alice")]]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.peek_all(&[[("user", "alice")]]).await?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::peek_all`](crate::RedissonClient::peek_all).
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn peek_all(&self, parts: &[impl Attributes]) -> Result<Verdict> {
        let in_force = self.current();
        let all = Self::applying(&in_force, parts);
        if let Some(blocks) = &all.blocks {
            return Ok(Verdict::Denied(in_force.blocked(blocks)));
        }
        if all.enforced.is_empty() {
            return Ok(Verdict::Granted(RulesGrant::default()));
        }
        let charges = in_force.charges(&all.enforced);
        let charges = charges.map_err(|refused| refused.error)?;
        let joint = peek_all(&self.registry, charges).await;
        let joint = joint.map_err(|error| in_force.refused(&all.enforced, error).error)?;
        let joint = joint.by_rules(asked_for(all.enforced));
        Ok(match joint.is_granted() {
            true => Verdict::Granted(joint.into()),
            false => Verdict::Denied(joint),
        })
    }

    /// Gives back what a request costs to each RRateLimiter whose rule applies to it, as
    /// [`RateLimiter::release`](crate::RateLimiter::release) does, and returns to how many. One
    /// that no request has made yet, or that has expired, has nothing in use. Other algorithms
    /// have no release. To give back exactly what was taken, of every algorithm, see
    /// [`refund`](Self::refund).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails).by(["user"])])?;
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// assert_eq!(rules.release(&[("user", "alice")]).await?, 1);
    /// assert!(matches!(rules.check(&[("user", "alice")]).await?, Verdict::Granted(_)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::release`](crate::RateLimiter::release): the first one, after all limiters
    /// were asked.
    ///
    /// # Cancel safety
    /// As [`RateLimiter::release`](crate::RateLimiter::release).
    pub async fn release(&self, request: &impl Attributes) -> Result<usize> {
        let in_force = self.current();
        let (mut released, mut failure) = (0, None);
        for (_, rule) in in_force.applying_to(request) {
            let Some(applied) = rule.applied(request) else {
                continue;
            };
            let limiter = applied.limited.map(|it| &it.limiter);
            let limiter = limiter.and_then(|it| it.rate_limiter(&applied.key, INTERNAL));
            let Some(limiter) = limiter else { continue };
            let cost = applied.cost.and_then(|it| u32::try_from(it).ok());
            let cost = cost.ok_or(Error::InvalidArgument {
                argument: "cost",
                reason: "must be a whole number of at most 4294967295",
            })?;
            match limiter.release(cost).await {
                Ok(()) => released += 1,
                // The limiter has expired, or was never asked: none of its permits is in use.
                Err(Error::NotInitialized { .. }) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(released), Err)
    }

    pub(super) fn current(&self) -> Arc<InForce> {
        let in_force = self.in_force.read();
        Arc::clone(&in_force.unwrap_or_else(PoisonError::into_inner))
    }

    fn applying<'a>(in_force: &'a InForce, parts: &[impl Attributes]) -> AllApplying<'a> {
        let mut all = AllApplying {
            enforced: SmallVec::new(),
            in_shadow: SmallVec::new(),
            allowed: SmallVec::new(),
            blocks: None,
        };
        for (part, request) in parts.iter().enumerate() {
            for (place, rule) in in_force.applying_to(request) {
                let Some(applied) = rule.applied(request) else {
                    if rule.allows_all() && !all.allowed.contains(&place) {
                        all.allowed.push(place);
                    }
                    continue;
                };
                let is_blocked = applied.limited.is_none();
                let cost = applied.cost.unwrap_or(0).try_into().unwrap_or(u32::MAX);
                let applying = Applying {
                    place: Place { rule: place, part },
                    parts: smallvec![Part { place: part, cost }],
                    cost: applied.cost,
                    applied,
                };
                if in_force.has_in_shadow(rule) {
                    add(&mut all.in_shadow, applying);
                } else if is_blocked {
                    all.blocks = Some(applying);
                    return all;
                } else {
                    add(&mut all.enforced, applying);
                }
            }
        }
        all
    }

    /// Reports a request that a rule without a limit allows.
    fn tell_of_allowed(&self, in_force: &InForce, rule: &Rule) {
        let mode = match in_force.has_in_shadow(rule) {
            true => Mode::Shadow,
            false => Mode::Enforced,
        };
        let events = &self.registry.state.events;
        let reported = events.request(1, || &rule.name).in_mode(mode);
        // This outcome is no error, so there is none to return.
        let _ = reported.ended(Ok(Allowed));
    }

    /// What the rules decide; `None` if there are none.
    async fn decide(
        &self,
        in_force: &InForce,
        mut applying: Few<Applying<'_>>,
    ) -> Result<Option<JointDecision>> {
        let is_alone = applying.len() == 1 && !applying[0].has_longest_turn();
        if !applying.is_empty() && (!is_alone || applying[0].cost().is_err()) {
            let joint = self.ask(in_force, &applying, Mode::Enforced).await?;
            return Ok(Some(joint.by_rules(asked_for(applying))));
        }
        let Some(applying) = applying.pop() else {
            return Ok(None);
        };
        let cost = applying.cost()?;
        let Applying { parts, applied, .. } = applying;
        let Some(limited) = applied.limited else {
            return Ok(None);
        };
        let limiter = &limited.limiter;
        let decision = match limiter.check_now(&applied.key, cost) {
            Some(decision) => decision,
            None => limiter.check(&applied.key, cost).await,
        };
        let decision = decision.map_err(|error| {
            let error = of_rule(&limited.name, error);
            in_force.warn(&[&limited.name], &error);
            error
        })?;
        let charged = limited.charged(applied.key, parts);
        Ok(Some(JointDecision::of_one(charged, decision)))
    }

    /// What the rules in shadow mode decide: nothing if they cannot be asked, which an event tells.
    /// What the request has taken is given back if it is dropped meanwhile.
    async fn decide_in_shadow(
        &self,
        in_force: &InForce,
        applying: Few<Applying<'_>>,
        decided: Option<&JointDecision>,
    ) -> Option<JointDecision> {
        if applying.is_empty() {
            return None;
        }
        let mut taken = Taken::nothing(&self.registry);
        if let Some(joint) = decided {
            taken.add(joint.taken());
        }
        let blocks = applying.iter().find(|it| it.applied.limited.is_none());
        let decided = match blocks {
            Some(blocks) => self.blocked(in_force, blocks, Mode::Shadow),
            None => {
                let asked = Box::pin(self.ask(in_force, &applying, Mode::Shadow)).await;
                asked.map(|it| it.by_rules(asked_for(applying)))
            }
        };
        taken.keep();
        decided.ok()
    }

    /// What the limiters of rules decide together.
    async fn ask(
        &self,
        in_force: &InForce,
        applying: &[Applying<'_>],
        mode: Mode,
    ) -> Result<JointDecision> {
        let charges = match in_force.charges(applying) {
            Ok(charges) => charges,
            Err(refused) => {
                let of = refused
                    .of
                    .iter()
                    .map(|it| (in_force.name(it), it.reported_cost()));
                let reported = self.registry.state.events.joint_request();
                let reported = reported.in_mode(mode).asking(of);
                return Err(reported.failed(in_force.warned(refused)));
            }
        };
        let decided = check_all(&self.registry, charges, mode).await;
        decided.map_err(|error| in_force.warned(in_force.refused(applying, error)))
    }

    /// The decision about a request of a plan that blocks, reported.
    fn blocked(
        &self,
        in_force: &InForce,
        applying: &Applying<'_>,
        mode: Mode,
    ) -> Result<JointDecision> {
        let name = &in_force.rules[applying.place.rule].name;
        let events = &self.registry.state.events;
        let reported = events.request(applying.reported_cost(), || name);
        reported.in_mode(mode).ended(Ok(in_force.blocked(applying)))
    }
}

/// The error of a rule's limiter, which names the rule instead of a key.
fn of_rule(rule: &str, error: Error) -> Error {
    match error {
        Error::ExceedsLimit {
            requested, limit, ..
        } => Error::ExceedsLimit {
            name: rule.to_owned(),
            requested,
            limit,
        },
        error => error,
    }
}

/// Charges that cannot be made.
struct Refused<'a, 'b> {
    /// The rules that it is about.
    of: &'b [Applying<'a>],
    error: Error,
}

impl InForce {
    /// The charges of one decision by rules that do not block, in their order.
    fn charges<'a, 'b>(
        &self,
        applying: &'b [Applying<'a>],
    ) -> Result<Few<Charge>, Refused<'a, 'b>> {
        let mut charges = Few::<Charge>::new();
        for (place, this) in applying.iter().enumerate() {
            let Some(limited) = this.applied.limited else {
                continue;
            };
            charges.push(this.charge(limited).map_err(|error| Refused {
                of: &applying[place..=place],
                error: of_rule(self.name(this), error),
            })?);
        }
        // Too many parts are a mistake of the request, not of the rules.
        let mut left = &charges[..];
        for of_part in applying.chunk_by(|one, other| one.place.part == other.place.part) {
            let (charges, others) = left.split_at(of_part.len().min(left.len()));
            if let Some(place) = first_too_many(charges.iter().map(Charge::touches)) {
                return Err(Refused {
                    of: of_part,
                    error: Error::InvalidRule {
                        rule: self.name(&of_part[place]).to_owned(),
                        reason: TOO_MANY.to_owned(),
                    },
                });
            }
            left = others;
        }
        Ok(charges)
    }

    /// Which of the rules such an error of their limiters is about, by its key.
    fn refused<'a, 'b>(&self, applying: &'b [Applying<'a>], error: Error) -> Refused<'a, 'b> {
        let Error::ExceedsLimit { name: key, .. } = &error else {
            return Refused {
                of: applying,
                error,
            };
        };
        let is_of = |it: &Applying<'_>| {
            let charge = it.applied.limited.map(|limited| it.charge(limited));
            matches!(charge, Some(Ok(charge)) if charge.key() == key)
        };
        let place = applying.iter().position(is_of);
        let of = place.map_or(applying, |place| &applying[place..=place]);
        match of {
            [only] => Refused {
                of,
                error: of_rule(self.name(only), error),
            },
            _ => Refused { of, error },
        }
    }

    fn name(&self, applying: &Applying<'_>) -> &str {
        &self.rules[applying.place.rule].name
    }

    /// The error, after a warning about its rules.
    fn warned(&self, refused: Refused<'_, '_>) -> Error {
        let names: Vec<_> = refused.of.iter().map(|it| self.name(it)).collect();
        self.warn(&names, &refused.error);
        refused.error
    }

    /// Warns, once for each rule, that it refuses a request for a reason that may be a mistake in
    /// the rules.
    fn warn(&self, rules: &[&str], error: &Error) {
        let what = match error {
            Error::ExceedsLimit { .. } => {
                "a request costs more than the limit of a rule: it is never granted"
            }
            Error::InvalidArgument {
                argument: "cost", ..
            } => "a request costs more than rules can decide at once: it is never granted",
            Error::InvalidRule { .. } => {
                "more rules apply to a request than can decide it together: it fails"
            }
            _ => return,
        };
        if self.is_first_warning(rules) {
            let rules = rules.join(", ");
            // Without the error, which may have a key in it.
            tracing::warn!(rules = %Escaped(&rules), "{what}");
        }
    }

    fn blocked(&self, applying: &Applying<'_>) -> JointDecision {
        let denied = Decision::Denied(Denied {
            source: DecisionSource::Rule,
            ..Denied::new(BLOCKED_FOR)
        });
        let charged = Charged {
            name: Arc::clone(&self.rules[applying.place.rule].name),
            by: By::Rule,
            parts: smallvec![Part {
                place: applying.place.part,
                cost: 0
            }],
        };
        JointDecision::of_one(charged, denied)
    }
}

/// What a rule without a limit says.
struct Allowed;

impl Reports for Allowed {
    fn result(&self) -> RequestResult {
        RequestResult::Granted(DecisionSource::Rule)
    }
}
