//! Decisions by limiters of any policy, by one of them or by several jointly.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;

use super::{Held, MemoryClient, Slot, StoredLimiter};
use crate::error::{Error, Result};
use crate::name_hash::NameHash;
use crate::policies::algorithm::{Algorithm, AnyState, Paired};
use crate::policies::answer::TargetAnswer;
use crate::policies::call::{self, Answers, Call, Opened, Purpose, TargetRef};
use crate::policies::model::Charge;
use crate::policies::stored_target::StoredTarget;
use crate::window::{At, NotInitialized};

/// Up to this many limiters decide jointly without an allocation for each list of them.
const FEW: usize = 4;

impl MemoryClient {
    /// Decides one request by one limiter of another policy than RRateLimiter, whose grants carry
    /// the ids of their calls. It takes one look-up in the map and at most two locks.
    pub(crate) fn check_one(&self, target: TargetRef<'_>, cost: u32) -> Result<TargetAnswer> {
        // Before the locks, which are then held for a shorter time.
        let passed = self.clock.now();
        let read = self.store.0.request_time();
        let hash = NameHash::of(target.key);
        let mut shard = self.store.0.shard_of(hash);
        let new = || match StoredTarget::of(target.model, target.key) {
            Some(target) => Slot::Target(target),
            None => Slot::Limiter(Arc::new(StoredLimiter::new(target.key.into()))),
        };
        let slot = shard.slot(target.key, hash, read, new);
        let checked = match slot {
            Slot::Target(stored) => stored.check(target, passed, read, cost),
            Slot::Limiter(_) => None,
        };
        let checked = match checked {
            Some(checked) => checked,
            None => {
                let mut held = slot.limiter().held();
                let server = held.time(read);
                let now = passed.unwrap_or(server);
                let mut opened = held.open(target, server)?;
                opened.check(At { now, server }, cost)
            }
        };
        drop(shard);
        let answer = checked.map_err(|NotInitialized| Error::not_initialized(target.key))?;
        answer.check_fits(target.key, cost)?;
        Ok(TargetAnswer {
            answer,
            cost,
            target: hash,
        })
    }

