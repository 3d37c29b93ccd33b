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

/// A key is leased that has this many requests in the time of two leases. A lease costs two calls
/// of its own, while requests of different keys share one.
const FEWEST_USES: u64 = 16;

/// By the limiter's name, after the name mapper. The leases end when it is dropped.
pub(super) struct HotLimiters {
    lease: Lease,
    by_name: HotKeys<HotLimiter>,
}

/// A limiter that may be leased while this lives.
struct HotLimiter {
    leased: RateLimiter,
    /// When it may lose its place, unless it is asked for again.
    idle_at: Lock<Instant>,
}

impl HotLimiters {
    pub(super) fn new(lease: Lease) -> Self {
        Self {
            lease,
            by_name: HotKeys::new(lease.longest()),
        }
    }

    /// The settings that a limiter gets which may be leased.
    pub(super) fn set_up(&self, set_up: Option<SetUp>) -> Option<SetUp> {
        set_up.map(|it| it.with_room_for(self.lease.longest()))
    }

    /// Ends the leases: their limiters get other settings. The limiters stay, so that a request
    /// which finds too few permits waits for what the leases give back.
    pub(super) fn end(&self) {
        for hot in self.by_name.all() {
            hot.leased.queue.unguarded().end_leases();
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

    /// Permits of a limiter are asked for that no lease has.
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
        now >= *self.idle_at.lock() && !self.leased.queue.unguarded().is_leased()
    }
}
