//! How rules decide a request, of one part or of several.

use std::iter;
use std::slice;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::in_force::InForce;
use super::rule::{self, Applying};
use super::{Attributes, Rule, Rules, RulesGrant, Verdict};
use crate::decision::{Decision, DecisionSource, Denied};
use crate::error::{Error, Result};
use crate::escaped::Escaped;
use crate::event::Reported;
use crate::limiters::charge::{MOST_LIMITERS, first_too_many};
use crate::limiters::chargeable::sealed::INTERNAL;
use crate::limiters::joint::{By, Charged, JointDecision, Mode, Part, Taken, check_all, peek_all};
use crate::limiters::limiter::at_once;
use crate::limiters::{Charge, Chargeable};

/// The `retry_after` of a blocked request, which no known time ends.
const BLOCKED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The reason of the error if too many rules apply to a request.
const TOO_MANY: &str = "is one too many for a request that it applies to: at most 32 rules decide together, \
                        and touch at most 2,000 members of logs and counters";

impl<'a> Applying<'a> {
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

    /// The charge of the rule's limiter in a joint decision.
    fn charge(&self, limiter: &Arc<dyn Chargeable>) -> Result<Charge> {
        let charge = limiter.charge(&self.key, self.cost()?)?;
        match self.longest_turn {
            Some(longest) => charge.with_longest_turn(longest),
            None => Ok(charge),
        }
    }

    /// The limiter, as one that took part in the decision; `None` if the rule has none.
    fn charged(self) -> Option<Charged> {
        let by = By::Asked(Arc::clone(self.limiter?), self.key);
        Some(Charged {
            by,
            parts: self.parts,
        })
    }

    fn is_same_target(&self, other: &Self) -> bool {
        let limiters = [self, other].map(|it| it.limiter.map(std::ptr::from_ref));
        std::ptr::eq(self.rule, other.rule) && limiters[0] == limiters[1] && self.key == other.key
    }
}

/// Adds a rule that applies, or adds its part to an entry that counts for the same target.
/// Compares it with no more entries than may decide together: a request with more is refused
/// anyway.
fn add<'a>(all: &mut Few<Applying<'a>>, applying: Applying<'a>) {
    let mut known = all.iter_mut().take(MOST_LIMITERS + 1);
    match known.find(|it| it.is_same_target(&applying)) {
        Some(known) => {
            known.parts.extend(applying.parts);
            let costs = known.cost.zip(applying.cost);
            known.cost = costs.map(|(known, more)| known.saturating_add(more));
        }
        None => all.push(applying),
    }
}

/// Few rules apply to a request: the list of them needs no memory of its own.
type Few<T> = SmallVec<[T; 4]>;

/// The rules that apply to a request.
#[derive(Default)]
struct AllApplying<'a> {
    enforced: Few<Applying<'a>>,
    in_shadow: Few<Applying<'a>>,
    /// The rules that allow all requests.
    allowed: SmallVec<[&'a Rule; 2]>,
    /// An enforced rule that blocks the request.
    blocks: Option<Applying<'a>>,
}

