//! One call: a list of requests against one or several limiters, each of which is granted by all
//! limiters or charged to none; or a peek at the decision on one request; or the reset of a target.
//! `lua/shared/one_target.lua` and `lua/joint.lua` take the same steps.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::keys::{check_name, share_a_slot, sibling};
use crate::lock::Lock;
use crate::name_hash::NameHash;
use crate::permit::{CallId, new_call_id};
use crate::window::{At, BOUNDS, NotInitialized, Timed};

use super::algorithm::{Algorithm, Paired};
use super::answer::{Answer, Outcome};
use super::model::Charge;

/// One call to a store.
#[derive(Debug)]
pub(crate) struct Call {
    /// The call id, the same for each attempt; zeros where no target keeps it.
    pub(crate) call_id: CallId,
    pub(crate) limiters: SmallVec<[Target; 1]>,
    /// The cost of each request at each limiter.
    pub(crate) costs: SmallVec<[u32; 1]>,
    pub(crate) purpose: Purpose,
    progress: Lock<Progress>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    NotSent,
    /// It may have been executed, or may still be.
    Sent,
    /// It is never sent.
    GivenUp,
}

/// What a call is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Decide,
    /// To learn what the decision on the only request would be. Writes nothing.
    Peek,
    /// To delete what the only target has used, and its lock.
    Reset,
    /// To give back the cost that the call with this call id has charged to the only target.
    GiveBack {
        /// [`Answer::mark`] of the charge.
        mark: i64,
    },
}

/// A limiter and its target.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) model: Arc<Algorithm>,
    /// The target's name in the store.
    pub(crate) key: Arc<str>,
    /// For how long, in ms, a denial locks the target out.
    pub(crate) penalty: Option<i64>,
}

/// A borrowed [`Target`], for a decision that keeps none of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TargetRef<'a> {
    pub(crate) model: &'a Algorithm,
    pub(crate) key: &'a str,
    pub(crate) penalty: Option<i64>,
}

/// The answers of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answers {
    /// The score of the grants made.
    pub(crate) score: i64,
    /// Each limiter's answer to each request.
    pub(crate) answers: SmallVec<[Answer; 1]>,
}

/// A target with its state.
pub(crate) struct Opened<'a> {
    pub(crate) target: TargetRef<'a>,
    pub(crate) paired: Paired<'a>,
    pub(crate) lock: &'a mut Timed<()>,
}

impl Call {
    pub(crate) fn new(
        limiters: impl IntoIterator<Item = Target>,
        costs: impl IntoIterator<Item = u32>,
    ) -> Self {
        Self::with_purpose(Purpose::Decide, limiters, costs)
    }

    pub(crate) fn with_purpose(
        purpose: Purpose,
        limiters: impl IntoIterator<Item = Target>,
        costs: impl IntoIterator<Item = u32>,
    ) -> Self {
        let limiters: SmallVec<[Target; 1]> = limiters.into_iter().collect();
        // Creating an id takes a system call.
        let is_named = match &limiters[..] {
            [only] => only.model.names_calls(),
            _ => true,
        };
        Self {
            call_id: is_named.then(new_call_id).unwrap_or_default(),
            limiters,
            costs: costs.into_iter().collect(),
            purpose,
            progress: Lock::default(),
        }
    }

    pub(crate) fn reset(target: Target) -> Self {
        // The lock of the target is deleted too, whichever limiter has set it.
        let penalty = (!target.model.is_rate()).then(|| target.penalty.unwrap_or(0));
        Self::with_purpose(Purpose::Reset, [Target { penalty, ..target }], [1])
    }

    /// A call that gives back a grant of this target.
    pub(crate) fn give_back(target: Target, grant: &Grant) -> Self {
        let purpose = Purpose::GiveBack { mark: grant.score };
        Self {
            call_id: grant.call_id,
            ..Self::with_purpose(purpose, [target], [grant.permits])
        }
    }

