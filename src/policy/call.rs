//! One call: a list of requests against one or several limiters, each granted by all of them or charged to none. The
//! same steps as `lua/limiters/decide.lua`.

use std::sync::Arc;
use std::time::Duration;

use crate::decision::{Decision, Grant};
use crate::error::{Error, Result};
use crate::keys::{beside, share_a_slot};
use crate::model::{At, BOUNDS, Timed};
use crate::permit::{Random, new_random};

use super::algorithm::{AnyModel, State, Unusable};

/// One call to a store.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Names the call, however often it is sent.
    pub(crate) random: Random,
    pub(crate) limiters: Vec<Target>,
    /// For each request its cost at each limiter.
    pub(crate) costs: Vec<u32>,
}

/// A limiter and whom it limits.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) model: Arc<dyn AnyModel>,
    /// The target's name in the store.
    pub(crate) key: String,
    /// For how long, in ms, a denial locks the target out.
    pub(crate) penalty: Option<i64>,
}

/// What a call tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Score of the grants made.
    pub(crate) score: i64,
    /// For each request each limiter's answer.
    pub(crate) answers: Vec<Answer>,
}

/// One limiter's answer to one request. Times in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    pub(crate) limit: i64,
    pub(crate) remaining: i64,
    pub(crate) retry_after: i64,
    pub(crate) reset: i64,
    pub(crate) delay: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Charged only where all limiters of the call say so.
    Granted,
    Denied,
    /// Denied without a look: an earlier denial has a penalty.
    LockedOut,
    /// The cost is more than the limit.
    Never,
}

/// A target with its state.
pub(crate) struct Opened<'a> {
    pub(crate) target: &'a Target,
    pub(crate) state: &'a mut dyn State,
    pub(crate) lock: &'a mut Timed<()>,
}

impl Call {
    pub(crate) fn new(limiters: Vec<Target>, costs: Vec<u32>) -> Self {
        Self {
            random: new_random(),
            limiters,
            costs,
        }
    }
}

impl Answers {
    /// The decision on request `place` of a call to one limiter.
    pub(crate) fn decision(&self, call: &Call, place: usize) -> Result<Decision> {
        self.answer_to(call, place, 0)
    }

    /// Each limiter's decision on a call's only request.
    pub(crate) fn decisions(&self, call: &Call) -> Result<Vec<Decision>> {
        let decisions = (0..call.limiters.len()).map(|limiter| self.answer_to(call, 0, limiter));
        let mut decisions: Vec<_> = decisions.collect::<Result<_>>()?;
        if !decisions.iter().all(Decision::is_granted) {
            for decision in &mut decisions {
                if let Decision::Granted {
                    grant,
                    limit,
                    remaining,
                    reset,
                    ..
                } = decision
                {
                    // It had enough, and was not charged.
                    let remaining = *remaining + u64::from(grant.permits);
                    *decision = Decision::denied(Duration::ZERO, *limit, remaining, *reset);
                }
            }
        }
        Ok(decisions)
    }

    fn answer_to(&self, call: &Call, place: usize, limiter: usize) -> Result<Decision> {
        let target = &call.limiters[limiter];
        let at = place * call.limiters.len() + limiter;
        let (Some(answer), Some(&cost)) = (self.answers.get(at), call.costs.get(at)) else {
            return Err(Error::BadState {
                name: target.key.clone(),
                source: None,
            });
        };
        let (limit, remaining) = (answer.limit.unsigned_abs(), answer.remaining.unsigned_abs());
        let (retry_after, reset) = (millis(answer.retry_after), millis(answer.reset));
        match answer.outcome {
            Outcome::Granted => Ok(Decision::Granted {
                grant: if target.model.is_on_the_window() {
                    Grant {
                        score: self.score,
                        random: call.random,
                        permits: cost,
                    }
                } else {
                    Grant::forgotten(cost)
                },
                limit,
                remaining,
                reset,
                delay: millis(answer.delay),
            }),
            Outcome::Denied | Outcome::LockedOut => {
                Ok(Decision::denied(retry_after, limit, remaining, reset))
            }
            Outcome::Never => Err(Error::CostExceedsLimit {
                key: target.key.clone(),
                cost,
                limit,
            }),
        }
    }
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}

impl Target {
    /// Refuses a key that no server takes, and on a cluster one whose state would lie in different slots.
    pub(crate) fn check(&self, is_cluster: bool) -> Result<()> {
        let refuse = |reason| {
            Err(Error::InvalidName {
                name: self.key.clone(),
                reason,
            })
        };
        if self.key.is_empty() {
            return refuse("it is empty");
        }
        if is_cluster && !share_a_slot(&self.all_keys()) {
            return refuse("its braces would spread its keys over several slots of the cluster");
        }
        Ok(())
    }

