//! Requests for permits to be used later, which do not wait in the queue.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::leases::Moment;
use super::requests::WaitQueue;
use super::settling::Ended;
use super::shared::Queue;
use crate::clock::after;
use crate::decision::{DecisionSource, check_fits};
use crate::error::{Error, Result};
use crate::event::{Reports, RequestResult};
use crate::grant::Grant;
use crate::lock::Lock;
use crate::store::AcquireCall;
use crate::window::{Ahead, Requests, SetUp, Settlement};

/// Permits that can be used later.
pub(crate) struct Reserved {
    queue: Arc<Queue>,
    /// Its score is the end of the time in which they can be used.
    pub(crate) grant: Grant,
    /// When that time begins: as late as it may be.
    pub(crate) usable_at: Instant,
    /// When it ends: as early as it may be.
    pub(crate) expires_at: Instant,
    /// When its call was about to be sent.
    sent: Moment,
    /// How many ms later the time ends.
    lasts: i64,
}

impl Reserved {
    /// The ms for which they can still be used, rounded down; 0 once that is over, also by the wall
    /// clock, which goes on while the machine is suspended.
    pub(crate) fn left(&self) -> i64 {
        self.sent.left_of(self.lasts, self.queue.moment())
    }

    /// Its permits are used, or given back, in the background.
    pub(crate) fn settle(&mut self, settlement: Settlement) {
        let Self {
            grant, expires_at, ..
        } = self;
        let permits = std::mem::take(&mut grant.permits);
        if permits == 0 {
            return;
        }
        let interval = Duration::from_millis(grant.span.unsigned_abs());
        let ended = Ended {
            lease: Grant::new(grant.score, grant.call_id, permits).with_span(grant.span),
            settlement,
            back_at: *expires_at + interval,
        };
        self.queue.settle(ended, None);
    }

    /// Keeps it until it is taken, dropped, or given back because the client is closed.
    pub(crate) fn until_closed(self) -> Pending {
        let queue = Arc::clone(&self.queue);
        let pending = Arc::new(Lock::new(Some(self)));
        let mut all = queue.pending.lock();
        if all.len() == all.capacity() {
            all.retain(|it| it.strong_count() > 0);
            let kept = all.len();
            all.reserve(kept + 1);
        }
        all.push(Arc::downgrade(&pending));
        drop(all);
        Pending(pending)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.settle(Settlement { used: 0, early: 0 });
    }
}

/// A reservation that somebody waits for.
pub(crate) struct Pending(Arc<Lock<Option<Reserved>>>);

impl Pending {
    /// `None` if it was given back.
    pub(crate) fn take(self) -> Option<Reserved> {
        self.0.lock().take()
    }
}

/// What [`Pending`] leads to.
pub(super) type WeakPending = Weak<Lock<Option<Reserved>>>;

impl Queue {
    /// The client is closed: nobody uses what is reserved.
    pub(super) fn give_back_pending(&self) {
        let all = std::mem::take(&mut *self.pending.lock());
        for pending in all.iter().filter_map(Weak::upgrade) {
            let reserved = pending.lock().take();
            drop(reserved);
        }
    }
}

/// `None` if they become available too late.
impl Reports for Option<Reserved> {
    fn result(&self) -> RequestResult {
        RequestResult::of(self.is_some(), DecisionSource::Store)
    }
}

impl WaitQueue {
    /// Takes permits that become available within so many ms; `None` if they become available
    /// later.
    pub(crate) async fn reserve(
        &self,
        permits: u32,
        within: i64,
        set_up: Option<SetUp>,
    ) -> Result<Option<Reserved>> {
        let queue = &self.queue;
        let deadline = queue.store.call_deadline();
        loop {
            let call = AcquireCall::new(Requests::one(permits)).with_set_up(set_up);
            let call = Arc::new(call.with_ahead(Some(Ahead::Reservation { within })));
            let sent = queue.moment();
            let mut calling = Calling {
                queue,
                call: Some(Arc::clone(&call)),
            };
            let answer = queue.call(&call, deadline).await?;
            let is_granted = call.requests.taken(&answer) > 0;
            if is_granted && answer.found && answer.interval().is_zero() {
                continue; // nothing says any more from when on it can be used: it goes back
            }
            calling.call = None;
            let until_score = millis(answer.until_score);
            let until_usable = until_score.saturating_sub(answer.interval());
            if !is_granted {
                check_fits(queue.name(), permits, answer.rate)?;
                return match until_usable <= millis(within) {
                    true => Err(Error::ExpiresTooSoon {
                        name: queue.name().to_owned(),
                    }),
                    false => Ok(None),
                };
            }
            // It can be used from then on.
            let grant = Grant::new(answer.score, call.id, permits).with_span(answer.interval);
            return Ok(Some(Reserved {
                queue: Arc::clone(queue),
                grant,
                usable_at: after(Instant::now(), until_usable),
                expires_at: after(sent.at, until_score),
                sent,
                lasts: answer.until_score,
            }));
        }
    }
}

/// A call of a caller who may be gone before it is answered: then what it takes goes back.
struct Calling<'a> {
    queue: &'a Arc<Queue>,
    call: Option<Arc<AcquireCall>>,
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.queue.reclaim(call);
        }
    }
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.max(0).unsigned_abs())
}
