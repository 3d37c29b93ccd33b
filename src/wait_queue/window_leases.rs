//! Leases of the targets of a policy with fixed windows, which share their mechanism with those of a limiter: see
//! [`leases`](super::leases).
//!
//! A lease is a part of one window. It was counted in that window when it was taken, and ends with it at the latest, by this
//! process's clock from before the call. So each use falls into the window that has counted it. What is not used goes back to
//! the counter of the same window; once that is over, there is nothing to give back.
//!
//! A call for a lease is a request like any other, by a policy whose limit is less by as much as it asks for: so it is granted
//! only if that is at most half of what is left. If its answer is lost, its permits come back with the next window.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::hot_keys::{HotKeys, Kept};
use super::leases::{Calls, Leases, Moment, Plan, Todo, UnderWay};
use super::settling::Ended;
use crate::clock::system_millis;
use crate::decision::Decision;
use crate::escaped::Escaped;
use crate::lock::Lock;
use crate::permit::{CallId, new_call_id};
use crate::policies::algorithm::AnyModel;
use crate::policies::answer::{Answer, Outcome};
use crate::policies::call::{Call, Target};
use crate::store::leased_windows::{LeasedWindows, Unused};
use crate::window;

/// A lease is for at least this many permits: fewer cost no more calls without one.
const FEWEST: u32 = 2;

/// The leases of a handle and its clones, by target. They end when it is dropped.
pub(crate) struct WindowLeases {
    /// `None` if the store decides at once: then nothing is leased.
    store: Option<Arc<dyn LeasedWindows>>,
    up_to: Duration,
    targets: HotKeys<LeasedTarget>,
}

/// While it lives, nothing of a target is leased, because this client resets it.
pub(crate) struct TargetStop {
    leases: Arc<WindowLeases>,
    key: Arc<str>,
    is_over: bool,
}

struct LeasedTarget {
    store: Arc<dyn LeasedWindows>,
    key: Arc<str>,
    model: Arc<dyn AnyModel>,
    up_to: Duration,
    leases: Leases,
    made: Instant,
    /// By how many ms the server's clock is ahead of the time since `made`, as the last lease has shown: at most.
    ahead: AtomicI64,
    seen: Lock<Seen>,
}

/// What the store last answered.
struct Seen {
    at: Instant,
    /// The permits that it had left.
    left: i64,
}

fn moment() -> Moment {
    Moment {
        at: Instant::now(),
        wall: system_millis(),
    }
}

impl WindowLeases {
    /// Leases of up to this length.
    pub(crate) fn new(store: Option<Arc<dyn LeasedWindows>>, up_to: Duration) -> Self {
        Self {
            store,
            up_to,
            targets: HotKeys::new(up_to),
        }
    }

    /// The target's leases, if they were taken by this policy. Those of the policy before end, and are the error.
    fn of_policy(
        &self,
        model: &Arc<dyn AnyModel>,
        key: &str,
    ) -> Result<Arc<LeasedTarget>, Option<Arc<LeasedTarget>>> {
        let target = self.targets.get(key).ok_or(None)?;
        if Arc::ptr_eq(&target.model, model) {
            return Ok(target);
        }
        target.step(Leases::close);
        Err(Some(target))
    }

    fn get_or_create(
        &self,
        model: &Arc<dyn AnyModel>,
        key: &Arc<str>,
    ) -> Option<Arc<LeasedTarget>> {
        let store = self.store.as_ref()?;
        let before = match self.of_policy(model, key) {
            Ok(target) => return Some(target),
            Err(before) => before,
        };
        if let Some(before) = before {
            self.targets.remove(key, &before);
        }
        let new = || LeasedTarget::new(store, model, key, self.up_to);
        let target = self.targets.ask(key, new)?;
        Arc::ptr_eq(&target.model, model).then_some(target)
    }

    /// Takes permits of a lease. `None` if none has them.
    pub(crate) fn take(&self, model: &Arc<dyn AnyModel>, key: &str, cost: u32) -> Option<Answer> {
        let target = self.of_policy(model, key).ok()?;
        let taken = target.leases.acquire(cost, None, moment)?;
        if taken.is_attention_due {
            target.attend();
        }
        Some(target.answer(&taken.answer, cost))
    }

