//! One value for each tokio runtime that makes calls.
//!
//! What a call waits for lives on the runtime that the call runs on. So a runtime that is not polled, such as a
//! current-thread runtime between two `block_on`, holds up no other.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use crate::store::redis::failure::Failure;

type Entries<T> = RwLock<HashMap<Id, Entry<T>>>;

/// The values, each dropped with its runtime.
#[derive(Debug)]
pub(crate) struct PerRuntime<T> {
    entries: Arc<Entries<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    /// The task that notices the end of the runtime.
    watch: Arc<OnceLock<AbortHandle>>,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Arc::default(),
        }
    }

    /// The values of all runtimes.
    #[cfg(feature = "cluster")]
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        { entries.values() }
            .map(|entry| Arc::clone(&entry.value))
            .collect()
    }

    /// The value of the current runtime, which `make` creates if it is missing.
    pub(crate) fn current(&self, make: impl FnOnce() -> T) -> Result<Arc<T>, Failure> {
        let runtime = Handle::try_current().map_err(|_| Failure::NoRuntime)?;
        let id = runtime.id();
        // An entry is inserted or removed as a whole, so the map stays consistent if a panic poisons the lock.
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&id) {
            return Ok(Arc::clone(&entry.value));
        }
        drop(entries);
        let (value, watch) = {
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = entries.get(&id) {
                return Ok(Arc::clone(&entry.value)); // another thread of this runtime was faster
            }
            let (value, watch) = (Arc::new(make()), Arc::default());
            let entry = Entry {
                value: Arc::clone(&value),
                watch: Arc::clone(&watch),
            };
            entries.insert(id, entry);
            (value, watch)
        };
        // If the runtime is shutting down, the task is dropped at once, and takes the lock.
        let guard = Presence {
            entries: Arc::downgrade(&self.entries),
            id,
        };
        let task = runtime.spawn(async move {
            let _guard = guard;
            pending::<()>().await;
        });
        let _ = watch.set(task.abort_handle()); // nothing else sets it
        Ok(value)
    }
}

/// Removes the entry of a runtime when its tasks are dropped.
struct Presence<T> {
    entries: Weak<Entries<T>>,
    id: Id,
}

impl<T> Drop for Presence<T> {
    fn drop(&mut self) {
        if let Some(entries) = self.entries.upgrade() {
            let mut entries = entries.write().unwrap_or_else(PoisonError::into_inner);
            let removed = entries.remove(&self.id);
            drop(entries);
            drop(removed); // its tasks end without the lock
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn a_runtime_keeps_its_value_until_it_ends() {
        let values = PerRuntime::new();
        let (first, second) = (runtime(), runtime());
        let of = |runtime: &Runtime, new| {
            let value = runtime.block_on(async { values.current(|| new) });
            *value.unwrap()
        };
        assert_eq!(of(&first, 1), 1);
        assert_eq!(of(&first, 2), 1);
        assert_eq!(of(&second, 3), 3);
        drop(first);
        assert_eq!(values.entries.read().unwrap().len(), 1);
        assert_eq!(of(&second, 4), 3);
    }

    #[test]
    fn there_is_no_value_outside_a_runtime() {
        let values = PerRuntime::new();
        assert!(matches!(values.current(|| 1), Err(Failure::NoRuntime)));
    }

    #[test]
    fn the_values_end_with_their_owner_while_the_runtime_lives_on() {
        let runtime = runtime();
        let values = PerRuntime::new();
        let value = runtime
            .block_on(async { values.current(|| "a value") })
            .unwrap();
        drop(values);
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }
}