    /// Notes that the call is about to be sent. Fails if it was [given up](Self::give_up): nobody
    /// would take over what it charges.
    #[cfg(any(feature = "redis", feature = "test-util", test))]
    pub(crate) fn note_sent(&self) -> Result<()> {
        let mut progress = self.progress.lock();
        if *progress == Progress::GivenUp {
            return Err(Error::unanswered(false));
        }
        *progress = Progress::Sent;
        Ok(())
    }

    /// Notes that the call was sent but did not run.
    #[cfg(feature = "redis")]
    pub(crate) fn note_not_run(&self) {
        *self.progress.lock() = Progress::NotSent;
    }

    pub(crate) fn may_have_run(&self) -> bool {
        *self.progress.lock() == Progress::Sent
    }

    /// Prevents the call from being sent later. Returns `false` if it may have been executed.
    pub(crate) fn give_up(&self) -> bool {
        let mut progress = self.progress.lock();
        if *progress == Progress::NotSent {
            *progress = Progress::GivenUp;
        }
        *progress == Progress::GivenUp
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
        decisions.collect()
    }

    fn answer_to(&self, call: &Call, place: usize, limiter: usize) -> Result<Decision> {
        let target = &call.limiters[limiter];
        let at = place * call.limiters.len() + limiter;
        let (Some(answer), Some(&cost)) = (self.answers.get(at), call.costs.get(at)) else {
            return Err(Error::bad_state(&target.key));
        };
        let grant = if call.purpose == Purpose::Peek {
            Grant::of_nothing(cost)
        } else if target.model.is_rate() {
            Grant::new(self.score, call.call_id, cost)
        } else {
            Grant::charged(answer.mark, call.call_id, cost, NameHash::of(&*target.key))
        };
        answer.check_fits(&target.key, cost)?;
        Ok(answer.decided(grant))
    }
}

impl Target {
    pub(crate) fn by_ref(&self) -> TargetRef<'_> {
        TargetRef {
            model: &self.model,
            key: &self.key,
            penalty: self.penalty,
        }
    }

    /// The keys of its state, then its lock if that is read.
    pub(crate) fn all_keys(&self) -> Vec<String> {
        self.by_ref().all_keys()
    }
}

impl TargetRef<'_> {
    /// Refuses a key that no server accepts, and on a cluster a key whose state would be in
    /// different slots.
    #[inline]
    pub(crate) fn validate(&self, is_cluster: bool) -> Result<()> {
        check_name(self.key, is_cluster, || share_a_slot(&self.all_keys()))
    }

    fn all_keys(&self) -> Vec<String> {
        let mut keys = self.model.keys(self.key);
        keys.extend(self.honoured_lock().map(|_| lock_of(self.key)));
        keys
    }

    /// `None` if no lock is read; else the penalty in ms, 0 if only other limiters have one.
    pub(crate) fn honoured_lock(&self) -> Option<i64> {
        self.penalty.or_else(|| {
            let properties = self.model.properties();
            properties.honours_foreign_locks.then_some(0)
        })
    }

    /// The algorithm's `answer` to a request of `cost`, adjusted to the target's lock, the limit
    /// and the penalty.
    #[inline]
    pub(super) fn answer(&self, locked_for: Option<i64>, answer: Answer, cost: i64) -> Answer {
        let is_never_granted = cost > answer.limit;
        if locked_for.is_some() || is_never_granted {
            let (outcome, left) = match locked_for {
                Some(left) => (Outcome::LockedOut, left),
                None => (Outcome::Never, 0),
            };
            return Answer {
                outcome,
                remaining: 0,
                retry_after: left,
                available_in: left,
                reset: left,
                delay: 0,
                ..answer
            };
        }
        if answer.outcome != Outcome::Denied {
            return Answer {
                retry_after: 0,
                ..answer
            };
        }
        let penalty = self.penalty.unwrap_or(0);
        Answer {
            retry_after: answer.retry_after.max(penalty).max(1),
            available_in: answer.available_in.max(penalty),
            reset: answer.reset.max(penalty),
            ..answer
        }
    }
}

/// The key that exists while the target is locked out.
fn lock_of(target: &str) -> String {
    sibling(target, "-lock")
}

