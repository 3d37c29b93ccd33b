//! The denials that a client remembers, by limiter: it keeps the queues of the last [`CAPACITY`]
//! limiters that were denied, whether there is a handle on the limiter or not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::GuardedQueue;
use crate::lock::Lock;

const CAPACITY: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct RecentDenials(Lock<VecDeque<Arc<GuardedQueue>>>);

impl RecentDenials {
    /// Keeps a queue that remembers a denial.
    pub(super) fn keep(&self, queue: &Arc<GuardedQueue>) {
        if queue.is_kept.load(Ordering::Relaxed) || queue.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut kept = self.0.lock();
        kept.push_back(Arc::clone(queue));
        let first = (kept.len() > CAPACITY).then(|| kept.pop_front()).flatten();
        drop(kept);
        // Not under the lock: dropping a queue runs foreign code.
        if let Some(first) = first {
            first.is_kept.store(false, Ordering::Relaxed);
        }
    }
}
