//! How rules decide a request, of one part or of several.

use std::sync::{Arc, PoisonError};
use std::time::Duration;
use std::{mem, slice};

use smallvec::{SmallVec, smallvec};

use super::in_force::InForce;
use super::rule::{Applied, Limited};
use super::{Rule, Rules, Verdict};
use crate::decision::{Decision, DecisionSource, Denied};
use crate::error::{Error, Result};
use crate::limiters::joint::{
    Asked, Charged, JointDecision, Keys, MOST_LIMITERS, Mode, Parts, Taken, check_all, peek_all,
};
use crate::limiters::{Charge, at_once};
use crate::policies::algorithm::INTERNAL;

/// What a blocked request is told to wait: no end is known.
const BLOCKED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// A rule that applies to a part of a request, and to others that count for the same target.
struct Applying<'a> {
    place: Place,
    /// The places of all these parts.
    parts: Parts,
    /// What they cost together.
    cost: u64,
    applied: Applied<'a>,
}

impl Applying<'_> {
    fn cost(&self) -> Result<u32> {
        u32::try_from(self.cost).map_err(|_| Error::InvalidArgument {
            argument: "cost",
            reason: "must be lower: what counts for one target costs at most 4294967295 together",
        })
    }

    /// The part that a limiter has in the decision.
    fn charge(&self, limited: &Limited) -> Result<Charge> {
        let charge = self.applied.charge(limited, self.cost()?)?;
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

/// Adds a rule that applies, or its part to the one that counts for the same target. With more limiters than decide together it is
/// not looked for: they are refused.
fn add<'a, A>(all: &mut A, applying: Applying<'a>)
where
    A: Extend<Applying<'a>> + std::ops::DerefMut<Target = [Applying<'a>]>,
{
    let mut known = all.iter_mut().take(MOST_LIMITERS + 1);
    match known.find(|it| it.is_same_target(&applying)) {
        Some(known) => {
            known.parts.extend(applying.parts);
            known.cost = known.cost.saturating_add(applying.cost);
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
    in_shadow: Vec<Applying<'a>>,
    /// One that is enforced, and blocks the request.
    blocks: Option<Applying<'a>>,
}

/// A limiter that is asked because a rule applies.
struct AskedFor<'a> {
    /// The place of the rule among those that apply.
    applying: usize,
    limited: &'a Limited,
    /// Whether it is the last one of its rule.
    is_last: bool,
}

/// What each limiter was asked for.
fn asked(asked: Few<AskedFor<'_>>, mut applying: Few<Applying<'_>>) -> Few<Asked> {
    let each = asked.into_iter().map(|it| {
        let Applying {
            place,
            parts,
            applied,
            ..
        } = &mut applying[it.applying];
        let key = match it.is_last {
            true => mem::take(&mut applied.key),
            false => applied.key.clone(),
        };
        Asked {
            rule: place.rule,
            parts: parts.clone(),
            by: (Arc::clone(&it.limited.limiter), key),
        }
    });
    each.collect()
}

impl<R, E> Rules<R, E> {
    /// Decides a request of several parts, such as the descriptors of Envoy's protocol: each rule applies to each part by
    /// itself, and all limiters of all parts decide together, as [`check`](Self::check) has those of one part decide. Which
    /// part a limiter decided on is told by [`JointDecision::of_part`].
    ///
    /// Parts that count for the same target of a rule are charged together, as one that costs as much as all of them.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let two = client.policy_limiter(FixedWindow::new(2, Duration::from_secs(60)))?.with_name("two");
    /// let rules = client.rules([Rule::new(two, |it: &&str| Some(it.to_string()), |it, _| *it)])?;
    /// assert!(matches!(rules.check_all(&["alice", "bob"]).await?, Verdict::Granted(Some(_))));
    /// assert!(matches!(rules.check(&"bob").await?, Verdict::Granted(Some(_))));
    /// // Bob has had his two, so Alice is not charged either.
    /// assert!(matches!(rules.check_all(&["alice", "bob"]).await?, Verdict::Rejected("bob", _)));
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(Some(_))));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    ///
    /// # Cancel safety
    /// As [`RedissonClient::check_all`](crate::RedissonClient::check_all).
    pub async fn check_all(&self, parts: &[R]) -> Result<Verdict<E>> {
        let in_force = self.in_force();
        let all = Self::applying(&in_force, parts);
        self.verdict(&in_force, all, parts).await
    }

    /// Decides as [`check`](Self::check) if that needs no call and waits for nobody: in memory, unless a limiter may have the
    /// request wait for its turn. `None` otherwise; nothing is charged then. It is for middleware, as
    /// [`Limiter::check_now`](crate::Limiter::check_now).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(logins, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// assert!(matches!(rules.check_now(&"alice"), Some(Ok(Verdict::Granted(_)))));
    /// assert!(matches!(rules.check_now(&"alice"), Some(Ok(Verdict::Rejected(429, _)))));
    /// # Ok(()) }
    /// ```
    pub fn check_now(&self, request: &R) -> Option<Result<Verdict<E>>> {
        self.registry.store.in_memory()?;
        let in_force = self.in_force();
        let parts = slice::from_ref(request);
        let all = Self::applying(&in_force, parts);
        let limited = all.enforced.iter().filter_map(|it| it.applied.limited);
        let mut limiters = limited.map(|it| &it.limiter);
        if in_force.has_replaced() || limiters.any(|it| it.gives_turns(INTERNAL)) {
            return None;
        }
        at_once(self.verdict(&in_force, all, parts))
    }

    async fn verdict(
        &self,
        in_force: &InForce<R, E>,
        all: AllApplying<'_>,
        parts: &[R],
    ) -> Result<Verdict<E>> {
        if let Some(blocks) = &all.blocks {
            let joint = self.blocked(in_force, blocks, Mode::Enforced)?;
            return Ok(in_force.rejected(parts, blocks.place, joint));
        }
        let joint = match self.decide(in_force, all.enforced).await? {
            Some((deciding, joint)) if !joint.is_granted() => {
                return Ok(in_force.rejected(parts, deciding, joint));
            }
            decided => decided.map(|(_, joint)| joint),
        };
        self.decide_in_shadow(in_force, &all.in_shadow, joint.as_ref())
            .await;
        Ok(Verdict::Granted(joint))
    }

    /// Returns what [`check_all`](Self::check_all) would decide, and charges nothing. Rules in shadow mode are not asked. There is no event.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let one = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(one, |it: &&str| Some(it.to_string()), |_, _| 429)])?;
    /// assert!(matches!(rules.peek_all(&["alice"]).await?, Verdict::Granted(Some(_))));
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(Some(_))));
    /// assert!(matches!(rules.peek_all(&["alice"]).await?, Verdict::Rejected(429, _)));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RedissonClient::peek_all`](crate::RedissonClient::peek_all).
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    pub async fn peek_all(&self, parts: &[R]) -> Result<Verdict<E>> {
        let in_force = self.in_force();
        let all = Self::applying(&in_force, parts);
        if let Some(blocks) = &all.blocks {
            let joint = in_force.blocked(blocks);
            return Ok(in_force.rejected(parts, blocks.place, joint));
        }
        if all.enforced.is_empty() {
            return Ok(Verdict::Granted(None));
        }
        let (asked_for, charges) = in_force.charges(&all.enforced)?;
        let joint = peek_all(&self.registry, charges).await?;
        let deciding = all.enforced[asked_for[joint.deciding_place()].applying].place;
        let joint = joint.by_rule(asked(asked_for, all.enforced));
        Ok(match joint.is_granted() {
            true => Verdict::Granted(Some(joint)),
            false => in_force.rejected(parts, deciding, joint),
        })
    }

    /// Gives back what a request costs to each RRateLimiter whose rule applies to it, as
    /// [`RateLimiter::release`](crate::RateLimiter::release) does, and returns to how many. One that no request has made yet, or
    /// that has expired, has nothing in use. Policies take nothing back: they do not know single grants. To give back exactly what was taken, see [`refund`](Self::refund).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let mails = client.keyed_rate_limiter("mail:", Rate::overall(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(mails, |user: &&str| Some(user.to_string()), |_, _| 429)])?;
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(Some(_))));
    /// assert_eq!(rules.release(&"alice").await?, 1);
    /// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(Some(_))));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`RateLimiter::release`](crate::RateLimiter::release): the first one, after all limiters were asked.
    ///
    /// # Cancel safety
    /// As [`RateLimiter::release`](crate::RateLimiter::release).
    pub async fn release(&self, request: &R) -> Result<usize> {
        let in_force = self.in_force();
        let (mut released, mut failure) = (0, None);
        for rule in in_force.rules.iter() {
            let Some(applied) = rule.applied(request) else {
                continue;
            };
            let limiter = applied.limited.map(|it| &it.limiter);
            let limiter = limiter.and_then(|it| it.rate_limiter(&applied.key, INTERNAL));
            let Some(limiter) = limiter else { continue };
            match limiter.release(applied.cost).await {
                Ok(()) => released += 1,
                // It has expired, or nobody has asked it: nothing of it is in use.
                Err(Error::NotInitialized { .. }) => {}
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(released), Err)
    }

    fn in_force(&self) -> Arc<InForce<R, E>> {
        let in_force = self.in_force.read();
        Arc::clone(&in_force.unwrap_or_else(PoisonError::into_inner))
    }

    fn applying<'a>(in_force: &'a InForce<R, E>, parts: &[R]) -> AllApplying<'a> {
        let mut all = AllApplying {
            enforced: SmallVec::new(),
            in_shadow: Vec::new(),
            blocks: None,
        };
        for (part, request) in parts.iter().enumerate() {
            for (place, rule) in in_force.rules.iter().enumerate() {
                let place = Place { rule: place, part };
                let Some(applied) = rule.applied(request) else {
                    continue;
                };
                let is_blocked = applied.limited.is_none();
                let applying = Applying {
                    place,
                    parts: smallvec![part],
                    cost: applied.cost.into(),
                    applied,
                };
                if in_force.is_shadow || rule.is_shadow {
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

    /// What the rules decide, and by which one for which part; `None` if there are none.
    async fn decide(
        &self,
        in_force: &InForce<R, E>,
        mut applying: Few<Applying<'_>>,
    ) -> Result<Option<(Place, JointDecision)>> {
        let is_alone = applying.len() == 1 && !applying[0].has_longest_turn();
        if !applying.is_empty() && (!is_alone || in_force.has_replaced()) {
            let (asked_for, charges) = self.charges(in_force, &applying, Mode::Enforced)?;
            let joint = check_all(&self.registry, charges, Mode::Enforced).await?;
            let deciding = applying[asked_for[joint.deciding_place()].applying].place;
            let joint = joint.by_rule(asked(asked_for, applying));
            return Ok(Some((deciding, joint)));
        }
        let Some(applying) = applying.pop() else {
            return Ok(None);
        };
        let cost = applying.cost()?;
        let Applying {
            place,
            parts,
            applied,
            ..
        } = applying;
        let Some(limited) = applied.limited else {
            return Ok(None);
        };
        let limiter = &limited.limiter;
        let decision = match limiter.check_now(&applied.key, cost) {
            Some(decision) => decision?,
            None => limiter.check(&applied.key, cost).await?,
        };
        let charged = Charged {
            parts,
            ..limited.charged(applied.key)
        };
        Ok(Some((place, JointDecision::of_one(charged, decision))))
    }

    /// Events tell what comes of it. What the request has taken is given back if it is dropped meanwhile.
    async fn decide_in_shadow(
        &self,
        in_force: &InForce<R, E>,
        applying: &[Applying<'_>],
        decided: Option<&JointDecision>,
    ) {
        if applying.is_empty() {
            return;
        }
        let mut taken = Taken::nothing(&self.registry);
        if let Some(joint) = decided {
            taken.add(joint.grants());
        }
        let blocks = applying.iter().find(|it| it.applied.limited.is_none());
        if let Some(blocks) = blocks {
            let _ = self.blocked(in_force, blocks, Mode::Shadow);
        } else if let Ok((_, charges)) = self.charges(in_force, applying, Mode::Shadow) {
            let _ = Box::pin(check_all(&self.registry, charges, Mode::Shadow)).await;
        }
        taken.keep();
    }

    /// The charges of one decision, and what each is for, reported if they cannot be made.
    fn charges<'a>(
        &self,
        in_force: &'a InForce<R, E>,
        applying: &[Applying<'a>],
        mode: Mode,
    ) -> Result<(Few<AskedFor<'a>>, Few<Charge>)> {
        in_force.charges(applying).map_err(|error| {
            let events = &self.registry.state.events;
            events.joint_request().in_mode(mode).failed(error)
        })
    }

    /// The decision about a request of a plan that blocks, reported.
    fn blocked(
        &self,
        in_force: &InForce<R, E>,
        applying: &Applying<'_>,
        mode: Mode,
    ) -> Result<JointDecision> {
        let name = &in_force.rules[applying.place.rule].limited.name;
        let events = &self.registry.state.events;
        let reported = events.request(applying.applied.cost, || name);
        reported.in_mode(mode).ended(Ok(in_force.blocked(applying)))
    }
}

impl<R, E> InForce<R, E> {
    fn charges<'a>(&'a self, all: &[Applying<'a>]) -> Result<(Few<AskedFor<'a>>, Few<Charge>)> {
        let (mut asked, mut charges) = (Few::<AskedFor<'_>>::new(), Few::<Charge>::new());
        for (applying, this) in all.iter().enumerate() {
            let Applying { place, applied, .. } = this;
            let Some(limited) = applied.limited else {
                continue;
            };
            let asked_for = |limited| AskedFor {
                applying,
                limited,
                is_last: false,
            };
            charges.push(this.charge(limited)?);
            asked.push(asked_for(limited));
            for limited in self.replaced(place.rule, applied.plan) {
                // One that could never grant the request does not know it, and no keys take part twice: what they count, another
                // rule counts now.
                let is_counted = |charge: &Charge| {
                    let own = all.iter();
                    let own = own.filter_map(|it| it.charge(it.applied.limited?).ok());
                    let others = own.chain(charges.iter().cloned());
                    { others }.any(|other| other.keys_of(charge) != Keys::Others)
                };
                if let Ok(charge) = this.charge(limited)
                    && !is_counted(&charge)
                {
                    charges.push(charge);
                    asked.push(asked_for(limited));
                }
            }
            if let Some(last) = asked.last_mut() {
                last.is_last = true;
            }
        }
        Ok((asked, charges))
    }

    fn rejected(&self, parts: &[R], by: Place, joint: JointDecision) -> Verdict<E> {
        let rule: &Rule<R, E> = &self.rules[by.rule];
        Verdict::Rejected(rule.rejects(&parts[by.part], &joint), joint)
    }

    fn blocked(&self, applying: &Applying<'_>) -> JointDecision {
        let denied = Decision::Denied(Denied {
            source: DecisionSource::Rule,
            ..Denied::new(BLOCKED_FOR)
        });
        let charged = Charged {
            name: Arc::clone(&self.rules[applying.place.rule].limited.name),
            rate_limiter: None,
            asked: None,
            parts: smallvec![applying.place.part],
        };
        JointDecision::of_one(charged, denied)
    }
}
