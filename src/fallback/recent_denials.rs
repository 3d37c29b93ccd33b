//! The denials that a client remembers, by limiter: it keeps the queues that remember one, whether
//! there is a handle on the limiter or not, and only the last [`CAPACITY`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::GuardedQueue;
use crate::lock::Lock;

const CAPACITY: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct RecentDenials(Lock<VecDeque<Kept>>);

#[derive(Debug)]
struct Kept {
    queue: Arc<GuardedQueue>,
    at_most: Duration,
    /// When it was last found to remember one.
    found_at: Instant,
}

impl RecentDenials {
    /// Keeps a queue that remembers a denial for `at_most`.
    pub(crate) fn keep(&self, queue: &Arc<GuardedQueue>, at_most: Duration) {
        if queue.is_kept.swap(true, Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let kept = Kept {
            queue: Arc::clone(queue),
            at_most,
            found_at: now,
        };
        let mut all = self.0.lock();
        let mut dropped = take_outdated(&mut all, now);
        all.push_back(kept);
        if all.len() > CAPACITY {
            dropped.extend(all.pop_front());
        }
        drop(all);
        // Dropping a queue runs foreign code.
        for kept in dropped {
            kept.queue.is_kept.store(false, Ordering::Relaxed);
        }
    }
}

/// Takes those from the front that no longer remember anything; the others there stay for as long
/// again.
fn take_outdated(all: &mut VecDeque<Kept>, now: Instant) -> Vec<Kept> {
    let mut outdated = Vec::new();
    for _ in 0..all.len() {
        if all
            .front()
            .is_none_or(|kept| now.saturating_duration_since(kept.found_at) < kept.at_most)
        {
            break;
        }
        let Some(mut kept) = all.pop_front() else {
            break;
        };
        if kept.queue.remembers(kept.at_most) {
            kept.found_at = now;
            all.push_back(kept);
        } else {
            outdated.push(kept);
        }
    }
    outdated
}