impl Rules {
    /// Decides a request of several parts, such as the descriptors of Envoy's protocol: each rule
    /// applies to each part by itself, and all limiters of all parts decide together, as those of
    /// one part do in [`check`](Self::check). [`JointDecision::of_part`] returns the limiters that
    /// decided on a part.
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
    /// unless a limiter may make the request wait for its turn. Otherwise returns `None`, and
    /// charges nothing. It is for middleware, as [`Limiter::check_now`](crate::Limiter::check_now).
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
        let mut limiters = all.enforced.iter().filter_map(|it| it.limiter);
        if limiters.any(|it| it.gives_turns(INTERNAL)) {
            return None;
        }
        at_once(self.verdict(&in_force, all))
    }

    async fn verdict(&self, in_force: &InForce, all: AllApplying<'_>) -> Result<Verdict> {
        if let Some(blocks) = &all.blocks {
            return self.blocked(blocks, Mode::Enforced).map(Verdict::Denied);
        }
        let enforced = match self.decide(in_force, all.enforced).await? {
            Some(joint) if !joint.is_granted() => return Ok(Verdict::Denied(joint)),
            decided => decided,
        };
        for rule in all.allowed {
            let mode = in_force.mode_of(rule);
            // This outcome is no error, so there is none to return.
            let _ = self
                .reported(mode, rule, 1)
                .ended(Ok((true, DecisionSource::Rule)));
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
            return Ok(Verdict::Denied(blocked(blocks)));
        }
        if all.enforced.is_empty() {
            return Ok(Verdict::Granted(RulesGrant::default()));
        }
        let charges = charges(&all.enforced).map_err(|refused| refused.error)?;
        let joint = peek_all(&self.registry, charges).await;
        let joint = joint.map_err(|error| refused(&all.enforced, error).error)?;
        let joint = joint.by_rules(all.enforced.into_iter().filter_map(Applying::charged));
        Ok(match joint.is_granted() {
            true => Verdict::Granted(joint.into()),
            false => Verdict::Denied(joint),
        })
    }

    /// Gives back what a request costs to each RRateLimiter whose rule applies to it, as
    /// [`RateLimiter::release`](crate::RateLimiter::release) does, and returns to how many. An
    /// RRateLimiter that no request has created yet, or that has expired, has nothing in use. Other
    /// algorithms have no release. To give back exactly what was taken, of every algorithm, see
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
        for rule in in_force.applying_to(request) {
            let Some(applied) = rule.applying(0, request) else {
                continue;
            };
            let limiter = applied.limiter;
            let limiter = limiter.and_then(|it| it.rate_limiter(&applied.key, INTERNAL));
            let Some(limiter) = limiter else { continue };
            let releasing = match applied.cost.and_then(|it| u32::try_from(it).ok()) {
                Some(cost) => limiter.release(cost).await,
                None => Err(Error::InvalidArgument {
                    argument: "cost",
                    reason: "must be a whole number of at most 4294967295",
                }),
            };
            match releasing {
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
        let mut all = AllApplying::default();
        for (place, request) in parts.iter().enumerate() {
            for rule in in_force.applying_to(request) {
                let Some(applying) = rule.applying(place, request) else {
                    if rule.allows_all() && !all.allowed.iter().any(|it| std::ptr::eq(*it, rule)) {
                        all.allowed.push(rule);
                    }
                    continue;
                };
                let is_blocked = applying.limiter.is_none();
                if in_force.mode_of(rule) == Mode::Shadow {
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

    /// What the rules decide; `None` if there are none.
    async fn decide(
        &self,
        in_force: &InForce,
        mut applying: Few<Applying<'_>>,
    ) -> Result<Option<JointDecision>> {
        let alone = match &applying[..] {
            [] => return Ok(None),
            // Only a charge tells whether a turn is too late.
            [it] if it.longest_turn.is_some() => it.limiter.filter(|it| !it.gives_turns(INTERNAL)),
            [it] => it.limiter,
            _ => None,
        };
        let Some((limiter, cost)) = alone.zip(applying[0].cost().ok()) else {
            let joint = self.ask(in_force, &applying, Mode::Enforced).await?;
            let charged = applying.into_iter().filter_map(Applying::charged);
            return Ok(Some(joint.by_rules(charged)));
        };
        let applying = applying.remove(0);
        let key = &applying.key;
        let decision = match limiter.check_now(key, cost) {
            Some(decision) => decision,
            None => limiter.check(key, cost).await,
        };
        match decision {
            Ok(decision) => {
                let charged = applying.charged();
                Ok(charged.map(|it| JointDecision::of_one(it, decision)))
            }
            Err(error) => Err(in_force.warned(Refused::of_rule(&[applying], error))),
        }
    }

    /// What the rules in shadow mode decide; `None` if there are none, or if they fail, which an
    /// event reports. If the future is dropped, what the enforced rules have taken is given back.
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
            let of_enforced = joint.clone().into_taken();
            taken.add(of_enforced.map(|(limiter, grant)| (limiter.by, grant)));
        }
        let blocks = applying.iter().find(|it| it.limiter.is_none());
        let decided = match blocks {
            Some(blocks) => self.blocked(blocks, Mode::Shadow),
            None => {
                let asked = Box::pin(self.ask(in_force, &applying, Mode::Shadow)).await;
                let charged = applying.into_iter().filter_map(Applying::charged);
                asked.map(|it| it.by_rules(charged))
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
        let charges = match charges(applying) {
            Ok(charges) => charges,
            Err(refused) => {
                let of = refused.of.iter();
                let of = of.map(|it| (it.rule.name(), it.reported_cost()));
                let reported = self.registry.state.events.joint_request(mode, of);
                return Err(reported.failed(in_force.warned(refused)));
            }
        };
        let decided = check_all(&self.registry, charges, mode).await;
        decided.map_err(|error| in_force.warned(refused(applying, error)))
    }

    /// The decision about a request of a plan that blocks, reported.
    fn blocked(&self, applying: &Applying<'_>, mode: Mode) -> Result<JointDecision> {
        let reported = self.reported(mode, applying.rule, applying.reported_cost());
        reported.ended(Ok(blocked(applying)))
    }

    /// A request that starts, which a rule decides without a limiter.
    fn reported<'a>(&'a self, mode: Mode, rule: &'a Rule, cost: u32) -> Reported<'a> {
        let limiter = iter::once_with(|| (rule.name(), cost));
        self.registry.state.events.joint_request(mode, limiter)
    }
}

/// An error about a request, and the rules that caused it.
struct Refused<'a, 'b> {
    /// The rules that the error is about.
    of: &'b [Applying<'a>],
    error: Error,
}

impl<'a, 'b> Refused<'a, 'b> {
    /// The error of the only rule's limiter, which names the rule instead of a key.
    fn of_rule(of: &'b [Applying<'a>], mut error: Error) -> Self {
        if let (Error::ExceedsLimit { name, .. }, [only]) = (&mut error, of) {
            only.rule.name().clone_into(name);
        }
        Self { of, error }
    }
}

/// The charges of one decision by rules that do not block, in their order.
fn charges<'a, 'b>(applying: &'b [Applying<'a>]) -> Result<Few<Charge>, Refused<'a, 'b>> {
    let mut all = Few::new();
    // Too many parts are a mistake of the request, not of the rules.
    for of_part in applying.chunk_by(|one, other| one.parts[0].place == other.parts[0].place) {
        let first = all.len();
        for it in of_part {
            let charge = it.limiter.map(|limiter| it.charge(limiter));
            let charge = charge.transpose();
            all.extend(charge.map_err(|error| Refused::of_rule(slice::from_ref(it), error))?);
        }
        if let Some(place) = first_too_many(all[first..].iter().map(Charge::touches)) {
            return Err(Refused {
                of: of_part,
                error: rule::refused(of_part[place].rule.name(), TOO_MANY),
            });
        }
    }
    Ok(all)
}

/// Finds the rule whose limiter has caused an error of a joint decision, by the key that the error
/// names; all rules if it names none.
fn refused<'a, 'b>(applying: &'b [Applying<'a>], error: Error) -> Refused<'a, 'b> {
    let Error::ExceedsLimit { name: key, .. } = &error else {
        let of = applying;
        return Refused { of, error };
    };
    let is_of = |it: &Applying<'_>| {
        let charge = it.limiter.map(|limiter| it.charge(limiter));
        matches!(charge, Some(Ok(charge)) if charge.key() == key)
    };
    let place = applying.iter().position(is_of);
    let of = place.map_or(applying, |place| &applying[place..=place]);
    Refused::of_rule(of, error)
}

fn blocked(applying: &Applying<'_>) -> JointDecision {
    let denied = Decision::Denied(Denied {
        source: DecisionSource::Rule,
        ..Denied::new(BLOCKED_FOR)
    });
    let Part { place, .. } = applying.parts[0];
    let charged = Charged {
        by: By::Rule(Arc::clone(&applying.rule.name)),
        parts: smallvec![Part { place, cost: 0 }],
    };
    JointDecision::of_one(charged, denied)
}

impl InForce {
    /// The error, after a warning about its rules.
    fn warned(&self, refused: Refused<'_, '_>) -> Error {
        let names: Vec<_> = refused.of.iter().map(|it| it.rule.name()).collect();
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
}
