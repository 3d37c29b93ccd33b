//! Requests for permits to be used later, which do not wait in the queue.

use std::sync::Arc;

use tokio::time::Instant;

use super::lease::Moment;
use super::leased_queue::LeasedQueue;
use super::reserved::Reserved;
use crate::clock::{after, millis};
use crate::decision::check_fits;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::queue::Queue;
use crate::store::AcquireCall;
use crate::window::{Ahead, Requests, SetUp};

impl LeasedQueue {
    /// Takes permits that become available within this many ms; `None` if they become available
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
            let sent = Moment::now(&*queue.store);
            let mut calling = Calling {
                queue,
                call: Some(Arc::clone(&call)),
            };
            let answer = queue.call(&call, deadline).await?;
            let is_granted = call.requests.taken(&answer) > 0;
            if is_granted && answer.found && answer.interval().is_zero() {
                continue; // the settings are gone that say when it can be used: it goes back
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
            // The reservation can be used from that score on.
            let grant = Grant::new(answer.score, call.id, permits).with_span(answer.interval);
            return Ok(Some(Reserved {
                queue: Arc::clone(queue),
                pending: Arc::clone(&self.pending),
                grant,
                usable_at: after(Instant::now(), until_usable),
                expires_at: after(sent.at, until_score),
                sent,
                lasts: answer.until_score,
            }));
        }
    }
}

/// A call in flight. If it is dropped, because its caller is gone, what the call takes goes back.
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