    /// What a request would get of the leases.
    pub(crate) fn peek(&self, model: &Arc<dyn AnyModel>, key: &str, cost: u32) -> Option<Answer> {
        let target = self.targets.get(key)?;
        if !Arc::ptr_eq(&target.model, model) {
            return None;
        }
        let (_, answer) = target.leases.peek(cost, None, moment())?;
        Some(target.answer(&answer, cost))
    }

    /// Ends the leases of the policy before. Returns the calls by which they go back: a request by this policy may give their
    /// window another length, and then they go to none.
    pub(crate) fn end_before(&self, model: &Arc<dyn AnyModel>, key: &str) -> Option<Calls> {
        let before = self.of_policy(model, key).err()??;
        before.store.is_healthy().then(|| before.leases.calls())
    }

    /// The calls for the target's leases from now on, also for those of the policy before.
    pub(crate) fn calls(&self, key: &str) -> Option<Calls> {
        Some(self.targets.get(key)?.leases.calls())
    }

    /// Learns from the store's decision on a request, since which these calls were made. Where it is a denial, the leases go back;
    /// then returns the calls for that, if there is something to give back or has been.
    pub(crate) fn note(
        &self,
        Target { model, key, .. }: &Target,
        cost: u32,
        decision: &Decision,
        calls: Option<Calls>,
    ) -> Option<Calls> {
        let target = self.get_or_create(model, key);
        if let Some(target) = &target {
            target.note(cost, decision);
        }
        if decision.is_granted() {
            return None;
        }
        let of_target = || Some(target?.leases.calls());
        let calls = calls.filter(Calls::were_made).or_else(of_target);
        calls.filter(Calls::were_made)
    }

    /// Ends the leases of a target, before this client resets it, and waits until what they did not use is back.
    pub(crate) async fn stop(self: &Arc<Self>, key: &Arc<str>) -> TargetStop {
        let stopped = self.targets.stop(key);
        let stop = TargetStop {
            leases: Arc::clone(self),
            key: Arc::clone(key),
            is_over: false,
        };
        if let Some(target) = stopped {
            target.step(Leases::close);
            target.leases.calls().done().await;
        }
        stop
    }

    /// Ends all leases, and takes none from then on.
    pub(crate) fn close(&self) {
        for target in self.targets.close() {
            target.step(Leases::close);
        }
    }
}

impl TargetStop {
    /// The reset has been answered.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for TargetStop {
    fn drop(&mut self) {
        match &self.leases.store {
            Some(store) if !self.is_over => {
                // Without an answer the reset may still happen, until its deadline at the latest.
                let over = Self {
                    leases: Arc::clone(&self.leases),
                    key: Arc::clone(&self.key),
                    is_over: true,
                };
                let deadline = store.call_deadline();
                store.run_in_background(Box::pin(async move {
                    sleep_until(deadline).await;
                    drop(over);
                }));
            }
            _ => self.leases.targets.resume(&self.key),
        }
    }
}

impl Drop for WindowLeases {
    fn drop(&mut self) {
        self.close();
    }
}

impl LeasedTarget {
    fn new(
        store: &Arc<dyn LeasedWindows>,
        model: &Arc<dyn AnyModel>,
        key: &Arc<str>,
        up_to: Duration,
    ) -> Self {
        let now = Instant::now();
        let leases = Leases::new(now);
        leases.hold(up_to);
        Self {
            store: Arc::clone(store),
            key: Arc::clone(key),
            model: Arc::clone(model),
            up_to,
            leases,
            made: now,
            ahead: AtomicI64::new(0),
            seen: Lock::new(Seen { at: now, left: 0 }),
        }
    }

    fn length(&self) -> Duration {
        self.model.quota().window
    }

    fn length_millis(&self) -> i64 {
        i64::try_from(self.length().as_millis()).unwrap_or(i64::MAX)
    }

    /// The ms until a window ends that ends at this time of the server's clock; 0 once it has, by this process's clock.
    fn until(&self, ends: i64) -> i64 {
        let ends = ends - self.ahead.load(Ordering::Relaxed);
        let passed = i64::try_from(self.made.elapsed().as_millis()).unwrap_or(i64::MAX);
        ends.saturating_sub(passed).max(0)
    }

