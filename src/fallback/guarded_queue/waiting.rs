//! Requests that wait: in the queue, whatever the failure policy. The policy decides how they are
//! served while the store is away.

use std::sync::Arc;

use tokio::time::Instant;

use super::{GuardedQueue, LocalLimiter};
use crate::decision::Decision;
use crate::error::Result;
use crate::event::QueueTime;
use crate::failure_policy::{FailurePolicy, LocalShare};
use crate::grant::Grant;
use crate::limiter_options::LimiterOptions;
use crate::queue::{ReadSetUp, Substitute, Substituted, WhileAway};
use crate::window::SetUp;

impl GuardedQueue {
    /// Waits in the queue until the permits are granted, by the store or in its place by the
    /// failure policy. Returns the grant, or `None` at `until`.
    pub(crate) async fn wait(
        &self,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
        options: &LimiterOptions,
        queue_time: &QueueTime,
    ) -> Result<Option<Grant>> {
        let policy = options.policy();
        self.local.store().note_use(policy);
        let arrival = self
            .unguarded
            .arrive(options.most_waiters())?
            .timed(queue_time);
        let settings = set_up.as_ref().and_then(|read| read());
        let is_decided_by_policy = *policy != FailurePolicy::Error && self.unguarded.is_away();
        if is_decided_by_policy {
            self.check_fits(permits, settings)?;
        }
        let while_away = self.while_away(policy, set_up.clone());
        // The failure policy decides anew, whatever the store's last answer was.
        let fail_fast = options.fails_fast() && !is_decided_by_policy;
        let waiting = self
            .unguarded
            .wait(arrival, permits, until, set_up, fail_fast, while_away);
        if self.must_read_settings(settings, policy) {
            return Box::pin(self.while_reading_settings(waiting)).await;
        }
        waiting.await
    }

    fn while_away(&self, policy: &FailurePolicy, set_up: Option<ReadSetUp>) -> WhileAway {
        let share = match policy {
            FailurePolicy::Error => return WhileAway::Fail,
            FailurePolicy::Wait | FailurePolicy::Deny => return WhileAway::Stay,
            FailurePolicy::Allow => None,
            FailurePolicy::Local(share) => Some(*share),
        };
        WhileAway::Ask(Arc::new(InPlace {
            local: Arc::clone(&self.local),
            share,
            set_up,
        }))
    }
}

/// Serves a waiter in place of the store.
struct InPlace {
    local: Arc<LocalLimiter>,
    /// `None` grants everything.
    share: Option<LocalShare>,
    set_up: Option<ReadSetUp>,
}

impl InPlace {
    /// The share; `None` if the rate is not known yet, or the share never has this many permits.
    fn share_of(&self, share: LocalShare, permits: u32) -> Option<SetUp> {
        let set_up = self.set_up.as_ref().and_then(|read| read());
        let share = share.of(self.local.settings_with(set_up)?);
        (i64::from(permits) <= share.settings.rate).then_some(share)
    }
}

impl Substitute for InPlace {
    fn ask(&self, permits: u32) -> Substituted {
        let Some(share) = self.share else {
            return Substituted::Granted(Grant::of_nothing(permits));
        };
        let Some(share) = self.share_of(share, permits) else {
            return Substituted::Never;
        };
        match self.local.check(permits, share) {
            Ok(Decision::Granted(granted)) => Substituted::Granted(granted.grant),
            Ok(Decision::Denied(denied)) => Substituted::Later(denied.retry_after),
            Err(_) => Substituted::Never,
        }
    }

    fn may_grant(&self, permits: u32) -> bool {
        let share = self.share;
        share.is_none_or(|share| self.share_of(share, permits).is_some())
    }

    fn give_back(&self, grant: &Grant) {
        self.local.give_back(grant);
    }
}
