//! The calls that wait for their answers: from when they are sent until their callers are woken, as
//! they are when an answer arrives. Whether a caller polls its call then does not matter.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;

use crate::lock::Lock;

#[derive(Debug, Default)]
pub(super) struct Unanswered {
    calls: AtomicUsize,
    /// Notified when a call begins to wait and no other waits.
    first: Notify,
}

/// What wakes a call's caller.
struct Waiting {
    of: Arc<Unanswered>,
    /// What to wake; `None` while the call is not counted.
    caller: Lock<Option<Waker>>,
}

/// Ends the wait when its call is dropped.
struct Guard(Arc<Waiting>);

impl Unanswered {
    pub(super) fn is_any(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }

    /// Waits until a call begins to wait and no other waits.
    pub(super) async fn first(&self) {
        self.first.notified().await;
    }

    /// Awaits `asking`, and counts it as a call without an answer until it is woken, ends or is
    /// dropped. It is large, and so is polled where it is.
    pub(super) async fn wait_for<F: Future>(
        self: &Arc<Self>,
        mut asking: Pin<&mut F>,
    ) -> F::Output {
        let waiting = Arc::new(Waiting {
            of: Arc::clone(self),
            caller: Lock::default(),
        });
        let waker = Waker::from(Arc::clone(&waiting));
        let guard = Guard(waiting);
        poll_fn(|context| {
            guard.0.begin(context.waker());
            asking.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

impl Waiting {
    fn begin(&self, caller: &Waker) {
        // A waker is foreign code: none is cloned or dropped under the lock.
        let caller = caller.clone();
        // Counted under the lock, so that its end is not counted before it.
        let mut waiting = self.caller.lock();
        let before = waiting.replace(caller);
        let is_first = before.is_none() && self.of.calls.fetch_add(1, Ordering::Relaxed) == 0;
        drop(waiting);
        drop(before);
        if is_first {
            self.of.first.notify_one();
        }
    }

    fn end(&self) -> Option<Waker> {
        let caller = self.caller.lock().take();
        if caller.is_some() {
            self.of.calls.fetch_sub(1, Ordering::Relaxed);
        }
        caller
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        if let Some(caller) = self.end() {
            caller.wake();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A caller's waker that wakes the call as it is dropped.
    struct WakesWhenDropped(Arc<Lock<Option<Waker>>>);

    impl Wake for WakesWhenDropped {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for WakesWhenDropped {
        fn drop(&mut self) {
            let call = self.0.lock().take();
            call.unwrap().wake();
        }
    }

    #[test]
    fn no_waker_is_dropped_under_the_lock() {
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let unanswered = Arc::new(Unanswered::default());
            let call = Arc::<Lock<Option<Waker>>>::default();
            let mut asking = Box::pin(poll_fn(|context| {
                *call.lock() = Some(context.waker().clone());
                Poll::<()>::Pending
            }));
            let mut waiting = Box::pin(unanswered.wait_for(asking.as_mut()));
            for _ in 0..2 {
                let caller = Waker::from(Arc::new(WakesWhenDropped(Arc::clone(&call))));
                let _ = waiting.as_mut().poll(&mut Context::from_waker(&caller));
            }
            drop(waiting);
            done.send(unanswered.is_any()).unwrap();
        });
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(false));
    }
}
