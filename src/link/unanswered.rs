//! The calls that wait for their answers: from when they are sent until their callers are woken, as
//! they are when an answer arrives. Whether a caller polls its call then does not matter.

use std::future::poll_fn;
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

/// A call until its answer, an error or its drop.
struct Waiting {
    of: Arc<Unanswered>,
    is_counted: AtomicBool,
    caller: Lock<Option<Waker>>,
}

impl Unanswered {
    pub(super) fn is_any(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// Waits until a call waits.
    pub(super) async fn first(&self) {
        self.first.notified().await;
    }

    /// What `asking` returns, which waits for an answer. It stays where it is, for it is large.
    pub(super) fn wait_for<F: Future>(
        self: &Arc<Self>,
        mut asking: Pin<&mut F>,
    ) -> impl Future<Output = F::Output> {
        let call = Counted(Arc::new(Waiting {
            of: Arc::clone(self),
            is_counted: AtomicBool::new(false),
            caller: Lock::default(),
        }));
        poll_fn(move |context| call.0.poll(asking.as_mut(), context.waker()))
    }
}

impl Waiting {
    fn poll<F: Future>(self: &Arc<Self>, asking: Pin<&mut F>, caller: &Waker) -> Poll<F::Output> {
        *self.caller.lock() = Some(caller.clone());
        if !self.is_counted.swap(true, Ordering::Relaxed)
            && self.of.calls.fetch_add(1, Ordering::Relaxed) == 0
        {
            self.of.first.notify_one();
        }
        asking.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }

    fn ends(&self) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            self.of.calls.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.ends();
        let caller = self.caller.lock().take();
        if let Some(caller) = caller {
            caller.wake();
        }
    }
}

struct Counted(Arc<Waiting>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.ends();
    }
}
