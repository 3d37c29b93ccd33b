//! Settling: a lease that has ended, or a reservation that was used or dropped, gives back what was not used of it.
//!
//! Nobody waits for it. If the store is away or refuses writes, it is tried again until it takes them, or until the permits would
//! be back in any case: settling twice changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::leases::UnderWay;
use super::{Queue, WaitQueue};
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

impl WaitQueue {
    /// Settles a lease in the background.
    pub(crate) fn settle(&self, ended: Ended) {
        self.queue.settle(ended, None);
    }
}

impl Queue {
    /// Those who wait for calls under way wait for the first attempt.
    pub(super) fn settle(self: &Arc<Self>, ended: Ended, under_way: Option<UnderWay>) {
        let (queue, on_done) = (Arc::clone(self), self.giving_back());
        self.store.give_back_in_background(Box::pin(async move {
            let mut is_over = queue.try_to_settle(&ended, on_done).await;
            drop(under_way);
            let mut pause = FIRST_PAUSE;
            while !is_over {
                sleep(pause).await;
                is_over = queue.try_to_settle(&ended, queue.giving_back()).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }));
    }

    /// Returns whether there is nothing more to try.
    async fn try_to_settle(&self, ended: &Ended, on_done: OnDone) -> bool {
        let answer = self.store.settle(&ended.lease, ended.settlement).await;
        let error = match answer {
            Err(error) if !matches!(error, Error::NotInitialized { .. }) => error,
            // If the limiter is gone, it counts nothing.
            _ => {
                on_done();
                return true;
            }
        };
        // A server that is full, or whose disk is, grants no lease either, so that there are few.
        let may_pass = error.is_unavailable() || matches!(error, Error::Redis { .. });
        let is_over = !may_pass || Instant::now() >= ended.back_at;
        if is_over {
            tracing::warn!(
                limiter = %Escaped(self.name()),
                permits = ended.lease.permits,
                error = %Escaped(&error),
                "the permits of a lease come back only when its window has passed"
            );
        }
        is_over
    }
}
