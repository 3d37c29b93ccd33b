//! A request that waits: its first try, and its place in the queue.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::bounds::Arrival;
use super::driver::Driver;
use super::first_try::Tried;
use super::leaving::within;
use super::requests::WaitQueue;
use super::shared::Queue;
use super::state::{Availability, ReadSetUp, Waiter, Waits};
use super::substitute::WhileAway;
use super::waiter::PlaceInQueue;
use crate::error::{Error, Result};
use crate::grant::Grant;
use crate::same_runtime::SameRuntime;

impl WaitQueue {
    #[cfg(test)]
    pub(crate) fn take_place(&self) -> Arrival {
        self.arrive(usize::MAX).expect("there is room")
    }

    /// Waits at its place in the queue until the permits are granted, and returns the grant, or
    /// `None` at `until`. `set_up` as for [`check`](Self::check). With `fail_fast`, returns `None`
    /// at once if the permits certainly come later than `until`.
    pub(crate) async fn wait(
        &self,
        arrival: Arrival,
        permits: u32,
        until: Option<Instant>,
        set_up: Option<ReadSetUp>,
        fail_fast: bool,
        while_away: WhileAway,
    ) -> Result<Option<Grant>> {
        let request = Waits {
            permits,
            set_up: set_up.as_ref().and_then(|read| read()),
            until,
        };
        if fail_fast && self.is_hopeless(&request) {
            return Ok(None);
        }
        let started = Instant::now();
        let (mut denied, mut late) = (None, None);
        if arrival.arrived.is_first {
            match self.first_try(&arrival, &request, &while_away).await? {
                Tried::Granted(grant) => return Ok(Some(grant)),
                Tried::TimeIsUp => return Ok(None),
                Tried::Unanswered => {}
                Tried::Late(asking) => late = Some(asking),
                Tried::Denied(known) => {
                    if fail_fast && self.is_hopeless(&request) {
                        return Ok(None);
                    }
                    denied = Some(known);
                }
            }
        }
        let sequence = arrival.arrived.sequence;
        loop {
            let joined = late.as_ref().map_or_else(Instant::now, |_| started);
            if late.is_none() {
                arrival.queue_time.goes_on();
            }
            let waiter = |answer| {
                Waiter::new(permits, set_up.clone(), sequence, answer)
                    .timed(&arrival.queue_time)
                    .joined(joined)
                    .until(until)
                    .while_away(while_away.clone())
            };
            let mut place = self.queue.join(waiter, sequence, denied.take())?;
            let stays = while_away.stays();
            let served = async {
                if let Some(asking) = late.as_mut() {
                    let (queue, place) = (&self.queue, &mut place);
                    let served = queue.late_answer(sequence, stays, asking, place).await;
                    if let Some(served) = served {
                        return served;
                    }
                }
                (&mut place).await
            };
            let waiting = SameRuntime::new(Box::pin(within(until, served)))?.await;
            late = None; // on another runtime it is over
            match waiting {
                Some(Some(answer)) => return answer.map(Some),
                Some(None) => return Ok(None),
                // Another runtime polls the future. Unless it has its answer, it joins again there,
                // at its old place.
                None => {
                    if let Some(answer) = place.answer_now() {
                        return answer.map(Some);
                    }
                }
            }
        }
    }
}

impl Queue {
    /// `waiter` makes a waiter of the sender of its answer.
    fn join(
        self: &Arc<Self>,
        waiter: impl FnOnce(oneshot::Sender<Result<Grant>>) -> Waiter,
        sequence: u64,
        denied: Option<Availability>,
    ) -> Result<PlaceInQueue> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (answer, receiver) = oneshot::channel();
        let waiter = waiter(answer);
        if let Some(substitute) = waiter.substitute() {
            self.substitute.get_or_init(|| Arc::clone(substitute));
        }
        let joined = self.step(|state| {
            let joined = (!state.is_closed).then(|| state.join(waiter, runtime.id(), denied));
            state.end_first_try(sequence); // not before the waiter has joined
            joined
        });
        let new_driver = joined.ok_or(Error::Closed)?;
        if let Some(notify) = new_driver {
            runtime.spawn(Driver::new(Arc::clone(self), runtime.id(), notify).drive());
        }
        Ok(PlaceInQueue::new(Arc::clone(self), sequence, receiver))
    }
}
