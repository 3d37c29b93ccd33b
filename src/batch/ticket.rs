//! A request that waits for a call of the flusher.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Batcher, Calls, FlightKey, Left};
use crate::error::Result;
use crate::same_runtime::Home;

/// The caller's end of an enqueued request. It resolves to `None` if the request must be made
/// again.
pub(super) struct Ticket<'a, C: Calls> {
    pub(super) batcher: &'a Batcher<C>,
    pub(super) flight_key: FlightKey<C>,
    pub(super) home: Home,
    pub(super) number: u64,
    pub(super) receiver: oneshot::Receiver<Result<C::Answer>>,
}

impl<C: Calls> Future for Ticket<'_, C> {
    type Output = Option<Result<C::Answer>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.receiver).poll(context) {
            return Poll::Ready(answer.ok());
        }
        let moved = self.home.poll(C::IS_REPEATABLE, context);
        moved.map(|moved| moved.answer(|| self.may_have_run()))
    }
}

impl<C: Calls> Ticket<'_, C> {
    pub(super) fn may_have_run(&self) -> bool {
        let flights = self.batcher.flights();
        let flight = flights.get(&self.flight_key);
        // Its call has ended or is lost if no flight knows it.
        flight.is_none_or(|flight| flight.may_have_run(self.number))
    }
}

impl<C: Calls> Drop for Ticket<'_, C> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        let batcher = self.batcher;
        // The receiver closes under the lock: a call that is composed now counts it as a caller, or
        // omits it.
        let mut flights = batcher.flights();
        self.receiver.close();
        match self.receiver.try_recv() {
            Ok(answer) => {
                drop(flights);
                if let Ok(answer) = answer {
                    batcher.calls.unclaimed(vec![answer]);
                }
            }
            Err(_) => {
                let flight = flights.get_mut(&self.flight_key);
                let left = flight.map_or(Left::Nothing, |flight| flight.leave(self.number));
                drop(flights);
                match left {
                    Left::Nothing => {}
                    Left::Abandoned(call) => batcher.calls.abandon(&call),
                    Left::Unwatched(call, deadline) => {
                        batcher.calls.abandon_overdue(&call, deadline);
                    }
                }
            }
        }
    }
}
