//! Requests that wait: in the queue while the store answers, otherwise as the failure policy says. A waiter keeps its place
//! when it returns to the queue.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::GuardedQueue;
use crate::batch::SameRuntime;
use crate::error::Result;
use crate::failure_policy::FailurePolicy;
use crate::fallback::{Outcome, over_store, recovered};
use crate::handle_options::HandleOptions;
use crate::model::SetUp;
use crate::wait_queue::{IntervalOf, ReadSetUp, within};

/// A waiter, in the queue or outside it.
struct Waiter {
    place: u64,
    permits: u32,
    until: Option<Instant>,
    set_up: Option<ReadSetUp>,
    fail_fast: bool,
    /// Whether it has left the queue for a while.
    has_left: bool,
}

impl Waiter {
    fn settings(&self) -> Option<SetUp> {
        self.set_up.as_ref().and_then(|read| read())
    }
}

impl GuardedQueue {
    /// Like [`WaitQueue::wait`](crate::wait_queue::WaitQueue::wait).
    pub(crate) async fn wait(
        &self,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
        options: &HandleOptions,
    ) -> Result<bool> {
        let policy = options.failure_policy;
        let _admitted = self.queue.admit(options.max_waiters)?;
        let mut waiter = Waiter {
            place: self.queue.take_place(),
            permits,
            until,
            set_up,
            fail_fast: options.fail_fast,
            has_left: false,
        };
        if policy == FailurePolicy::Error || Handle::try_current().is_err() {
            return match self.wait_for_store(&waiter, policy).await? {
                Outcome::Answered(is_granted) => Ok(is_granted),
                Outcome::Unanswered(error) => Err(error),
            };
        }
        loop {
            // Another runtime that polls it has another breaker, and timers of its own.
            let waiting = SameRuntime::new(Box::pin(self.wait_under(policy, &waiter)))?;
            if let Some(is_granted) = waiting.await.transpose()?.flatten() {
                return Ok(is_granted);
            }
            waiter.has_left = true;
        }
    }

    /// Waits for the store, or as the policy says while it is down; `None` once the store may be asked again.
    async fn wait_under(&self, policy: FailurePolicy, waiter: &Waiter) -> Result<Option<bool>> {
        let settings = waiter.settings();
        let outcome = match self.read_settings(settings, policy).await? {
            Outcome::Answered(()) => self.wait_for_store(waiter, policy).await?,
            Outcome::Unanswered(error) => Outcome::Unanswered(error),
        };
        let error = match outcome {
            Outcome::Answered(is_granted) => {
                if is_granted {
                    self.note_granted(waiter.permits, settings, policy);
                }
                return Ok(Some(is_granted));
            }
            Outcome::Unanswered(error) => error,
        };
        self.check_fits(waiter.permits, settings)?;
        let share = match policy {
            FailurePolicy::Error => return Err(error),
            FailurePolicy::Allow => return Ok(Some(true)),
            FailurePolicy::Deny => None,
            FailurePolicy::Local(share) => self.share(share, settings),
        };
        let recovered = recovered(&*self.client_store, self.name());
        let Some(share) = share else {
            let is_back = within(waiter.until, recovered).await.is_some();
            return Ok((!is_back).then_some(false));
        };
        let Waiter {
            place,
            permits,
            until,
            ..
        } = *waiter;
        tokio::select! {
            biased;
            waited = self.local.wait(place, permits, until, share) => waited.map(Some),
            () = recovered => Ok(None),
        }
    }

    async fn wait_for_store(
        &self,
        waiter: &Waiter,
        policy: FailurePolicy,
    ) -> Result<Outcome<bool>> {
        let call = |is_probe| self.wait_in_queue(waiter, is_probe);
        over_store(&*self.client_store, self.name(), policy, call).await
    }

    async fn wait_in_queue(&self, waiter: &Waiter, is_probe: bool) -> Result<bool> {
        let Waiter {
            place,
            permits,
            until,
            ..
        } = *waiter;
        if is_probe {
            // A waiter's call may be made on another runtime, whose breaker it would report to.
            let asking = within(until, self.queue.check(permits, waiter.settings()));
            if let Some(asked) = SameRuntime::new(Box::pin(asking))?.await {
                let Some(decision) = asked else {
                    return Ok(false);
                };
                if decision?.is_granted() {
                    return Ok(true);
                }
            }
        }
        let set_up = waiter.set_up.clone();
        if waiter.has_left {
            return self.queue.wait_again(place, permits, until, set_up).await;
        }
        let interval = |rate| self.interval_of(rate);
        let fail_fast: Option<&IntervalOf<'_>> = waiter.fail_fast.then_some(&interval);
        self.queue
            .wait(place, permits, until, set_up, fail_fast)
            .await
    }

    /// The number of waiters.
    pub(crate) fn waiters(&self) -> usize {
        self.queue.waiters()
    }

    /// The least time that a request for this many permits waits, if known.
    pub(crate) fn estimated_wait(&self, permits: u32, set_up: Option<SetUp>) -> Option<Duration> {
        self.queue
            .shortest_wait(permits, set_up, &|rate| self.interval_of(rate))
    }

    /// The limiter's interval, if this client has set or read it lately, and the limiter still has this rate.
    fn interval_of(&self, rate: u64) -> Option<Duration> {
        let settings = self.local.recent_settings()?;
        let is_of_rate = settings.rate.unsigned_abs() == rate;
        is_of_rate.then(|| Duration::from_millis(settings.interval.unsigned_abs()))
    }
}
