//! Many requests on one target, one call.
//!
//! A request that finds nobody asking for its target makes its own call. What arrives meanwhile is put down, and one task,
//! the driver, carries all of it in the next call, in the order of arrival. So a target that many ask for costs few calls,
//! and one that few ask for costs no more than its own. A target that nobody asks for has no desk.
//!
//! A request dropped before it was sent is passed over. One dropped later may have been charged.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::call::{Call, Target};
use crate::decision::Decision;
use crate::error::Result;
use crate::store::Store;

/// How many requests one call carries at most.
const LARGEST_CALL: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Combining {
    /// The targets that somebody asks for, by their keys.
    desks: Mutex<HashMap<String, Desk>>,
}

#[derive(Debug, Default)]
struct Desk {
    /// A caller makes its own call.
    lone_call: bool,
    has_driver: bool,
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    target: Target,
    cost: u32,
    answer: oneshot::Sender<Result<Decision>>,
}

/// What a request found.
enum Found {
    Nobody,
    Others(oneshot::Receiver<Result<Decision>>),
}

impl Combining {
    pub(super) async fn decide(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        target: Target,
        cost: u32,
    ) -> Result<Decision> {
        let call = Call::new(vec![target], vec![cost]);
        if let Some(answers) = store.decide_now(&call) {
            return answers?.decision(&call, 0);
        }
        loop {
            match self.put_down(store, &call.limiters[0], cost) {
                Found::Nobody => {
                    let _lone_call = LoneCall {
                        combining: self,
                        key: &call.limiters[0].key,
                    };
                    return store
                        .decide(&call, store.call_deadline())
                        .await?
                        .decision(&call, 0);
                }
                Found::Others(answer) => {
                    if let Ok(answer) = answer.await {
                        return answer;
                    }
                    // The runtime that drove it shut down: ask again from this one.
                }
            }
        }
    }

    fn desks(&self) -> MutexGuard<'_, HashMap<String, Desk>> {
        // Nothing panics while the lock is held.
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_down(self: &Arc<Self>, store: &Arc<dyn Store>, target: &Target, cost: u32) -> Found {
        let mut desks = self.desks();
        let Some(desk) = desks.get_mut(&target.key) else {
            let desk = Desk {
                lone_call: true,
                ..Desk::default()
            };
            desks.insert(target.key.clone(), desk);
            return Found::Nobody;
        };
        let (answer, receiver) = oneshot::channel();
        desk.requests.push(Request {
            target: target.clone(),
            cost,
            answer,
        });
        let start_driver = !std::mem::replace(&mut desk.has_driver, true);
        drop(desks);
        if start_driver {
            let shift = Shift {
                combining: Arc::clone(self),
                key: target.key.clone(),
                over: false,
            };
            tokio::spawn(shift.drive(Arc::clone(store)));
        }
        Found::Others(receiver)
    }

    /// Changes a desk, which goes where nobody is left at it.
    fn leave<T>(&self, key: &str, change: impl FnOnce(&mut Desk) -> T) -> Option<T> {
        let mut desks = self.desks();
        let desk = desks.get_mut(key)?;
        let answer = change(desk);
        if !desk.lone_call && !desk.has_driver {
            desks.remove(key);
        }
        Some(answer)
    }

    /// The requests of the driver's next call; none where its work is over.
    fn next_batch(&self, key: &str) -> Vec<Request> {
        let batch = self.leave(key, |desk| {
            desk.requests.retain(|request| !request.answer.is_closed());
            desk.has_driver = !desk.requests.is_empty();
            // All that a call grants may be one member, whose permits are a u32.
            let mut room = u32::MAX;
            let fits = desk
                .requests
                .iter()
                .take(LARGEST_CALL)
                .take_while(|request| {
                    let left = room.checked_sub(request.cost);
                    room = left.unwrap_or(room);
                    left.is_some()
                });
            let size = fits.count();
            desk.requests.drain(..size).collect()
        });
        batch.unwrap_or_default()
    }
}

/// A caller's own call. It ends with the caller, whether answered or dropped.
struct LoneCall<'a> {
    combining: &'a Combining,
    key: &'a str,
}

impl Drop for LoneCall<'_> {
    fn drop(&mut self) {
        self.combining
            .leave(self.key, |desk| desk.lone_call = false);
    }
}

/// The driver's time at work. Where its runtime shuts down, those who wait are told, so that they ask again from a runtime
/// that lives.
struct Shift {
    combining: Arc<Combining>,
    key: String,
    over: bool,
}

impl Shift {
    async fn drive(mut self, store: Arc<dyn Store>) {
        loop {
            let batch = self.combining.next_batch(&self.key);
            // The rule in force is the one that was asked by last.
            let Some(last) = batch.last() else {
                self.over = true;
                return;
            };
            let costs = batch.iter().map(|request| request.cost).collect();
            let call = Call::new(vec![last.target.clone()], costs);
            let answers = store.decide(&call, store.call_deadline()).await;
            for (place, request) in batch.into_iter().enumerate() {
                let decision = match &answers {
                    Ok(answers) => answers.decision(&call, place),
                    Err(error) => Err(error.clone()),
                };
                // Whoever is gone needs no answer.
                let _ = request.answer.send(decision);
            }
        }
    }
}

impl Drop for Shift {
    fn drop(&mut self) {
        if self.over {
            return; // what was put down since is another driver's
        }
        let abandoned = self.combining.leave(&self.key, |desk| {
            desk.has_driver = false;
            std::mem::take(&mut desk.requests)
        });
        drop(abandoned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::shared_rate::SharedRate;

    #[test]
    fn a_calls_costs_fit_a_u32_and_what_does_not_is_for_the_next() {
        let combining = Combining::default();
        let mut receivers = Vec::new();
        let requests = [u32::MAX - 1, 1, 1, u32::MAX].map(|cost| {
            let (answer, receiver) = oneshot::channel();
            receivers.push(receiver);
            let target = Target {
                model: Arc::new(SharedRate::as_it_is("client")),
                key: "key".to_owned(),
                penalty: None,
            };
            Request {
                target,
                cost,
                answer,
            }
        });
        let desk = Desk {
            has_driver: true,
            requests: requests.into(),
            ..Desk::default()
        };
        combining.desks().insert("key".to_owned(), desk);
        let costs = || {
            let batch = combining.next_batch("key");
            batch.iter().map(|request| request.cost).collect::<Vec<_>>()
        };
        assert_eq!(costs(), [u32::MAX - 1, 1]);
        assert_eq!(costs(), [1]);
        assert_eq!(costs(), [u32::MAX]);
        assert!(costs().is_empty());
        assert!(combining.desks().is_empty());
    }
}
