//! The caller's side of a waiter: its first try, and its place in the queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::state::time_to_join;
use super::{Asking, Shared};
use crate::batch::longest_hold_up;
use crate::error::{Error, Result};
use crate::grant::Grant;

impl Shared {
    /// The answer to a first try, or `None` if that takes so long that its caller is to join the queue, in which others wait.
    pub(super) async fn unless_late<T>(
        self: &Arc<Self>,
        sequence: u64,
        mut asking: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        let longest = longest_hold_up(self.store.response_timeout());
        let joins_at = Instant::now() + longest - time_to_join(longest);
        tokio::select! {
            biased; // on another runtime it has no answer, and the timer is not polled
            answer = &mut asking => return Some(answer),
            () = sleep_until(joins_at) => {}
        }
        let followed = self.step(|state| state.watch_first_try(sequence));
        if let Some(followed) = followed {
            tokio::select! {
                biased;
                answer = &mut asking => return Some(answer),
                _ = followed => {}
            }
        }
        let now = Instant::now();
        self.step(|state| state.first_try_is_silent(sequence, now));
        None
    }

    /// The answer of the queue or of a first try that is not over, whichever is first. `None` if the first try leaves its
    /// waiter to the queue.
    pub(super) async fn late_answer(
        self: &Arc<Self>,
        sequence: u64,
        stays: bool,
        first_try: &mut Asking<'_>,
        ticket: &mut Ticket,
    ) -> Option<Result<Grant>> {
        let checked = tokio::select! {
            biased;
            served = ticket => return Some(served),
            checked = first_try => checked,
        };
        match checked {
            Ok(checked) => {
                let checked = checked?;
                if let Some(heard) = checked.heard {
                    self.note(*heard);
                }
                let grant = checked.decision.into_grant()?;
                if self.state.lock().is_next(sequence) {
                    return Some(Ok(grant));
                }
                self.give_back(grant);
                None
            }
            Err(error) if stays && error.is_unavailable() => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// A place in the queue. It resolves to an error if its runtime shuts down, and the queue's driver there with it.
pub(super) struct Ticket {
    shared: Arc<Shared>,
    sequence: u64,
    receiver: oneshot::Receiver<Result<Grant>>,
}

impl Ticket {
    pub(super) fn new(
        shared: Arc<Shared>,
        sequence: u64,
        receiver: oneshot::Receiver<Result<Grant>>,
    ) -> Self {
        Self {
            shared,
            sequence,
            receiver,
        }
    }

    /// The answer, if it has arrived.
    pub(super) fn answer_now(&mut self) -> Option<Result<Grant>> {
        self.receiver.try_recv().ok()
    }
}

impl Future for Ticket {
    type Output = Result<Grant>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(Error::NoRuntime)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        let receiver = &mut self.receiver;
        self.shared.leave(self.sequence, || {
            receiver.close();
            receiver.try_recv().ok()
        });
    }
}