/// Checks a list of requests over plain state, in order.
pub(crate) fn check_requests(
    opened: &mut [Opened<'_>],
    at: At,
    call_id: &CallId,
    costs: &[u32],
) -> Result<Answers, (usize, NotInitialized)> {
    match opened {
        [only] if !only.target.model.is_rate() => {
            let answers = costs.iter().map(|&cost| only.check(at, cost));
            let answers = answers.collect::<Result<_, _>>();
            let answers = answers.map_err(|missing| (0, missing))?;
            let score = at.now;
            Ok(Answers { score, answers })
        }
        _ => check_jointly(opened, at, call_id, costs),
    }
}

/// Checks a list of requests by the steps of `lua/joint.lua`, also for a single limiter.
pub(super) fn check_jointly(
    opened: &mut [Opened<'_>],
    at: At,
    call_id: &CallId,
    costs: &[u32],
) -> Result<Answers, (usize, NotInitialized)> {
    if opened.iter().any(|limiter| limiter.target.model.is_rate()) {
        prepare(opened, at, costs)?;
    }
    let score = at.now;
    let mut answers = SmallVec::<[Answer; 1]>::with_capacity(costs.len());
    for costs in costs.chunks(opened.len()) {
        let first = answers.len();
        for (place, (limiter, &cost)) in opened.iter_mut().zip(costs).enumerate() {
            let answer = limiter.evaluate(at, i64::from(cost));
            answers.push(answer.map_err(|missing| (place, missing))?);
        }
        let all = spare_unless_all_grant(&mut answers[first..], |place, cost| {
            let answer = opened[place].paired.evaluate(at, cost);
            answer.map_err(|missing| (place, missing))
        })?;
        for ((limiter, answer), &cost) in opened.iter_mut().zip(&answers[first..]).zip(costs) {
            if all {
                limiter.paired.charge(at, call_id, i64::from(cost));
            } else if answer.outcome == Outcome::Denied {
                limiter.paired.deny(at);
                limiter.lock_out(at);
            } else {
                limiter.paired.keep(at);
            }
        }
    }
    Ok(Answers { score, answers })
}

/// Returns whether all limiters grant a request. If not, the request is not charged to those that
/// would grant it, and their answers are changed to say what they have without it. `evaluate`
/// returns what a request of a cost gets from the limiter at a place.
pub(super) fn spare_unless_all_grant<E>(
    answers: &mut [Answer],
    evaluate: impl Fn(usize, i64) -> Result<Answer, E>,
) -> Result<bool, E> {
    let is_granted = |answer: &Answer| answer.outcome == Outcome::Granted;
    if answers.iter().all(is_granted) {
        return Ok(true);
    }
    for (place, answer) in answers.iter_mut().enumerate() {
        if is_granted(answer) {
            let untouched = evaluate(place, answer.limit + 1)?; // which takes nothing
            *answer = Answer {
                outcome: Outcome::Spared,
                remaining: untouched.remaining,
                available_in: untouched.available_in,
                reset: untouched.reset,
                delay: 0,
                ..*answer
            };
        }
    }
    Ok(false)
}

/// Returns what the decision on one request would be. Changes nothing.
pub(crate) fn peek(
    opened: &[Opened<'_>],
    at: At,
    costs: &[u32],
) -> Result<Answers, (usize, NotInitialized)> {
    let each = opened.iter().zip(costs).enumerate();
    let answers = each.map(|(place, (limiter, &cost))| {
        let answer = limiter.peek(at, i64::from(cost));
        answer.map_err(|missing| (place, missing))
    });
    let mut answers: SmallVec<[_; 1]> = answers.collect::<Result<_, _>>()?;
    spare_unless_all_grant(&mut answers, |place, cost| {
        let answer = opened[place].paired.peek(at, cost);
        answer.map_err(|missing| (place, missing))
    })?;
    Ok(Answers {
        score: at.now,
        answers,
    })
}

/// Updates the states until the requests can be checked, in as many steps as the scripts take
/// calls.
fn prepare(
    opened: &mut [Opened<'_>],
    at: At,
    costs: &[u32],
) -> Result<(), (usize, NotInitialized)> {
    let limiters = opened.len();
    loop {
        let (mut most, mut is_unfinished) = (
            BOUNDS.most_read + BOUNDS.always_removed_jointly * (limiters - 1),
            false,
        );
        for (place, limiter) in opened.iter_mut().enumerate() {
            let cost = costs.iter().skip(place).step_by(limiters);
            let cost = cost.map(|&cost| i64::from(cost)).sum();
            let step = limiter.paired.prepare(at, cost, &mut most);
            is_unfinished |= step.map_err(|missing| (place, missing))?;
        }
        if !is_unfinished {
            return Ok(());
        }
    }
}

impl Opened<'_> {
    /// Checks one request by this limiter alone.
    #[inline(always)] // in memory a call of its own costs as much as some policies
    pub(crate) fn check(&mut self, at: At, cost: u32) -> Result<Answer, NotInitialized> {
        let (target, cost) = (self.target, i64::from(cost));
        let locked_for = self.locked_for(at);
        let answer = match locked_for {
            None => self.paired.check(at, cost)?,
            Some(_) => self.evaluate_locked(at, cost)?,
        };
        let answer = target.answer(locked_for, answer, cost);
        if answer.outcome == Outcome::Denied {
            self.lock_out(at);
        }
        Ok(answer)
    }

    /// Deletes what the target has used, and its lock. Returns whether there was anything.
    pub(crate) fn reset(&mut self, at: At) -> Result<bool, NotInitialized> {
        let was_used = self.paired.reset(at)?;
        let was_locked = self.target.honoured_lock().is_some() && self.lock.get().is_some();
        if was_locked {
            self.lock.remove();
        }
        Ok(was_used || was_locked)
    }

    /// Gives back a charge, and returns how much.
    pub(crate) fn give_back(&mut self, at: At, charge: &Charge) -> i64 {
        self.paired.give_back(at, charge)
    }

    fn peek(&self, at: At, cost: i64) -> Result<Answer, NotInitialized> {
        let answer = self.paired.peek(at, cost)?;
        let locked_for = self.locked_for(at);
        Ok(self.target.answer(locked_for, answer, cost))
    }

    fn evaluate(&mut self, at: At, cost: i64) -> Result<Answer, NotInitialized> {
        let locked_for = self.locked_for(at);
        let answer = match locked_for {
            None => self.paired.evaluate(at, cost)?,
            Some(_) => self.evaluate_locked(at, cost)?,
        };
        Ok(self.target.answer(locked_for, answer, cost))
    }

    /// The answer of the algorithm to a request while the target is locked out.
    fn evaluate_locked(&mut self, at: At, cost: i64) -> Result<Answer, NotInitialized> {
        let answer = self.paired.evaluate(at, cost)?;
        if self.lock.expires_at().is_none() {
            // Without a time to live, the lock would never end.
            self.lock_out(at);
        }
        Ok(answer)
    }

    /// Milliseconds that the target is locked out.
    #[inline]
    fn locked_for(&self, at: At) -> Option<i64> {
        self.lock.get()?;
        let penalty = self.target.honoured_lock()?;
        let Some(end) = self.lock.expires_at() else {
            return Some(penalty.max(1));
        };
        // In the last millisecond the lock still exists, but its time is over.
        (end > at.server).then(|| end - at.server)
    }

    fn lock_out(&mut self, at: At) {
        if let Some(penalty) = self.target.penalty {
            self.lock.set(());
            self.lock.expire_at(at.server + penalty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call::with_purpose(Purpose::Decide, [], [])
    }

    #[test]
    fn a_call_that_was_given_up_is_never_sent() {
        let call = call();
        assert!(call.give_up());
        let refused = call.note_sent().unwrap_err();
        assert!(matches!(refused, Error::StoreUnavailable { .. }));
        assert!(!call.may_have_run());
        assert!(call.give_up());
    }

    #[test]
    fn a_call_that_was_sent_is_not_given_up() {
        let call = call();
        call.note_sent().unwrap();
        assert!(!call.give_up());
        assert!(call.may_have_run());
        call.note_sent().unwrap(); // once more
    }
}
