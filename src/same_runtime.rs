//! Which runtime polls a future.
//!
//! What a future has spawned, and the timers it has set, belong to the runtime that first polled
//! it. If another runtime polls it later, the first may never run again.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use tokio::runtime::{self, Handle};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::{Error, Result};

/// Resolves to `None` when it is polled on another runtime than the one it was made on. The future
/// is not polled there: its timers belong to the other runtime, and panic once that has shut down.
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

/// Awaits a future that ends by its deadline, as long as the runtime that first polls it goes on.
/// If another runtime polls it later, the future is given up: at once if it `is_repeatable` there,
/// and otherwise at the deadline.
pub(crate) async fn wherever_polled<F: Future>(
    deadline: Instant,
    is_repeatable: bool,
    future: F,
) -> std::result::Result<F::Output, Moved> {
    let mut future = pin!(future);
    let mut home: Option<Home> = None;
    let polling = poll_fn(|context| {
        if is_repeatable && home.as_ref().is_some_and(|home| !home.is_current()) {
            return Poll::Ready(Err(Moved::AskAgain));
        }
        if let Poll::Ready(answer) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(answer));
        }
        let home = match &mut home {
            Some(home) => home,
            none => match Handle::try_current() {
                Ok(runtime) => none.insert(Home::new(runtime, deadline)),
                Err(_) => return Poll::Ready(Err(Moved::NoRuntime)),
            },
        };
        home.poll(is_repeatable, context).map(Err)
    });
    polling.await
}

/// What happens to a request on another runtime than its own.
pub(crate) enum Moved {
    /// It must be made again.
    AskAgain,
    TimeIsUp,
    NoRuntime,
}

impl Moved {
    /// `None` if the request must be made again.
    pub(crate) fn answer<T>(self, may_have_run: impl FnOnce() -> bool) -> Option<Result<T>> {
        match self {
            Self::AskAgain => None,
            ended => Some(Err(ended.error(may_have_run))),
        }
    }

    /// Why the request has no answer, unless it is made again.
    pub(crate) fn error(self, may_have_run: impl FnOnce() -> bool) -> Error {
        match self {
            Self::AskAgain | Self::TimeIsUp => Error::unanswered(may_have_run()),
            Self::NoRuntime => Error::NoRuntime,
        }
    }
}

/// The runtime that a request was made on, and what happens to the request if another one polls it.
pub(crate) struct Home {
    runtime: Handle,
    deadline: Instant,
    /// The first poll comes at once, on this runtime. Asking for the current one writes to a count
    /// that all threads share.
    is_polled: bool,
    /// Ends a request that cannot be made again, on the runtime that polls it: its own timers
    /// belong to the first one.
    timer: Option<SameRuntime<Pin<Box<Sleep>>>>,
}

impl Home {
    pub(crate) fn new(runtime: Handle, deadline: Instant) -> Self {
        Self {
            runtime,
            deadline,
            is_polled: false,
            timer: None,
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.is_polled
    }

    pub(crate) fn is_current(&self) -> bool {
        !self.is_polled || is_current(self.runtime.id())
    }

    /// What happens to a request without an answer.
    pub(crate) fn poll(&mut self, is_repeatable: bool, context: &mut Context<'_>) -> Poll<Moved> {
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
                None => {
                    let Ok(current) = Handle::try_current() else {
                        return Poll::Ready(Moved::NoRuntime);
                    };
                    self.timer.insert(SameRuntime {
                        runtime: current.id(),
                        future: Box::pin(sleep_until(self.deadline)),
                    })
                }
            };
            match Pin::new(timer).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(())) => return Poll::Ready(Moved::TimeIsUp),
                // The future has moved to another runtime once more.
                Poll::Ready(None) => self.timer = None,
            }
        }
    }
}

/// Whether the code runs on this runtime.
fn is_current(runtime: runtime::Id) -> bool {
    Handle::try_current().is_ok_and(|current| current.id() == runtime)
}
