//! The mutex around state that tasks and threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A mutex whose content is consistent between any two changes, so that a panic leaves it usable. In tests, another
/// thread may run before it is locked ([`interleaving`](crate::interleaving)).
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
