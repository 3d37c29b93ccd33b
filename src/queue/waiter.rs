//! The caller's side of a waiter in the queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::shared::Queue;
use crate::error::{Error, Result};
use crate::grant::Grant;

/// A place in the queue. It resolves to an error if its runtime shuts down, and the queue's driver
/// there with it.
pub(super) struct PlaceInQueue {
    pub(super) queue: Arc<Queue>,
    pub(super) sequence: u64,
    pub(super) receiver: oneshot::Receiver<Result<Grant>>,
}

impl PlaceInQueue {
    /// The answer, if it has arrived.
    pub(super) fn answer_now(&mut self) -> Option<Result<Grant>> {
        self.receiver.try_recv().ok()
    }
}

impl Future for PlaceInQueue {
    type Output = Result<Grant>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(Error::NoRuntime)))
    }
}

impl Drop for PlaceInQueue {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        let receiver = &mut self.receiver;
        self.queue.leave(self.sequence, || {
            receiver.close();
            receiver.try_recv().ok()
        });
    }
}