    /// A policy's answer, from that of a lease: whose score is when the window ends.
    fn answer(&self, leased: &window::Answer, cost: u32) -> Answer {
        Answer {
            outcome: Outcome::Granted,
            limit: leased.rate,
            window: self.length_millis(),
            remaining: leased.available - i64::from(cost),
            retry_after: 0,
            reset: self.until(leased.score),
            delay: 0,
        }
    }

    fn step(self: &Arc<Self>, step: impl FnOnce(&Leases) -> Todo) {
        let Todo { settle, ask } = step(&self.leases);
        for Ended {
            lease, settlement, ..
        } in settle
        {
            let unused = lease.permits.saturating_sub(settlement.used);
            self.give_back(lease.call_id, lease.score, unused);
        }
        if let Some(plan) = ask {
            let asking = Asking {
                target: Arc::clone(self),
                plan,
                is_over: false,
                _call: self.leases.call(),
            };
            self.store.give_back_in_background(Box::pin(async move {
                asking.ask().await;
                Duration::ZERO
            }));
        }
    }

    fn attend(self: &Arc<Self>) {
        self.step(|leases| leases.attend(moment()));
    }

    fn note(self: &Arc<Self>, cost: u32, decision: &Decision) {
        *self.seen.lock() = Seen {
            at: Instant::now(),
            left: i64::try_from(decision.remaining()).unwrap_or(i64::MAX),
        };
        let taken = if decision.is_granted() {
            i64::from(cost)
        } else {
            0
        };
        let settings = (self.length(), None);
        self.step(|leases| leases.note(settings, taken, decision.retry_after(), moment()));
    }

    /// Gives back what the lease of this call has left.
    fn give_back(self: &Arc<Self>, id: CallId, ends: i64, permits: u32) {
        if permits == 0 || self.until(ends) == 0 {
            return;
        }
        let unused = Unused {
            id,
            key: Arc::clone(&self.key),
            ends,
            length: self.length_millis(),
            permits,
        };
        let (target, call) = (Arc::clone(self), self.leases.call());
        self.store.give_back_in_background(Box::pin(async move {
            let _call = call;
            let Err(error) = target.store.give_back(&unused).await else {
                return Duration::ZERO;
            };
            tracing::warn!(
                target = %Escaped(&unused.key),
                permits,
                error = %Escaped(&error),
                "the permits of a lease come back only with the next window"
            );
            Duration::from_millis(target.until(ends).unsigned_abs())
        }));
    }

    /// As many of these permits as may be leased, by what is known, and the policy that leases them.
    fn part(&self, permits: u32) -> Option<(Arc<dyn AnyModel>, u32)> {
        let half = self.seen.lock().left / 2;
        let permits = permits.min(u32::try_from(half).unwrap_or(u32::MAX));
        let leasing = self.model.leasing(permits)?;
        (permits >= FEWEST).then_some((leasing, permits))
    }
}

impl Kept for LeasedTarget {
    /// Whether it has no lease, and demand has forgotten its requests.
    fn is_idle(&self, now: Instant) -> bool {
        let remembered = self.up_to.min(self.length() / 2) * 2;
        let seen = self.seen.lock().at;
        self.leases.is_empty()
            && !self.leases.is_calling()
            && now.saturating_duration_since(seen) >= remembered
    }
}

/// The call for the next lease.
struct Asking {
    target: Arc<LeasedTarget>,
    plan: Plan,
    is_over: bool,
    _call: UnderWay,
}

