//! Settling: a lease that has ended, or a reservation that was used or dropped, gives back what was
//! not used of it.
//!
//! It is done in the background. While the store is away or refuses writes, it is tried again,
//! until the permits would have come back anyway. Settling twice changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::held::{Ended, UnderWay};
use crate::error::Error;
use crate::escaped::Escaped;
use crate::queue::Queue;
use crate::store::OnDone;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Settles a lease or a reservation in the background. `under_way` counts the call until its first
/// attempt has ended.
pub(crate) fn settle(queue: &Arc<Queue>, ended: Ended, under_way: Option<UnderWay>) {
    let (store, on_done) = (&queue.store, queue.giving_back());
    let queue = Arc::clone(queue);
    store.give_back_in_background(Box::pin(async move {
        let mut settled = try_to_settle(&queue, &ended, on_done).await;
        drop(under_way);
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(missing_for) = settled {
                return missing_for;
            }
            sleep(pause).await;
            settled = try_to_settle(&queue, &ended, queue.giving_back()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }));
}

/// Settles once. Returns for how long the permits are missing; `None` if it must be tried again.
async fn try_to_settle(queue: &Queue, ended: &Ended, on_done: OnDone) -> Option<Duration> {
    let answer = queue.store.settle(&ended.lease, ended.settlement).await;
    let error = match answer {
        Err(error) if !matches!(error, Error::NotInitialized { .. }) => error,
        // If the limiter is gone, it counts nothing.
        _ => {
            on_done();
            return Some(Duration::ZERO);
        }
    };
    // A server that is full, or whose disk is, grants no lease either, so that there are few.
    let may_pass = error.is_unavailable() || matches!(error, Error::Redis { .. });
    let missing_for = ended.back_at.saturating_duration_since(Instant::now());
    if may_pass && !missing_for.is_zero() {
        return None;
    }
    tracing::warn!(
        limiter = %Escaped(queue.name()),
        permits = ended.lease.permits,
        error = %Escaped(&error),
        "the permits of a lease come back only when its window has passed"
    );
    Some(missing_for)
}
