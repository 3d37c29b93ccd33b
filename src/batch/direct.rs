//! A caller's own call.
//!
//! The caller polls it, so it costs no task. If it is dropped in flight, it continues in a task,
//! and its answer is unclaimed; because that task may never run again, [`Calls::abandon`] is called
//! too. A call that cannot be made again also moves into such a task if another runtime polls the
//! caller.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Batcher, CallAnswers, Calls, FlightKey, unanswered};
use crate::box_future::BoxFuture;
use crate::error::{Error, Result};
use crate::same_runtime::Home;

pub(crate) struct DirectCall<C: Calls> {
    batcher: Arc<Batcher<C>>,
    /// The flight in which it is the only call; `None` if it is made beside all others.
    flight_key: Option<FlightKey<C>>,
    home: Home,
    call: C::Call,
    /// `None` once it has answered.
    running: Option<Running<C>>,
    /// Whether it runs in a task.
    is_spawned: bool,
}

type Running<C> = BoxFuture<'static, Result<CallAnswers<C>>>;

impl<C: Calls> DirectCall<C> {
    /// Makes the call when it is polled. The caller has set `has_direct_call` of the flight.
    pub(super) fn new(
        batcher: Arc<Batcher<C>>,
        flight_key: Option<FlightKey<C>>,
        runtime: Handle,
        request: &C::Request,
        deadline: Instant,
    ) -> Self {
        let call = batcher.calls.call(std::iter::once(request));
        let running = Box::pin(batcher.calls.run(call.clone(), deadline));
        Self {
            batcher,
            flight_key,
            home: Home::new(runtime, deadline),
            call,
            running: Some(running),
            is_spawned: false,
        }
    }

    /// Leaves the call to a task of the runtime that it was made on.
    fn spawn(&mut self) {
        if let Some(running) = self.running.take() {
            let (answer, receiver) = oneshot::channel();
            let batcher = Arc::clone(&self.batcher);
            self.home.runtime().spawn(async move {
                // If the caller is gone, so is the receiver.
                if let Err(answers) = answer.send(running.await) {
                    batcher.unclaimed(answers);
                }
            });
            let call = self.call.clone();
            self.running = Some(Box::pin(async move {
                let answer = receiver.await;
                answer.unwrap_or_else(|_| Err(unanswered::<C>(&call)))
            }));
            self.is_spawned = true;
        }
    }

    pub(super) fn may_have_run(&self) -> bool {
        C::may_have_run(&self.call)
    }

    fn end(&self) {
        if let Some(flight_key) = &self.flight_key {
            self.batcher
                .change(flight_key, |flight| flight.has_direct_call = false);
        }
    }
}

impl<C: Calls> Future for DirectCall<C> {
    /// `None` if the request must be made again on the runtime that polls.
    type Output = Option<Result<C::Answer>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.home.is_current() && !self.is_spawned {
            if C::IS_REPEATABLE {
                return Poll::Ready(None);
            }
            self.spawn();
        }
        let Some(running) = self.running.as_mut() else {
            return Poll::Pending; // polled after it was ready
        };
        if let Poll::Ready(result) = running.as_mut().poll(context) {
            self.running = None;
            self.end();
            let answer = result.and_then(|mut answers| match answers.pop() {
                Some(answer) => answer,
                None => Err(Error::Indeterminate { source: None }),
            });
            return Poll::Ready(Some(answer));
        }
        let moved = self.home.poll(C::IS_REPEATABLE, context);
        moved.map(|moved| moved.answer(|| self.may_have_run()))
    }
}

impl<C: Calls> Drop for DirectCall<C> {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        self.end();
        if !self.home.is_polled() {
            return; // nothing was sent
        }
        self.batcher.calls.abandon(&self.call);
        let batcher = Arc::clone(&self.batcher);
        self.home.runtime().spawn(async move {
            batcher.unclaimed(running.await);
        });
    }
}
