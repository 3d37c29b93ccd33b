//! Several limiters in one decision: granted by all, or charged to none.

mod in_turn;
mod taken;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::charge::{Charge, call_of, peek_requests, refuse_unless_joint, requests_of};
use super::limiter::Limiter;
use super::registry::Registry;
use super::turn::wait_for_turn;
use crate::decision::{Decision, DecisionSource};
use crate::denials::Change;
use crate::error::Result;
pub(crate) use crate::event::Mode;
use crate::event::{Reports, RequestResult};
use crate::fallback::{TargetRequest, check_together};
use crate::grant::Grant;
use crate::policies::call::Purpose;
use in_turn::{slots, slots_after};
pub(super) use taken::{By, Taken};

/// A limiter that took part in a joint decision.
#[derive(Debug, Clone)]
pub(super) struct Charged {
    pub(super) by: By,
    /// The parts of the request that it decided on.
    pub(super) parts: Parts,
}

/// The parts of a request that a limiter decided on: usually one.
pub(super) type Parts = SmallVec<[Part; 1]>;

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Its index in the request.
    pub(super) place: usize,
    /// What it costs by itself.
    pub(super) cost: u32,
}

impl PartialEq for Charged {
    fn eq(&self, other: &Self) -> bool {
        let [this, other] = [self, other].map(|it| (it.by.name(), it.by.key(), &it.parts));
        this == other
    }
}

impl Eq for Charged {}

impl Charged {
    fn by(request: &TargetRequest) -> Self {
        Self {
            by: By::target(request),
            parts: smallvec![Part {
                place: 0,
                cost: request.cost
            }],
        }
    }
}

/// What several limiters decided together.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, TokenBucket};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let per_user = client.policy_limiter(TokenBucket::per_second(1).with_capacity(2))?;
/// let per_address = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
///
/// let ask = || Ok([per_user.charge("user:123", 1)?, per_address.charge("address:::1", 1)?]);
/// assert!(client.check_all(ask()?).await?.is_granted());
/// let denied = client.check_all(ask()?).await?; // the address has had its request
/// assert!(!denied.is_granted());
/// assert!(per_user.check("user:123", 1).await?.is_granted()); // and the user was not charged
/// # redisson_rate_limiter::Result::Ok(()) }
/// ```
///
/// The compiler warns if it is dropped, also behind `?`:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use redisson_rate_limiter::{Charge, RedissonClient, Result};
/// # async fn call(client: RedissonClient, charges: [Charge; 2]) -> Result<()> {
/// client.check_all(charges).await?;
/// # Ok(()) }
/// # fn main() {}
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a request that was denied must not go on"]
pub struct JointDecision {
    limiters: SmallVec<[Charged; 1]>,
    /// The decision of each limiter, in the order of `limiters`.
    decisions: SmallVec<[Decision; 1]>,
    /// The index of the limiter that decides.
    deciding: usize,
}

/// Decides one request by several limiters of one client. Unless in shadow mode, waits until a
/// granted request may proceed.
pub(crate) async fn check_all(
    registry: &Arc<Registry>,
    charges: impl IntoIterator<Item = Charge> + Send,
    mode: Mode,
) -> Result<JointDecision> {
    let (requests, are_own) = requests_of(&registry.store, charges);
    let limiters = requests.iter().map(|it| (&*it.name, it.cost));
    let reported = registry.state.events.joint_request(mode, limiters);
    let admitted = registry.state.admit();
    if let Err(error) = admitted.and_then(|()| refuse_unless_joint(&requests, are_own)) {
        return Err(reported.failed(error));
    }
    reported.queue_time().ends_now();
    let decided = match decide_or_peek(registry, &requests, Purpose::Decide).await {
        Ok((decisions, taken)) => {
            let mut decision = JointDecision::by(&requests, decisions);
            if mode == Mode::Enforced
                && let Err(error) = wait_for_turn(&mut decision.decisions).await
            {
                return Err(reported.failed(error));
            }
            taken.keep();
            Ok(decision)
        }
        Err(error) => Err(error),
    };
    reported.ended(decided)
}

