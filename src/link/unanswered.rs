//! The calls that wait for their answers: from when they are sent until their callers are woken, as
//! they are when an answer arrives. Whether a caller polls its call then does not matter.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::Notify;

use crate::lock::Lock;

#[derive(Debug, Default)]
pub(super) struct Unanswered {
    calls: AtomicUsize,
    /// A call waits, and none did before.
    first: Notify,
}

/// What wakes a call's caller.
struct Waiting {
    of: Arc<Unanswered>,
    is_counted: AtomicBool,
    caller: Lock<Option<Waker>>,
}

/// A call until its answer, an error or its drop. It is polled where it lies, for it is large.
struct Call<'a, F> {
    waiting: Arc<Waiting>,
    asking: Pin<&'a mut F>,
}

impl Unanswered {
    pub(super) fn is_any(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// Waits until a call waits.
    pub(super) async fn first(&self) {
        self.first.notified().await;
    }

    /// What `asking` returns, which waits for an answer.
    pub(super) fn wait_for<F: Future>(
        self: &Arc<Self>,
        asking: Pin<&mut F>,
    ) -> impl Future<Output = F::Output> {
        Call {
            waiting: Arc::new(Waiting {
                of: Arc::clone(self),
                is_counted: AtomicBool::new(false),
                caller: Lock::default(),
            }),
            asking,
        }
    }
}

impl Waiting {
    fn begin(&self) {
        if !self.is_counted.swap(true, Ordering::Relaxed)
            && self.of.calls.fetch_add(1, Ordering::Relaxed) == 0
        {
            self.of.first.notify_one();
        }
    }

    fn end(&self) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            self.of.calls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.end();
        let caller = self.caller.lock().take();
        if let Some(caller) = caller {
            caller.wake();
        }
    }
}

impl<F: Future> Future for Call<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        *self.waiting.caller.lock() = Some(context.waker().clone());
        self.waiting.begin();
        let waker = Waker::from(Arc::clone(&self.waiting));
        self.asking.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

impl<F> Drop for Call<'_, F> {
    fn drop(&mut self) {
        self.waiting.end();
    }
}