    pub(crate) fn check_call(&self, call: &Call) -> Result<Answers> {
        // Before the locks, which are then held for a shorter time. The clock may be foreign code.
        let passed = self.clock.now();
        let read = self.store.0.request_time();
        let found = call.limiters.iter().map(|target| {
            self.store
                .with_limiter(&target.key, read, |limiter| Arc::clone(limiter))
        });
        let found: SmallVec<[Arc<StoredLimiter>; FEW]> = found.collect();
        // In the order of their names, as everywhere, so that no two decisions wait for each other.
        let mut order: SmallVec<[usize; FEW]> = (0..found.len()).collect();
        order.sort_unstable_by_key(|&place| &call.limiters[place].key);
        let mut guards: SmallVec<[(usize, MutexGuard<'_, Held>); FEW]> = order
            .into_iter()
            .map(|place| (place, found[place].held()))
            .collect();
        guards.sort_unstable_by_key(|&(place, _)| place);

        let latest = guards.iter().map(|(_, held)| held.latest);
        let server = latest.fold(read, i64::max);
        for (_, held) in &mut guards {
            held.latest = server;
        }
        let now = passed.unwrap_or(server);
        let at = At { now, server };
        let settings =
            |(_, held): &(usize, MutexGuard<'_, Held>)| held.window.settings.get().copied();
        let before: SmallVec<[_; FEW]> = guards.iter().map(settings).collect();
        let mut opened = SmallVec::<[Opened<'_>; FEW]>::new();
        for (target, (_, held)) in call.limiters.iter().zip(&mut guards) {
            match held.open(target.by_ref(), server) {
                Ok(limiter) => opened.push(limiter),
                // As in the script, the error names the first limiter that cannot decide.
                Err(error) => return Err(first_uninitialized(&opened, at).unwrap_or(error)),
            }
        }
        let answers = match call.purpose {
            Purpose::Peek => call::peek(&opened, at, &call.costs),
            _ => call::check_requests(&mut opened, at, &call.call_id, &call.costs),
        };
        drop(opened);
        for ((guard, before), limiter) in guards.iter().zip(&before).zip(&found) {
            if settings(guard) != *before {
                limiter.changes.fetch_add(1, Ordering::Release);
            }
        }
        drop(guards);
        for (target, stored) in call.limiters.iter().zip(before) {
            let set_up = target.model.set_up();
            let left = set_up.and_then(|set_up| set_up.leaves(stored?));
            self.reports.left(&target.key, set_up, left);
        }
        answers.map_err(|(place, NotInitialized)| Error::not_initialized(&call.limiters[place].key))
    }
}

impl MemoryClient {
    /// Deletes what the target of this call has used, or gives back what it was charged, and
    /// returns how much.
    pub(crate) fn undo_call(&self, call: &Call) -> Result<u32> {
        let (Some(target), Some(&cost)) = (call.limiters.first(), call.costs.first()) else {
            return Ok(0);
        };
        let passed = self.clock.now();
        let read = self.store.0.request_time();
        self.store.with_limiter(&target.key, read, |limiter| {
            let mut held = limiter.held();
            let server = held.time(read);
            let now = passed.unwrap_or(server);
            let mut opened = held.open(target.by_ref(), server)?;
            let at = At { now, server };
            match call.purpose {
                Purpose::GiveBack { mark } => {
                    let cost = cost.into();
                    // No more than the cost, which fits.
                    Ok(opened.give_back(at, &Charge { mark, cost }) as u32)
                }
                _ => match opened.reset(at) {
                    Ok(was_used) => Ok(was_used.into()),
                    Err(NotInitialized) => Err(Error::not_initialized(&target.key)),
                },
            }
        })
    }
}

impl Held {
    /// The target with its state, which is created if there is none.
    #[inline]
    fn open<'a>(&'a mut self, target: TargetRef<'a>, server: i64) -> Result<Opened<'a>> {
        self.lock.drop_expired(server);
        self.drop_others_expired(server);
        let model = target.model;
        let refuse = || Error::bad_state(target.key);
        let paired = if let Algorithm::SharedRate(rate) = model {
            self.window.is_gone(server); // drops what is expired
            if self.has_others_own_key() {
                return Err(refuse());
            }
            Paired::SharedRate(rate, &mut self.window)
        } else {
            if model.properties().has_own_key && self.window.exists(server) {
                return Err(refuse());
            }
            if !self.other.as_mut().is_some_and(|it| it.is_of(model)) {
                self.other = self.open_another(model);
            }
            let other = self.other.as_mut().and_then(|it| it.with(model));
            other.ok_or_else(refuse)?.0
        };
        Ok(Opened {
            target,
            paired,
            lock: &mut self.lock,
        })
    }

    /// The state of another kind of limiter than the last one. It has what limiters of this kind
    /// may have left here before.
    fn open_another(&mut self, model: &Algorithm) -> Option<AnyState> {
        if self.other.is_none() && self.closed.is_none() {
            return model.new_state(());
        }
        let mut keys = self.closed.take().unwrap_or_default();
        if let Some(mut other) = self.other.take() {
            keys.put(&mut other);
        }
        let state = keys.take(model);
        self.closed = keys.is_left().then_some(keys);
        state
    }

    fn has_others_own_key(&self) -> bool {
        self.other.as_ref().is_some_and(|it| it.has_own_key())
            || self.closed.as_ref().is_some_and(|it| it.has_own())
    }

    fn drop_others_expired(&mut self, server: i64) {
        self.other.take_if(|other| !other.drop_expired(server));
        self.closed.take_if(|keys| !keys.drop_expired(server));
    }

    /// Whether all state under this name has expired.
    pub(super) fn is_gone(&mut self, server: i64) -> bool {
        self.lock.drop_expired(server);
        self.drop_others_expired(server);
        let has_others = self.other.is_some() || self.closed.is_some();
        self.window.is_gone(server) && !has_others && self.lock.get().is_none()
    }

    /// Refuses a name whose own key holds another kind of limiter.
    pub(super) fn check_kind(&mut self, name: &str, server: i64) -> Result<()> {
        self.drop_others_expired(server);
        if self.has_others_own_key() {
            return Err(Error::bad_state(name));
        }
        Ok(())
    }
}

/// The error of the first limiter that has no rate.
fn first_uninitialized(opened: &[Opened<'_>], at: At) -> Option<Error> {
    opened.iter().find_map(|limiter| {
        let NotInitialized = limiter.paired.evaluate(at, 0).err()?;
        Some(Error::not_initialized(limiter.target.key))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{FixedWindow, MemoryStore, Rate, RedissonClient};

    #[tokio::test(start_paused = true)]
    async fn targets_that_nobody_asks_for_do_not_keep_their_memory() {
        let store = MemoryStore::new();
        let client = RedissonClient::builder().in_memory(&store);
        let limiter = client
            .policy_limiter(FixedWindow::new(1, Duration::from_secs(1)))
            .unwrap();
        for i in 0..10_000 {
            if i % 100 == 0 {
                tokio::time::advance(Duration::from_secs(2)).await;
            }
            assert!(limiter.check(&i.to_string(), 1).await.unwrap().is_granted());
        }
        assert!(store.held() <= 1_000, "{} targets are held", store.held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_of_a_joint_decision_keeps_its_count_and_its_lock() {
        let client = RedissonClient::in_memory();
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let policy = FixedWindow::new(1, second);
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_penalty(minute).unwrap();
        let jointly = async |key| {
            let charge = limiter.charge(key, 1).unwrap();
            let decision = client.check_all([charge]).await.unwrap();
            decision.into_decision().retry_after()
        };
        assert!(limiter.check("counted", 1).await.unwrap().is_granted());
        assert_eq!(jointly("counted").await, Some(minute)); // from now on
        assert!(limiter.check("locked", 1).await.unwrap().is_granted());
        assert!(!limiter.check("locked", 1).await.unwrap().is_granted());
        tokio::time::advance(10 * second).await;
        assert_eq!(jointly("locked").await, Some(50 * second));
        let alone = limiter.check("locked", 1).await.unwrap();
        assert_eq!(alone.retry_after(), Some(50 * second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_joint_decision_is_made_at_the_latest_time_of_its_limiters() {
        let store = MemoryStore::new();
        let client = RedissonClient::builder().in_memory(&store);
        let limiters = ["one", "other"].map(|name| client.rate_limiter(name));
        for limiter in &limiters {
            let rate = Rate::overall(5, Duration::from_secs(1));
            limiter.try_set_rate(rate).await.unwrap();
        }
        // Another request was decided there just after this call read the clock.
        let later = store.0.clock.now() + 7;
        store.limiter("other").held().latest = later;
        let charges = limiters.map(|limiter| limiter.charge(1).unwrap());
        assert!(client.check_all(charges).await.unwrap().is_granted());
        for name in ["one", "other"] {
            let limiter = store.limiter(name);
            let mut held = limiter.held();
            let grants = held.window.overall.grants();
            assert!(grants.iter().all(|(score, _)| score == later), "{name}");
            assert_eq!(held.time(0), later, "{name}");
        }
    }
}