impl Asking {
    async fn ask(mut self) {
        let target = Arc::clone(&self.target);
        let Some((model, permits)) = target.part(self.plan.permits) else {
            return;
        };
        if !target.store.is_healthy() {
            return;
        }
        let asked = Target {
            model,
            key: Arc::clone(&target.key),
            penalty: None,
        };
        let call = Arc::new(Call::new([asked], [permits]));
        let sent = moment();
        let Ok((answer, server)) = target.store.take(&call).await else {
            return;
        };
        // The policy that it was asked by keeps as much as it asked for.
        let left = answer.remaining + i64::from(permits);
        target.seen.lock().left = left;
        if !answer.is_granted() {
            return;
        }
        let since_made = sent.at.saturating_duration_since(target.made).as_millis();
        let ahead = server - i64::try_from(since_made).unwrap_or(i64::MAX);
        target.ahead.store(ahead, Ordering::Relaxed);
        let ends = server + answer.reset;
        if target.until(ends) == 0 {
            return; // the window was about to end
        }
        self.is_over = true;
        let available = left + i64::from(permits);
        let limit = answer.limit + i64::from(permits);
        let length = target.length_millis();
        let mut leased = window::Answer::new(ends, limit, available, length, length);
        leased.until_score = self.plan.lasts.min(answer.reset);
        let mut until = None;
        target.step(|leases| {
            let taken = (new_call_id(), sent);
            let (todo, ends) = leases.granted(&self.plan, taken, (&leased, permits), moment());
            until = ends;
            todo
        });
        let Some(until) = until else {
            return;
        };
        let weak = Arc::downgrade(&target);
        target.store.run_in_background(Box::pin(async move {
            sleep_until(until).await;
            if let Some(target) = weak.upgrade() {
                target.attend();
            }
        }));
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_over {
            self.target.leases.failed(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::decision::Denied;
    use crate::error::{Error, Result};
    use crate::policies::FixedWindow;
    use crate::store::{GivingBack, Task};
    use crate::wait_queue::hot_keys::MOST_KEYS;

    struct Away;

    #[async_trait]
    impl LeasedWindows for Away {
        async fn take(&self, _: &Arc<Call>) -> Result<(Answer, i64)> {
            Err(Error::NoRuntime)
        }

        async fn give_back(&self, _: &Unused) -> Result<u32> {
            Err(Error::NoRuntime)
        }

        fn call_deadline(&self) -> Instant {
            Instant::now()
        }

        fn is_healthy(&self) -> bool {
            false
        }

        fn run_in_background(&self, _: Task) {}

        fn give_back_in_background(&self, _: GivingBack) {}
    }

    fn leases() -> Arc<WindowLeases> {
        leases_of(Duration::from_secs(60))
    }

    fn leases_of(up_to: Duration) -> Arc<WindowLeases> {
        Arc::new(WindowLeases::new(Some(Arc::new(Away)), up_to))
    }

    /// Asks for a key so many times, and returns how many targets have a place then.
    fn targets_after(leases: &WindowLeases, key: &str, times: usize) -> usize {
        let model = FixedWindow::new(10, Duration::from_secs(3600));
        let target = Target {
            model: Arc::new(model),
            key: key.into(),
            penalty: None,
        };
        let decision = Decision::Denied(Denied::new(Duration::from_secs(1)));
        for _ in 0..times {
            drop(leases.note(&target, 1, &decision, None));
        }
        leases.targets.len()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_take_bounded_memory_and_none_if_they_are_asked_for_once() {
        let leases = leases();
        for number in 0..100_000 {
            assert_eq!(targets_after(&leases, &format!("once:{number}"), 1), 0);
        }
        for number in 0..MOST_KEYS + 100 {
            let targets = targets_after(&leases, &format!("twice:{number}"), 2);
            assert_eq!(targets, (number + 1).min(MOST_KEYS));
        }
        // The idle ones make room for others.
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(targets_after(&leases, "later", 2), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_make_room_for_others_however_long_leases_may_be() {
        let leases = leases_of(Duration::MAX);
        for number in 0..MOST_KEYS + 2 {
            targets_after(&leases, &number.to_string(), 2);
        }
        tokio::time::advance(Duration::from_secs(3600)).await; // a lease is at most half of the window
        assert_eq!(targets_after(&leases, "later", 2), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_being_reset_is_not_leased() {
        let leases = leases();
        assert_eq!(targets_after(&leases, "key", 2), 1);
        let key = Arc::from("key");
        let (one, other) = (leases.stop(&key).await, leases.stop(&key).await);
        assert_eq!(targets_after(&leases, "key", 10), 0);
        one.over();
        assert_eq!(targets_after(&leases, "key", 10), 0);
        other.over();
        assert_eq!(targets_after(&leases, "key", 2), 1);
    }
}
