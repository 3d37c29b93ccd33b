//! What all limiters of a client share: its store, its settings, and one queue for each limiter in
//! use.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use super::RateLimiter;
use crate::client_state::ClientState;
use crate::event::Events;
use crate::fallback::{GuardedQueue, LocalStore, RecentDenials};
use crate::keys::Keys;
use crate::limiter_options::LimiterOptions;
use crate::store::Store;

pub(crate) type NameMapper = Box<dyn Fn(&str) -> String + Send + Sync>;

pub(crate) struct Registry {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client_id: Arc<str>,
    pub(super) name_mapper: Option<NameMapper>,
    pub(crate) options: LimiterOptions,
    /// The queues whose last answer may be asked for again.
    recent: Arc<RecentDenials>,
    /// The shares of limiters that this process grants while the store is unavailable.
    pub(crate) local_store: Arc<LocalStore>,
    pub(crate) state: Arc<ClientState>,
    /// The queues in use, by the names of their limiters. A queue that no limiter holds any more
    /// leaves a dead entry; dead entries are dropped before the map grows.
    queues: RwLock<HashMap<String, Weak<GuardedQueue>>>,
}

impl Registry {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        client_id: Arc<str>,
        name_mapper: Option<NameMapper>,
        options: LimiterOptions,
        events: Events,
    ) -> Self {
        Self {
            store,
            client_id,
            name_mapper,
            options,
            recent: Arc::default(),
            local_store: Arc::new(LocalStore::new()),
            state: Arc::new(ClientState::new(events)),
            queues: RwLock::default(),
        }
    }

    /// Refuses all requests from now on, and ends the waiting of those who wait.
    pub(crate) fn close(&self) {
        self.state.close();
        self.queues_in_use()
            .iter()
            .for_each(|queue| queue.unguarded.close());
        self.store.close();
    }

    fn queues_in_use(&self) -> Vec<Arc<GuardedQueue>> {
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.values().filter_map(Weak::upgrade).collect()
    }

    /// How many callers wait for permits.
    pub(crate) fn waiters(&self) -> usize {
        self.queues_in_use()
            .iter()
            .map(|it| it.unguarded.waiters())
            .sum()
    }

    pub(crate) fn mapped_name<'a>(&self, name: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let name = name.into();
        match &self.name_mapper {
            Some(map) => Cow::Owned(map(&name)),
            None => name,
        }
    }

    /// The limiter of a name that the name mapper has mapped already.
    pub(crate) fn rate_limiter(&self, mapped: &str) -> RateLimiter {
        let queue = self.queue_in_use(mapped);
        let queue = queue.unwrap_or_else(|| self.get_or_create(mapped));
        RateLimiter::new(queue, self.options.clone())
    }

    /// The queue of a name that the name mapper has mapped already, if there is one.
    pub(super) fn queue_in_use(&self, mapped: &str) -> Option<Arc<GuardedQueue>> {
        // The map stays whole whatever panics elsewhere. Requests by key come here each time, so
        // those of a queue in use do not wait for each other.
        let queues = self.queues.read().unwrap_or_else(PoisonError::into_inner);
        queues.get(mapped).and_then(Weak::upgrade)
    }

    fn get_or_create(&self, mapped: &str) -> Arc<GuardedQueue> {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        if queues.len() == queues.capacity() {
            queues.retain(|_, queue| queue.strong_count() > 0);
            let in_use = queues.len();
            queues.reserve(in_use + 1);
        }
        let entry = queues.entry(mapped.to_owned()).or_default();
        if let Some(queue) = entry.upgrade() {
            return queue;
        }
        let keys = Arc::new(Keys::new(mapped, Arc::clone(&self.client_id)));
        let (store, local) = (Arc::clone(&self.store), Arc::clone(&self.local_store));
        let state = Arc::clone(&self.state);
        let queue = GuardedQueue::new(store, local, &self.recent, state, keys);
        let queue = Arc::new(queue);
        *entry = Arc::downgrade(&queue);
        queue
    }
}

/// Prints the client for the handles that belong to it.
impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedissonClient")
            .field("id", &self.client_id)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::store::memory::{MemoryClient, MemoryStore};

    #[test]
    fn handles_of_one_name_share_a_queue_and_unused_names_free_their_memory() {
        let store = MemoryClient::new(&MemoryStore::new(), Clock::server());
        let options = LimiterOptions::default();
        let (store, events) = (Arc::new(store), Events::default());
        let registry = Registry::new(store, "client".into(), None, options, events);
        let kept = registry.rate_limiter("kept");
        for i in 0..10_000 {
            registry.rate_limiter(&i.to_string());
        }
        assert!(registry.queues.read().unwrap().capacity() <= 16);
        assert!(registry.rate_limiter("kept").shares_queue_with(&kept));
    }
}
