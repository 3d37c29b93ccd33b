//! Settling: a lease that has ended, or a reservation that was used or dropped, gives back what was
//! not used of it.
//!
//! Nobody waits for it. If the store is away or refuses writes, it is tried again until it takes
//! them, or until the permits would be back in any case: settling twice changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::leases::UnderWay;
use super::shared::Queue;
use crate::error::Error;
use crate::escaped::Escaped;
use crate::grant::Grant;
use crate::store::OnDone;
use crate::window::Settlement;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// A lease that is to be settled.
pub(crate) struct Ended {
    pub(crate) lease: Grant,
    pub(crate) settlement: Settlement,
    /// When its permits are back without this.
    pub(crate) back_at: Instant,
}

impl Queue {
    /// Those who wait for calls under way wait for the first attempt.
    pub(super) fn settle(self: &Arc<Self>, ended: Ended, under_way: Option<UnderWay>) {
        let (queue, on_done) = (Arc::clone(self), self.giving_back());
        self.store.give_back_in_background(Box::pin(async move {
            let mut settled = queue.try_to_settle(&ended, on_done).await;
            drop(under_way);
            let mut pause = FIRST_PAUSE;
            loop {
                if let Some(missing_for) = settled {
                    return missing_for;
                }
                sleep(pause).await;
                settled = queue.try_to_settle(&ended, queue.giving_back()).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }));
    }

    /// Returns for how long its permits are missing; `None` if it is to be tried again.
    async fn try_to_settle(&self, ended: &Ended, on_done: OnDone) -> Option<Duration> {
        let answer = self.store.settle(&ended.lease, ended.settlement).await;
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
            limiter = %Escaped(self.name()),
            permits = ended.lease.permits,
            error = %Escaped(&error),
            "the permits of a lease come back only when its window has passed"
        );
        Some(missing_for)
    }
}
