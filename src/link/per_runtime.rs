//! One value for each tokio runtime that makes calls.
//!
//! What a call waits for lives on the runtime that the call runs on. So a runtime that is not
//! polled, such as a current-thread runtime between two `block_on`, holds up no other.

use std::future::pending;
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use super::failure::Failure;
use crate::lock::Lock;

/// The values, each dropped with its runtime.
#[derive(Debug)]
pub(crate) struct PerRuntime<T> {
    entries: Arc<Entries<T>>,
}

/// Each call reads them, and takes no lock for it. They change when a runtime makes its first call,
/// and when it ends. A process has few runtimes: to compare their ids takes less time than to hash
/// one.
#[derive(Debug)]
struct Entries<T> {
    all: ArcSwap<Vec<(Id, Arc<Entry<T>>)>>,
    /// Held while they are replaced.
    replacing: Lock<()>,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    /// The task that notices the end of the runtime.
    watch: OnceLock<AbortHandle>,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }
}

impl<T> Entries<T> {
    fn get(&self, id: Id) -> Option<Arc<T>> {
        let all = self.all.load();
        let (_, entry) = all.iter().find(|(of, _)| *of == id)?;
        Some(Arc::clone(&entry.value))
    }

    /// Replaces the entries by a copy that `change` has changed. Old ones are dropped without the
    /// lock.
    fn change<A>(&self, change: impl FnOnce(&mut Vec<(Id, Arc<Entry<T>>)>) -> A) -> A {
        let replacing = self.replacing.lock();
        let mut all = Vec::clone(&self.all.load());
        let answer = change(&mut all);
        let before = self.all.swap(Arc::new(all));
        drop(replacing);
        drop(before);
        answer
    }
}

impl<T: Send + Sync + 'static> PerRuntime<T> {
    pub(crate) fn new() -> Self {
        Self {
            entries: Arc::new(Entries {
                all: ArcSwap::default(),
                replacing: Lock::default(),
            }),
        }
    }

    /// The value of the current runtime, if it has one, or else those of all.
    pub(crate) fn in_use(&self) -> Vec<Arc<T>> {
        let current = Handle::try_current().ok();
        let current = current.and_then(|runtime| self.entries.get(runtime.id()));
        current.map_or_else(|| self.all(), |value| vec![value])
    }

    /// The values of all runtimes.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let all = self.entries.all.load();
        all.iter()
            .map(|(_, entry)| Arc::clone(&entry.value))
            .collect()
    }

    /// The value of the current runtime, which `make` creates if it is missing.
    pub(crate) fn current(&self, make: impl FnOnce() -> T) -> Result<Arc<T>, Failure> {
        let runtime = Handle::try_current().map_err(|_| Failure::NoRuntime)?;
        let id = runtime.id();
        if let Some(value) = self.entries.get(id) {
            return Ok(value);
        }
        let (entry, is_new) = self.entries.change(|all| {
            if let Some((_, entry)) = all.iter().find(|(of, _)| *of == id) {
                return (Arc::clone(entry), false); // another thread of this runtime was faster
            }
            let entry = Arc::new(Entry {
                value: Arc::new(make()),
                watch: OnceLock::new(),
            });
            all.push((id, Arc::clone(&entry)));
            (entry, true)
        });
        if is_new {
            // If the runtime is shutting down, the task is dropped at once, and takes the lock.
            let guard = Presence {
                entries: Arc::downgrade(&self.entries),
                id,
            };
            let task = runtime.spawn(async move {
                let _guard = guard;
                pending::<()>().await;
            });
            let _ = entry.watch.set(task.abort_handle()); // nothing else sets it
        }
        Ok(Arc::clone(&entry.value))
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
            let removed = entries.change(|all| {
                let place = all.iter().position(|(of, _)| *of == self.id)?;
                Some(all.swap_remove(place))
            });
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
        assert_eq!(values.entries.all.load().len(), 1);
        assert_eq!(of(&second, 4), 3);
        let third = runtime();
        of(&third, 5);
        let in_use = |runtime: &Runtime| runtime.block_on(async { values.in_use() }).len();
        assert_eq!([in_use(&third), values.in_use().len()], [1, 2]);
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