/// Decides a request by several limiters, or says what they would decide: in one call if one
/// reaches them all, and otherwise in turn.
async fn decide_or_peek(
    registry: &Arc<Registry>,
    requests: &Arc<[TargetRequest]>,
    purpose: Purpose,
) -> Result<(Vec<Decision>, Taken)> {
    let store = &*registry.store;
    let in_turn = |slots| Box::pin(in_turn::decide_or_peek(registry, slots, purpose));
    if let Some(slots) = slots(store, requests) {
        return in_turn(slots).await;
    }
    let decided = match purpose {
        Purpose::Peek => {
            let peeked = peek_requests(&registry.store, &registry.local_store, requests).await;
            peeked.map(|decisions| (decisions, Taken::nothing(registry)))
        }
        _ => decide(registry, requests).await,
    };
    match slots_after(&decided, store, requests) {
        Some(slots) => in_turn(slots).await,
        None => decided,
    }
}

/// Decides a request by limiters that one call reaches. What it takes goes back unless it is kept,
/// also where the answer comes after the future was dropped.
async fn decide(
    registry: &Arc<Registry>,
    requests: &Arc<[TargetRequest]>,
) -> Result<(Vec<Decision>, Taken)> {
    if let Some(memory) = registry.store.in_memory() {
        let changing = set_up_by(registry, requests, registry.store.call_deadline());
        let call = call_of(requests, Purpose::Decide);
        let answers = memory.check_call(&call)?;
        let decisions = answered(registry, requests, changing, answers.decisions(&call))?;
        // Grants are given back only if the caller leaves while it waits for its turn.
        let taken = match decisions.iter().all(|it| it.delay().is_zero()) {
            true => Taken::nothing(registry),
            false => taken_by(registry, requests, &decisions),
        };
        return Ok((decisions, taken));
    }
    let call = Arc::new(call_of(requests, Purpose::Decide));
    let deadline = registry.store.call_deadline();
    // Boxed, because the future of the failure policy has room for it several times.
    let asking = Box::pin({
        let (registry, requests, call) = (
            Arc::clone(registry),
            Arc::clone(requests),
            Arc::clone(&call),
        );
        async move {
            let changing = set_up_by(&registry, &requests, deadline);
            let answers = registry.store.check(&call, deadline).await?;
            let decisions = answered(&registry, &requests, changing, answers.decisions(&call))?;
            let taken = taken_by(&registry, &requests, &decisions);
            Ok((decisions, taken))
        }
    });
    let (store, local) = (&registry.store, &registry.local_store);
    let (decisions, taken) = check_together(store, local, requests, &call, asking).await?;
    let taken = taken.unwrap_or_else(|| taken_by(registry, requests, &decisions));
    Ok((decisions, taken))
}

/// The charges of these decisions.
fn taken_by(registry: &Arc<Registry>, requests: &[TargetRequest], decisions: &[Decision]) -> Taken {
    let mut taken = Taken::nothing(registry);
    let each = requests.iter().zip(decisions);
    taken.add(each.filter_map(|(request, decision)| {
        Some((By::target(request), decision.clone().into_grant()?))
    }));
    taken
}

impl Reports for JointDecision {
    fn result(&self) -> RequestResult {
        let source = match self.is_by_failure_policy() {
            true => DecisionSource::FailurePolicy,
            false => self.deciding().1.source(),
        };
        RequestResult::of(self.is_granted(), source)
    }

    fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    fn deciding(&self) -> usize {
        self.deciding
    }
}

/// What `check_all` would return.
pub(crate) async fn peek_all(
    registry: &Arc<Registry>,
    charges: impl IntoIterator<Item = Charge> + Send,
) -> Result<JointDecision> {
    registry.state.admit()?;
    let (requests, are_own) = requests_of(&registry.store, charges);
    refuse_unless_joint(&requests, are_own)?;
    let (decisions, _) = decide_or_peek(registry, &requests, Purpose::Peek).await?;
    Ok(JointDecision::by(&requests, decisions))
}

/// Corrects what rules have charged: `cost` returns what a part of the request, given by its index,
/// should have cost a limiter of this name; `None` if it was charged rightly.
pub(super) async fn settle_all(
    decisions: impl Iterator<Item = JointDecision>,
    cost: impl Fn(&str, usize) -> Option<u32>,
) -> Result<()> {
    let mut settled = Ok(());
    for (Charged { by, parts }, grant) in decisions.flat_map(JointDecision::into_taken) {
        let cost = cost_of_all(&parts, |part| cost(by.name(), part));
        if let (By::Asked(asked, key), Some(cost)) = (by, cost) {
            settled = settled.and(asked.settle(&key, grant, cost).await);
        }
    }
    settled
}

