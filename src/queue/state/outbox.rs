//! What a step of the state sends to others: answers to waiters, and notifications of drivers.
//!
//! A step only fills the outbox. It is delivered after the lock is released, because delivering
//! runs wakers: foreign code that may call the queue or panic.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::waiter::Waiter;
use crate::batch::{deliver, drop_sender};
use crate::error::Result;
use crate::grant::Grant;
use crate::store::AcquireCall;
use crate::window::Acquired;

#[derive(Default)]
#[must_use]
pub(in crate::queue) struct Outbox {
    answers: Vec<(oneshot::Sender<Result<Grant>>, Result<Grant>)>,
    drivers: SmallVec<[Arc<Notify>; 1]>,
    /// The caller of a first try, behind which another waiter has joined.
    followed: Option<oneshot::Sender<()>>,
    /// Waiters to be dropped after the step, because that may run their wakers, and code of others
    /// with which they share settings.
    removed: Vec<Waiter>,
}

impl Outbox {
    pub(super) fn answer(&mut self, waiter: Waiter, answer: Result<Grant>) {
        self.answer_to(waiter.answer, answer);
    }

    /// Gives a waiter its part of a call's grant.
    pub(super) fn grant(&mut self, waiter: Waiter, call: &AcquireCall, answer: &Acquired) {
        let grant = answer.grant(call.id, waiter.permits);
        self.answer(waiter, Ok(grant));
    }

    pub(super) fn answer_to(
        &mut self,
        sender: oneshot::Sender<Result<Grant>>,
        answer: Result<Grant>,
    ) {
        self.answers.push((sender, answer));
    }

    pub(super) fn notify<'a>(&mut self, drivers: impl Iterator<Item = &'a Arc<Notify>>) {
        for driver in drivers {
            if !self.drivers.iter().any(|it| Arc::ptr_eq(it, driver)) {
                self.drivers.push(Arc::clone(driver));
            }
        }
    }

    /// Notifies the caller of a first try that another waiter has joined behind it.
    pub(super) fn notify_first_try(&mut self, followed: oneshot::Sender<()>) {
        self.followed = Some(followed);
    }

    /// Drops a waiter that is no longer in the queue. If its caller still waits, it learns that it
    /// has lost its place.
    pub(super) fn remove(&mut self, waiter: Waiter) {
        self.removed.push(waiter);
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self {
            answers,
            drivers,
            followed,
            removed,
        } = self;
        answers.is_empty() && drivers.is_empty() && followed.is_none() && removed.is_empty()
    }

    /// Delivers everything. Returns the grants whose waiters have left since the step.
    #[must_use]
    pub(in crate::queue) fn deliver(self) -> Vec<Grant> {
        for driver in self.drivers {
            driver.notify_one();
        }
        if let Some(followed) = self.followed {
            // If the first try is over, its caller has nothing to learn.
            let _ = deliver(followed, ());
        }
        for waiter in self.removed {
            drop_sender(waiter.answer);
        }
        let answers = self.answers.into_iter();
        let unreceived = answers.filter_map(|(sender, answer)| deliver(sender, answer)?.ok());
        unreceived.collect()
    }
}
