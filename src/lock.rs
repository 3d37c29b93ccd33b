//! The mutex around state that tasks and threads share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex for content that each change leaves consistent, so that it is usable after a panic. In
/// tests, another thread may run before it is locked ([`interleaving`](crate::interleaving)).
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(content: T) -> Self {
        Self(Mutex::new(content))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(test)]
        crate::interleaving::let_others_run();
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of this thread, counted from 0 in the order in which threads first ask: for state
/// that is divided so that threads seldom contend.
#[inline]
pub(crate) fn number_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