/// What these parts should have cost together. `None` if each of them costs what it was charged.
fn cost_of_all(parts: &[Part], cost: impl Fn(usize) -> Option<u32>) -> Option<u32> {
    let costs: SmallVec<[_; 1]> = parts.iter().map(|it| cost(it.place)).collect();
    let is_any_wrong = costs.iter().any(Option::is_some);
    let each = parts.iter().zip(costs);
    let each = each.map(|(part, cost)| cost.unwrap_or(part.cost));
    is_any_wrong.then(|| each.fold(0, u32::saturating_add))
}

/// Gives back what joint decisions took, and returns how many permits.
pub(crate) async fn refund_all(
    registry: &Registry,
    decisions: impl IntoIterator<Item = JointDecision>,
) -> Result<u64> {
    let (mut refunded, mut all) = (0, Ok(()));
    for (limiter, grant) in decisions.into_iter().flat_map(JointDecision::into_taken) {
        let given_back = limiter.by.refund(registry, grant).await;
        all = all.and(given_back.map(|permits| refunded += u64::from(permits)));
    }
    all.map(|()| refunded)
}

/// The changes that a joint decision makes to the settings of limiters in use.
fn set_up_by(registry: &Registry, requests: &[TargetRequest], deadline: Instant) -> Vec<Change> {
    let changed = requests.iter().filter_map(|TargetRequest { target, .. }| {
        let set_up = target.model.set_up()?;
        let queue = registry.queue_in_use(&target.key)?;
        queue.unguarded.set_up(set_up, deadline)
    });
    changed.collect()
}

/// Ends the changes of settings once the store has answered, and forgets remembered denials that
/// the answers contradict: a limiter may have expired and been created again with all its permits,
/// which nothing else shows.
fn answered(
    registry: &Registry,
    requests: &[TargetRequest],
    changing: Vec<Change>,
    decisions: Result<Vec<Decision>>,
) -> Result<Vec<Decision>> {
    changing.into_iter().for_each(Change::done);
    let decisions = decisions?;
    for (TargetRequest { target, cost, .. }, decision) in requests.iter().zip(&decisions) {
        if target.model.is_rate()
            && let Some(queue) = registry.queue_in_use(&target.key)
        {
            let taken = if decision.is_granted() { *cost } else { 0 };
            let available = decision.remaining().saturating_add(taken.into());
            queue.unguarded.note_available(available);
        }
    }
    Ok(decisions)
}

/// A value that is greater for a stricter answer.
fn strictness(decision: &Decision) -> impl Ord + use<> {
    match decision {
        Decision::Denied(denied) => (true, denied.retry_after, Reverse(denied.remaining)),
        Decision::Granted(granted) => (false, granted.delay, Reverse(granted.remaining)),
    }
}

impl JointDecision {
    fn by(requests: &[TargetRequest], decisions: Vec<Decision>) -> Self {
        let limiters = requests.iter().map(Charged::by).collect();
        Self::new(limiters, decisions.into())
    }

    /// The decision of one limiter, as one of several.
    pub(super) fn of_one(limiter: Charged, decision: Decision) -> Self {
        Self::new(smallvec![limiter], smallvec![decision])
    }

    fn new(limiters: SmallVec<[Charged; 1]>, decisions: SmallVec<[Decision; 1]>) -> Self {
        let deciding = (0..decisions.len())
            .max_by_key(|&place| strictness(&decisions[place]))
            .unwrap_or(0);
        Self {
            limiters,
            decisions,
            deciding,
        }
    }

    /// Replaces the limiters by those of rules, with the parts that each rule applies to.
    pub(super) fn by_rules(mut self, asked: impl Iterator<Item = Charged>) -> Self {
        for (limiter, asked) in self.limiters.iter_mut().zip(asked) {
            *limiter = asked;
        }
        self
    }

    /// The limiters that were charged, each with its grant.
    pub(super) fn into_taken(self) -> impl Iterator<Item = (Charged, Grant)> {
        let each = self.limiters.into_iter().zip(self.decisions);
        each.filter_map(|(limiter, decision)| Some((limiter, decision.into_grant()?)))
    }

    /// Whether all limiters granted the request, and were charged.
    pub fn is_granted(&self) -> bool {
        self.decisions.iter().all(Decision::is_granted)
    }

    /// Whether a [`FailurePolicy`](crate::FailurePolicy) decided, because Redis was unavailable.
    pub fn is_by_failure_policy(&self) -> bool {
        self.decisions.iter().any(Decision::is_by_failure_policy)
    }

