//! The handle on one limiter: it checks what it is given and passes it on.
//!
//! ```layers
//! reservation worker
//! acquire
//! expiry hold leased rate with_rate
//! handle
//! ```

mod acquire;
mod expiry;
mod handle;
mod hold;
mod leased;
mod rate;
mod reservation;
mod with_rate;
mod worker;

use crate::box_future::BoxFuture;
use crate::decision::Decision;
use crate::error::Result;
use crate::grant::Grant;
use crate::limiters::Limiter;
use crate::limiters::limiter::at_once;
pub use handle::RateLimiter;
pub use leased::Lease;
pub use reservation::Reservation;
pub use worker::{Job, Worker};

impl Limiter for RateLimiter {
    fn name(&self) -> &str {
        self.label.as_deref().unwrap_or_else(|| self.name())
    }

    fn check<'a>(&'a self, _key: &'a str, cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(Self::check(self, cost))
    }

    fn check_now(&self, _key: &str, cost: u32) -> Option<Result<Decision>> {
        self.queue.client_store.in_memory()?;
        at_once(Self::check(self, cost))
    }

    fn refund<'a>(&'a self, _key: &'a str, grant: Grant) -> BoxFuture<'a, Result<u32>> {
        Box::pin(Self::refund(self, grant))
    }

    fn refund_in_background(&self, _key: &str, grant: Grant) {
        if let Some(grant) = grant.spend_now() {
            self.queue.give_back(grant);
        }
    }

    fn settle<'a>(&'a self, _key: &'a str, grant: Grant, cost: u32) -> BoxFuture<'a, Result<()>> {
        Box::pin(Self::settle(self, grant, cost))
    }
}
