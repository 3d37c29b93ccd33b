//! Which runtime polls a future.
//!
//! What a future has spawned, and the timers it has set, belong to the runtime that first polled it. If another runtime
//! polls it later, the first may never run again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{self, Handle};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{Error, Result};

/// Resolves to `None` when it is polled on another runtime than the one it was made on. The future is not polled there:
/// its timers belong to the other runtime, and panic once that has shut down.
pub(crate) struct SameRuntime<F> {
    runtime: runtime::Id,
    future: F,
}

impl<F> SameRuntime<F> {
    pub(crate) fn new(future: F) -> Result<Self> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?.id();
        Ok(Self { runtime, future })
    }
}

impl<F: Future + Unpin> Future for SameRuntime<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !is_current(self.runtime) {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.future).poll(context).map(Some)
    }
}

/// What happens to a request on another runtime than its own.
pub(super) enum Moved {
    /// It must be made again.
    AskAgain,
    TimeIsUp,
    NoRuntime,
}

impl Moved {
    /// `None` if the request must be made again.
    pub(super) fn answer<T>(self, may_have_run: impl FnOnce() -> bool) -> Option<Result<T>> {
        match self {
            Self::AskAgain => None,
            Self::TimeIsUp => Some(Err(Error::unanswered(may_have_run()))),
            Self::NoRuntime => Some(Err(Error::NoRuntime)),
        }
    }
}

/// The runtime that a request was made on, and what happens to the request if another one polls it.
pub(super) struct Home {
    runtime: Handle,
    deadline: Instant,
    /// The first poll comes at once, on this runtime. Asking for the current one writes to a count that all threads share.
    is_polled: bool,
    /// Ends a request that cannot be made again, on the runtime that polls it: its own timers belong to the first one.
    timer: Option<SameRuntime<Pin<Box<Sleep>>>>,
}

impl Home {
    pub(super) fn new(runtime: Handle, deadline: Instant) -> Self {
        Self {
            runtime,
            deadline,
            is_polled: false,
            timer: None,
        }
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn is_polled(&self) -> bool {
        self.is_polled
    }

    pub(super) fn is_current(&self) -> bool {
        !self.is_polled || is_current(self.runtime.id())
    }

    /// What happens to a request without an answer.
    pub(super) fn poll(&mut self, is_repeatable: bool, context: &mut Context<'_>) -> Poll<Moved> {
        let is_current = self.is_current();
        self.is_polled = true;
        if is_current {
            return Poll::Pending;
        }
        if is_repeatable {
            return Poll::Ready(Moved::AskAgain);
        }
        loop {
            let timer = match &mut self.timer {
                Some(timer) => timer,
                None if Handle::try_current().is_err() => {
                    return Poll::Ready(Moved::NoRuntime);
                }
                None => {
                    let Ok(timer) = SameRuntime::new(Box::pin(sleep_until(self.deadline))) else {
                        return Poll::Ready(Moved::NoRuntime);
                    };
                    self.timer.insert(timer)
                }
            };
            match Pin::new(timer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(())) => return Poll::Ready(Moved::TimeIsUp),
                // Yet another runtime.
                Poll::Ready(None) => self.timer = None,
            }
        }
    }
}

/// Whether the code runs on this runtime.
fn is_current(runtime: runtime::Id) -> bool {
    Handle::try_current().is_ok_and(|current| current.id() == runtime)
}