    /// The answer of each limiter, in the order of the charges. If the request is denied, a limiter
    /// that would have granted it is denied with a `retry_after` of zero: it was not charged.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(FixedWindow::new(9, Duration::from_secs(60)))?;
    /// let all_users = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let charges = || Ok::<_, Error>([per_user.charge("alice", 1)?, all_users.charge("all", 1)?]);
    /// let granted = client.check_all(charges()?).await?;
    /// let denied = client.check_all(charges()?).await?;
    /// assert_eq!(granted.decisions()[0].remaining(), 8);
    /// assert_eq!(denied.decisions()[0].retry_after(), Some(Duration::ZERO)); // alice had enough
    /// assert_eq!(denied.decisions()[1].retry_after(), Some(Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Each limiter's name and its answer, in the order of the charges: see
    /// [`PolicyLimiter::with_name`](crate::PolicyLimiter::with_name).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let minute = Duration::from_secs(60);
    /// let per_user = client.policy_limiter(FixedWindow::new(9, minute))?.with_name("user");
    /// let all_users = client.policy_limiter(FixedWindow::new(1, minute))?.with_name("all");
    /// let charges = || Ok::<_, Error>([per_user.charge("alice", 1)?, all_users.charge("everyone", 1)?]);
    /// let granted = client.check_all(charges()?).await?;
    /// let left: Vec<_> = granted.by_limiter().map(|(name, it)| (name, it.remaining())).collect();
    /// assert_eq!(left, [("user", 8), ("all", 0)]);
    /// let denied = client.check_all(charges()?).await?;
    /// let (name, decision) = denied.deciding();
    /// assert_eq!((name, decision.retry_after()), ("all", Some(minute)));
    /// # Ok(()) }
    /// ```
    pub fn by_limiter(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let names = self.limiters.iter().map(|limiter| limiter.by.name());
        names.zip(&self.decisions)
    }

    /// The limiters that decided on one part of a request, by its place: their names and answers,
    /// in the order of the rules. See [`Rules::check_all`](crate::Rules::check_all).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let limiter = client.policy_limiter(FixedWindow::new(9, Duration::from_secs(60)))?.with_name("each");
    /// let rules = client.rules([Rule::new(limiter).by(["user"])])?;
    /// let verdict = rules.check_all(&[[("user", "alice")], [("user", "bob")]]).await?;
    /// let joint = verdict.decision().expect("a rule applies");
    /// let left: Vec<_> = joint.of_part(1).map(|(name, it)| (name, it.remaining())).collect();
    /// assert_eq!(left, [("each", 8)]);
    /// # Ok(()) }
    /// ```
    pub fn of_part(&self, part: usize) -> impl Iterator<Item = (&str, &Decision)> {
        let limiters = self.limiters.iter().zip(&self.decisions);
        let of_part =
            limiters.filter(move |(limiter, _)| limiter.parts.iter().any(|it| it.place == part));
        of_part.map(|(limiter, decision)| (limiter.by.name(), decision))
    }

    /// The name and the answer of the strictest limiter, which decides: the one with the longest
    /// `retry_after` for a denied request, and the one with the latest turn for a granted request.
    /// Among equals it is the limiter with the fewest permits left.
    pub fn deciding(&self) -> (&str, &Decision) {
        // There is at least one, and `deciding` is its place.
        let place = self.deciding;
        (self.limiters[place].by.name(), &self.decisions[place])
    }

    /// The answers of [`decisions`](Self::decisions), by value, to take the grants out of them.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(FixedWindow::new(9, Duration::from_secs(60)))?;
    /// let all_users = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let charges = || Ok::<_, Error>([per_user.charge("alice", 1)?, all_users.charge("all", 1)?]);
    /// let granted = client.check_all(charges()?).await?;
    /// let denied = client.check_all(charges()?).await?;
    /// assert_eq!(granted.into_decisions().len(), 2);
    /// # drop(denied);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn into_decisions(self) -> Vec<Decision> {
        self.decisions.into_vec()
    }

    /// The answer of the limiter that [decides](Self::deciding).
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(FixedWindow::new(9, Duration::from_secs(60)))?;
    /// let all_users = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let charges = || Ok::<_, Error>([per_user.charge("alice", 1)?, all_users.charge("all", 1)?]);
    /// let granted = client.check_all(charges()?).await?;
    /// let denied = client.check_all(charges()?).await?;
    /// assert_eq!(granted.into_decision().remaining(), 0);
    /// assert_eq!(denied.into_decision().retry_after(), Some(Duration::from_secs(60)));
    /// # Ok(()) }
    /// ```
    pub fn into_decision(mut self) -> Decision {
        // There is at least one, and `deciding` is its place.
        self.decisions.swap_remove(self.deciding)
    }
}
