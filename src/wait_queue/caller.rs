//! The caller's end of a request: what it awaits, and what happens when it is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Queue;
use crate::decision::{Decision, Grant};
use crate::error::Result;
use crate::model::{Answer, Requests};
use crate::permit::Random;
use crate::store::AcquireCall;

/// A caller's own call. Dropped under way, it goes on by itself and gives back what it was granted.
pub(super) struct LoneCall {
    queue: Arc<Queue>,
    permits: u32,
    random: Random,
    handle: Handle,
    call: Option<Call>,
}

type Call = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

impl LoneCall {
    /// The caller has marked the desk.
    pub(super) fn new(queue: Arc<Queue>, permits: u32) -> Self {
        let acquire = AcquireCall::one(permits);
        let random = acquire.id;
        let call = {
            let queue = Arc::clone(&queue);
            Box::pin(async move { queue.call(&acquire).await })
        };
        Self {
            queue,
            permits,
            random,
            handle: Handle::current(),
            call: Some(call),
        }
    }
}

impl Future for LoneCall {
    type Output = Result<Decision>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = self.call.as_mut() else {
            return Poll::Pending; // polled after it was ready
        };
        let Poll::Ready(result) = call.as_mut().poll(context) else {
            return Poll::Pending;
        };
        self.call = None;
        self.queue.desk().end_lone_call();
        let (random, permits) = (self.random, self.permits);
        Poll::Ready(result.and_then(|answer| self.queue.decision_alone(random, permits, &answer)))
    }
}

impl Drop for LoneCall {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.queue.desk().end_lone_call();
        let (queue, permits, random) = (Arc::clone(&self.queue), self.permits, self.random);
        self.handle.spawn(async move {
            if let Ok(answer) = call.await
                && Requests::one(permits).taken(answer.balance, answer.rate) > 0
            {
                let score = answer.score;
                queue
                    .give_back(Grant {
                        score,
                        random,
                        permits,
                    })
                    .await;
            }
        });
    }
}

/// A caller's end of a request. Resolves to `None` where nobody works on it any more.
pub(super) struct Receiver {
    queue: Arc<Queue>,
    handle: Handle,
    receiver: oneshot::Receiver<Result<Decision>>,
}

impl Receiver {
    pub(super) fn new(queue: Arc<Queue>, receiver: oneshot::Receiver<Result<Decision>>) -> Self {
        Self {
            queue,
            handle: Handle::current(),
            receiver,
        }
    }
}

impl Future for Receiver {
    type Output = Option<Result<Decision>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver)
            .poll(context)
            .map(std::result::Result::ok)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(Decision::Granted { grant, .. })) = self.receiver.try_recv() {
            let queue = Arc::clone(&self.queue);
            self.handle
                .spawn(async move { queue.give_back(grant).await });
        }
    }
}