    /// The keys of its state, then its lock where that is looked at.
    pub(crate) fn all_keys(&self) -> Vec<String> {
        let mut keys = self.model.keys(&self.key);
        keys.extend(self.minded_lock().map(|_| lock_of(&self.key)));
        keys
    }

    /// `None` where a lock is not looked at; else the penalty in ms, 0 where only others have one.
    pub(crate) fn minded_lock(&self) -> Option<i64> {
        self.penalty
            .or_else(|| self.model.minds_every_lock().then_some(0))
    }
}

/// The key that is there while the target is locked out.
fn lock_of(target: &str) -> String {
    beside(target, "-lock")
}

/// Decides a list of requests over plain state, in order.
pub(crate) fn decide(
    opened: &mut [Opened<'_>],
    at: At,
    random: &Random,
    costs: &[u32],
) -> Result<Answers, (usize, Unusable)> {
    prepare(opened, at, costs)?;
    let mut answers = Vec::with_capacity(costs.len());
    for costs in costs.chunks(opened.len()) {
        let first = answers.len();
        for (place, (limiter, &cost)) in opened.iter_mut().zip(costs).enumerate() {
            let answer = limiter.ask(at, i64::from(cost));
            answers.push(answer.map_err(|unusable| (place, unusable))?);
        }
        let all = answers[first..]
            .iter()
            .all(|a| a.outcome == Outcome::Granted);
        for ((limiter, answer), &cost) in opened.iter_mut().zip(&answers[first..]).zip(costs) {
            let model = &limiter.target.model;
            if all {
                model.charge(limiter.state, at, random, i64::from(cost));
            } else if answer.outcome == Outcome::Denied {
                model.deny(limiter.state, at);
                limiter.lock_out(at);
            }
        }
    }
    let score = at.now;
    Ok(Answers { score, answers })
}

/// Brings the states so far up to date that the requests can be decided, in as many steps as the scripts take calls.
fn prepare(opened: &mut [Opened<'_>], at: At, costs: &[u32]) -> Result<(), (usize, Unusable)> {
    let limiters = opened.len();
    loop {
        let (mut most, mut is_unfinished) = (BOUNDS.page, false);
        for (place, limiter) in opened.iter_mut().enumerate() {
            let cost = costs.iter().skip(place).step_by(limiters);
            let cost = cost.map(|&cost| i64::from(cost)).sum();
            let model = &limiter.target.model;
            let step = model.prepare(limiter.state, at, cost, &mut most);
            is_unfinished |= step.map_err(|unusable| (place, unusable))?;
        }
        if !is_unfinished {
            return Ok(());
        }
    }
}

impl Opened<'_> {
    fn ask(&mut self, at: At, cost: i64) -> Result<Answer, Unusable> {
        let asked = self.target.model.ask(self.state, at, cost)?;
        let mut answer = Answer {
            outcome: Outcome::Never,
            limit: asked.limit,
            remaining: 0,
            retry_after: 0,
            reset: 0,
            delay: 0,
        };
        // In the last millisecond the store still has the lock, but its time is over.
        let is_over = self.lock.expires_at().is_some_and(|end| end <= at.server);
        if self.target.minded_lock().is_some() && self.lock.get().is_some() && !is_over {
            if self.lock.expires_at().is_none() {
                // Nobody would ever unlock it.
                self.lock_out(at);
            }
            let left = self.lock.expires_at().map_or(0, |end| end - at.server);
            let left = left.max(1);
            answer.outcome = Outcome::LockedOut;
            (answer.retry_after, answer.reset) = (left, left);
        } else if cost <= asked.limit {
            let penalty = self.target.penalty.unwrap_or(0);
            answer.remaining = asked.remaining;
            if asked.granted {
                answer.outcome = Outcome::Granted;
                (answer.reset, answer.delay) = (asked.reset, asked.delay);
            } else {
                answer.outcome = Outcome::Denied;
                answer.retry_after = asked.retry_after.max(penalty).max(1);
                answer.reset = asked.reset.max(penalty);
            }
        }
        Ok(answer)
    }

    fn lock_out(&mut self, at: At) {
        if let Some(penalty) = self.target.penalty {
            self.lock.set(());
            self.lock.expire_at(at.server + penalty);
        }
    }
}
