//! The task that makes the queue's calls. Each runtime with waiters has one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use super::shared::Queue;
use super::state::{Answered, Next, Rest, State};
use crate::batch::hold_up_within;
use crate::error::Result;
use crate::store::{AcquireCall, OnFreed};

/// The store is asked to report permits that other clients free only before a longer sleep.
const LONG_SLEEP: Duration = Duration::from_millis(50);

pub(super) struct Driver {
    queue: Arc<Queue>,
    runtime: runtime::Id,
    notify: Arc<Notify>,
    /// The call in progress.
    call: Option<Arc<AcquireCall>>,
    /// What the store calls when another client frees permits, from the first long sleep on.
    on_freed: Option<Arc<OnFreed>>,
    is_done: bool,
}

impl Driver {
    pub(super) fn new(queue: Arc<Queue>, runtime: runtime::Id, notify: Arc<Notify>) -> Self {
        queue.store.driver_started();
        Self {
            queue,
            runtime,
            notify,
            call: None,
            on_freed: None,
            is_done: false,
        }
    }

    /// Makes calls until nobody waits.
    pub(super) async fn drive(mut self) {
        loop {
            let has_peers = self.queue.store.may_have_peers();
            let now = Instant::now();
            let queue = &self.queue;
            let is_refused = queue.is_refused();
            let next =
                queue.next_step(|state| state.next(self.runtime, now, has_peers, is_refused));
            match next {
                Next::Call(call, held_up) => self.make(call, held_up).await,
                Next::Sleep(until) => {
                    if until > now + LONG_SLEEP {
                        self.watch();
                    }
                    let queue = &self.queue;
                    tokio::select! {
                        () = sleep_until(until) => {}
                        () = self.notify.notified() => {}
                        () = queue.needs_substitute(), if !is_refused => {}
                    }
                }
                Next::Pause(until) => {
                    tokio::select! {
                        () = queue.wait_for_recovery(until) => {}
                        () = self.notify.notified() => {}
                    }
                }
                Next::Stop => {
                    self.is_done = true;
                    return;
                }
            }
        }
    }

    /// Asks the store to report permits that other clients free, unless it already does.
    fn watch(&mut self) {
        let on_freed = self.on_freed.get_or_insert_with(|| {
            let queue = Arc::clone(&self.queue);
            Arc::new(move |available| queue.step(|state| state.freed_elsewhere(available)))
        });
        if Arc::weak_count(on_freed) == 0 {
            self.queue.store.watch(on_freed);
        }
    }

    /// Waits for the answer to a call. If it is silent, and the breaker refuses others, substitutes
    /// serve waiters in the meantime, also those of the call.
    async fn answer_to<T>(&self, calling: impl Future<Output = Result<T>>) -> Result<T> {
        let mut calling = pin!(calling);
        let queue = &self.queue;
        let patience = hold_up_within(queue.store.response_timeout());
        if let Ok(result) = timeout(patience, &mut calling).await {
            return result;
        }
        loop {
            let now = Instant::now();
            let ask = || queue.step(|state| state.ask_substitutes(self.runtime, now));
            let ask_at = queue.is_refused().then(ask).flatten();
            tokio::select! {
                biased;
                result = &mut calling => return result,
                () = sleep_until(ask_at.unwrap_or(now + patience)) => {}
                () = self.notify.notified() => {}
            }
        }
    }

    /// Makes a call whose waiters have been held up for `held_up`, which it has less time for.
    async fn make(&mut self, call: Arc<AcquireCall>, held_up: Duration) {
        self.call = Some(Arc::clone(&call));
        let sent_at = Instant::now();
        let deadline = self.queue.store.call_deadline();
        let deadline = deadline.checked_sub(held_up).unwrap_or(deadline);
        let all_stay = self.queue.state.lock().all_stay(&call);
        let calling = self.queue.call(&call, deadline);
        let calling = self.queue.guarded(all_stay, calling);
        let result = self.answer_to(calling).await;
        let now = Instant::now();
        self.call = None;
        let (unclaimed, is_reclaimed, gathers) = match result {
            Ok(answer) => {
                let answered = Answered {
                    call: &call,
                    answer: &answer,
                    sent_at,
                    now,
                    own: self.queue.own(),
                    name: self.queue.name(),
                };
                let (rest, gathers) = self
                    .queue
                    .step(|state| (state.answered(&answered), state.gathers));
                let Rest {
                    permits,
                    is_reclaimed,
                } = rest;
                let grant = answer.grant(call.id, permits);
                ((permits > 0).then_some(grant), is_reclaimed, gathers)
            }
            Err(error) => {
                let failed = |state: &mut State| state.failed(&call, &error, now);
                (None, self.queue.step(failed), false)
            }
        };
        // If the call is reclaimed as well, that gives back what another attempt takes later; a
        // grant never goes back twice.
        if let Some(grant) = unclaimed {
            self.queue.give_back(grant);
        }
        if is_reclaimed {
            self.queue.reclaim(call);
        }
        if gathers {
            yield_now().await; // its callers ask again, if they do, before the next step
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.queue.store.driver_ended();
        if self.is_done {
            return;
        }
        // The runtime shuts down.
        let (runtime, call, now) = (self.runtime, self.call.as_ref(), Instant::now());
        let abandoned = self
            .queue
            .step(|state| state.driver_lost(runtime, call, now));
        if let Some(call) = abandoned {
            self.queue.reclaim(call);
        }
    }
}

impl Queue {
    /// The next step of a driver, after the front of the queue has got what is held aside.
    fn next_step<T>(self: &Arc<Self>, next: impl FnOnce(&mut State) -> T) -> T {
        let Some(aside) = self.aside.get() else {
            return self.step(next);
        };
        let mut is_attention_due = false;
        let next = self.step(|state| {
            state.serve_front(Instant::now(), |permits, set_up| {
                let taken = aside.take(permits, set_up)?;
                is_attention_due |= taken.is_attention_due;
                Some(taken.answer.grant(taken.id, permits))
            });
            next(state)
        });
        if is_attention_due {
            Arc::clone(aside).attend(self);
        }
        next
    }
}
