//! Bounds on waiting, checked before a caller waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::requests::WaitQueue;
use super::shared::Queue;
use super::state::{Arrived, State, Waits};
use crate::error::{Error, Result};
use crate::event::QueueTime;
use crate::window::SetUp;

/// A caller that waits, from its arrival until it has its answer or leaves. Dropping it makes room
/// for the next one.
pub(crate) struct Arrival {
    queue: Arc<Queue>,
    pub(super) arrived: Arrived,
    pub(super) queue_time: QueueTime,
}

impl Arrival {
    /// Measures by `queue_time` how long the request is in the queue, for its event.
    pub(crate) fn timed(mut self, queue_time: &QueueTime) -> Self {
        self.queue_time = queue_time.clone();
        self
    }
}

impl WaitQueue {
    /// Counts the caller as a waiter that arrives now, unless there are `max` already. A refused
    /// caller is never counted.
    pub(crate) fn arrive(&self, max: usize) -> Result<Arrival> {
        // In an outage the driver asks for the head.
        let aside = self.queue.aside.get();
        let may_try = !self.queue.has_outage() || aside.is_some_and(|it| !it.is_empty());
        let now = Instant::now();
        let arriving = |state: &mut State| state.arrive(max, may_try, now);
        match self.queue.step(arriving) {
            Ok(arrived) => Ok(Arrival {
                queue: Arc::clone(&self.queue),
                arrived,
                queue_time: QueueTime::default(),
            }),
            Err(waiters) => Err(Error::QueueFull {
                name: self.queue.name().to_owned(),
                waiters,
            }),
        }
    }

    /// The number of waiters.
    pub(crate) fn waiters(&self) -> usize {
        self.queue.waiters()
    }

    /// The least time that a request waits, if known.
    pub(crate) fn shortest_wait(&self, permits: u32, set_up: Option<SetUp>) -> Option<Duration> {
        let request = Waits {
            permits,
            set_up,
            until: None,
        };
        self.least_wait(&request)
    }

    /// Whether a request certainly waits longer than until it gives up.
    pub(super) fn is_hopeless(&self, request: &Waits) -> bool {
        let Some(until) = request.until else {
            return false;
        };
        self.least_wait(request)
            .is_some_and(|wait| wait > until.saturating_duration_since(Instant::now()))
    }

    fn least_wait(&self, request: &Waits) -> Option<Duration> {
        let aside = self.queue.aside.get();
        if aside.is_some_and(|it| it.serves(request.permits, request.set_up)) {
            return Some(Duration::ZERO);
        }
        let (denials, changes) = (&self.queue.denials, self.store().changes());
        denials.last(request.set_up, changes, |denial| {
            let state = self.queue.state.lock();
            state.shortest_wait(request, denial, Instant::now())
        })
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.queue.step(|state| state.depart(self.arrived.sequence));
    }
}
