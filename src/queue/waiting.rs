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
        loop {
            let joined = late.as_ref().map_or_else(Instant::now, |_| started);
            if late.is_none() {
                arrival.queue_time.goes_on();
            }
            let sequence = arrival.arrived.sequence;
            let (answer, receiver) = oneshot::channel();
            let waiter = Waiter {
                permits,
                set_up: set_up.clone(),
                runtime: None,
                joined: Some(joined),
                until,
                sequence,
                answer,
                has_left: false,
                while_away: while_away.clone(),
                queue_time: arrival.queue_time.clone(),
            };
            let mut place = self.queue.join(waiter, receiver, denied.take())?;
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
            late = None; // the late call is not awaited on another runtime
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
    /// Puts a waiter at its place in the queue, and starts a driver if its runtime has none.
    /// `denied` is what the denial of its first try says about the next call.
    fn join(
        self: &Arc<Self>,
        waiter: Waiter,
        receiver: oneshot::Receiver<Result<Grant>>,
        denied: Option<Availability>,
    ) -> Result<PlaceInQueue> {
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let sequence = waiter.sequence;
        if let Some(substitute) = waiter.substitute() {
            self.substitute.get_or_init(|| Arc::clone(substitute));
        }
        let new_driver = self.step(|state| {
            let new_driver = (!state.is_closed).then(|| state.join(waiter, runtime.id(), denied));
            state.end_first_try(sequence); // not before the waiter has joined
            new_driver.ok_or(Error::Closed)
        })?;
        if let Some(notify) = new_driver {
            runtime.spawn(Driver::new(Arc::clone(self), runtime.id(), notify).drive());
        }
        Ok(PlaceInQueue {
            queue: Arc::clone(self),
            sequence,
            receiver,
        })
    }
}
