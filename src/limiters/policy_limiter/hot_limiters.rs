//! The leases of an RRateLimiter for each key: those of the keys that are asked for again and
//! again.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::after;
use crate::decision::Decision;
use crate::error::Result;
use crate::leases::{HotKeys, Kept};
use crate::limiters::{Lease, RateLimiter};
use crate::lock::Lock;
use crate::permit::CallId;
use crate::window::{Acquired, SetUp};

/// How many requests a key needs in the time of two leases to be leased. A lease costs two calls of
/// its own, while requests of different keys share a call.
const FEWEST_USES: u64 = 16;

/// The limiters of hot keys, by their names after the name mapper. Their leases end when this is
/// dropped.
pub(super) struct HotLimiters {
    lease: Lease,
    by_name: HotKeys<HotLimiter>,
}

/// The limiter of a hot key; it may have leases while this exists.
struct HotLimiter {
    leased: RateLimiter,
    /// When the key stops being hot, unless another request of it goes to Redis before.
    idle_at: Lock<Instant>,
}

impl HotLimiters {
    pub(super) fn new(lease: Lease) -> Self {
        Self {
            lease,
            by_name: HotKeys::new(lease.longest()),
        }
    }

    /// Extends the settings of a limiter that may be leased by room for its leases.
    pub(super) fn set_up(&self, set_up: Option<SetUp>) -> Option<SetUp> {
        set_up.map(|it| it.with_room_for(self.lease.longest()))
    }

    /// Ends all leases, because the limiters get other settings. The keys stay hot, so that a
    /// request which finds too few permits waits for what the leases give back.
    pub(super) fn end(&self) {
        for hot in self.by_name.all() {
            hot.leased.queue.unguarded.end_leases();
        }
    }

    /// What a lease of the limiter grants.
    #[inline]
    pub(super) fn acquire(
        &self,
        name: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Result<Option<(CallId, Acquired)>> {
        match self.by_name.get(name) {
            Some(hot) => hot.leased.acquire_now(permits, set_up),
            None => Ok(None),
        }
    }

    /// What a lease of the limiter would grant.
    pub(super) fn peek(
        &self,
        name: &str,
        permits: u32,
        set_up: Option<SetUp>,
    ) -> Option<Result<Decision>> {
        let hot = self.by_name.get(name)?;
        hot.leased.queue.peek_leased(permits, set_up)
    }

    /// Notes that a request of this limiter goes to Redis because no lease has its permits.
    pub(super) fn ask(&self, limiter: &RateLimiter, set_up: Option<SetUp>) {
        let interval = set_up.map_or(Duration::MAX, |it| it.settings.quota().window);
        let slice = self.lease.longest().min(interval / 2);
        let idle_at = after(Instant::now(), slice.saturating_mul(2));
        let new = || HotLimiter {
            leased: limiter.clone().leased_from(FEWEST_USES, self.lease),
            idle_at: Lock::new(idle_at),
        };
        if let Some(hot) = self.by_name.ask(limiter.name(), new) {
            *hot.idle_at.lock() = idle_at;
        }
    }
}

impl Kept for HotLimiter {
    fn is_idle(&self, now: Instant) -> bool {
        now >= *self.idle_at.lock() && !self.leased.queue.unguarded.is_leased()
    }
}
