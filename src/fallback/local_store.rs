//! The hidden store of a client: its shares of all limiters, which decide in this process while the
//! store is down.
//!
//! A share's window is the one place where grants count toward it, both the store's and those made
//! in its place: what the store grants to this client is counted there at once, and what is granted
//! in its place is taken from there.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::failure_policy::{FailurePolicy, LocalShare};
use crate::store::memory::{MemoryClient, MemoryStore};
use crate::window::SetUp;

/// How often the memory of expired shares is given back, whether there are requests or not.
const SHRINK_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct LocalStore {
    memory: MemoryClient,
    /// The number of clients in the share that was last used; 0 while none was.
    clients: AtomicU32,
    /// Whether a task gives memory back.
    is_shrinking: AtomicBool,
}

impl LocalStore {
    pub(crate) fn new() -> Self {
        Self {
            memory: MemoryClient::new(&MemoryStore::new(), Clock::server()),
            clients: AtomicU32::new(0),
            is_shrinking: AtomicBool::new(false),
        }
    }

    pub(super) fn memory(&self) -> &MemoryClient {
        &self.memory
    }

    /// Notes that a request under this policy is about to be made.
    pub(super) fn note_use(&self, policy: &FailurePolicy) {
        if let FailurePolicy::Local(share) = policy
            && share.clients().get() != self.clients.load(Ordering::Relaxed)
        {
            self.clients.store(share.clients().get(), Ordering::Relaxed);
        }
    }

    /// The share that a grant of the store counts toward, under whatever policy it is made, once
    /// this client uses a share: limiters are shared by handles.
    pub(super) fn share(&self) -> Option<LocalShare> {
        let clients = NonZeroU32::new(self.clients.load(Ordering::Relaxed));
        clients.map(LocalShare::one_of)
    }

    /// Counts permits that the store granted, and that may be used until `until`, toward this
    /// client's share, unless they are back by now.
    pub(super) fn count(
        self: &Arc<Self>,
        name: &str,
        client_id: &str,
        share: SetUp,
        permits: u32,
        until: Instant,
    ) {
        let now = Instant::now();
        let interval = share.settings.interval;
        let longest = Duration::from_millis(interval.unsigned_abs());
        let ago = now.saturating_duration_since(until);
        if ago < longest {
            // The share itself expires an interval from now.
            let ahead = until.saturating_duration_since(now).min(longest);
            self.memory
                .count(name, client_id, share, permits, ago, ahead);
            self.start_shrinking();
        }
    }

    /// Starts the task that gives back the memory of shares that have expired, if none runs: there
    /// may be no more requests.
    pub(super) fn start_shrinking(self: &Arc<Self>) {
        if self.is_shrinking.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.is_shrinking.swap(true, Ordering::Relaxed) {
            let shrinking = Shrinking(Arc::downgrade(self));
            runtime.spawn(shrinking.run());
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.memory.held()
    }
}

/// The task that gives back memory, as long as the client lives. If its runtime shuts down, the
/// next use of a share starts another one.
struct Shrinking(Weak<LocalStore>);

impl Shrinking {
    async fn run(self) {
        loop {
            sleep(SHRINK_INTERVAL).await;
            let Some(local) = self.0.upgrade() else {
                return;
            };
            local.memory.shrink_in_parts().await;
        }
    }
}

impl Drop for Shrinking {
    fn drop(&mut self) {
        if let Some(local) = self.0.upgrade() {
            local.is_shrinking.store(false, Ordering::Relaxed);
        }
    }
}
