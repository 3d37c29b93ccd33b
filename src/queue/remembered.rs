//! Requests that the store's last [denial](crate::denials) denies too, and the calls that drop it.

use tokio::time::Instant;

use super::plain::{Checked, PlainRequest};
use super::requests::WaitQueue;
use crate::decision::Decision;
use crate::denials::{Change, Deniable};
use crate::error::Result;
use crate::event::QueueTime;
use crate::window::SetUp;

impl WaitQueue {
    /// Notes that a call of this client that may free permits or change the limiter is about to be
    /// made. Until it is over, no denial is remembered.
    pub(crate) fn change(&self, deadline: Instant) -> Change {
        self.queue.denials.change(deadline)
    }

    /// Notes that a call which this queue does not make is about to give the limiter this set-up.
    /// Returns `None` if it changes nothing.
    pub(crate) fn set_up(&self, set_up: SetUp, deadline: Instant) -> Option<Change> {
        self.queue.denials.set_up(Some(set_up), deadline)
    }

    /// Notes that this many permits were available, by the answer to a call that this queue did not
    /// make.
    pub(crate) fn note_available(&self, available: u64) {
        self.queue.denials.note_available(available);
    }

    /// The denial of a request, if the store's last denial denies it.
    pub(crate) fn remembered(&self, request: &Deniable) -> Option<Decision> {
        self.queue.denials.denial(request, self.store().changes())
    }

    /// Decides at once, without waiting for permits. With `set_up` the same call creates the
    /// limiter, or changes it to these settings.
    #[cfg(test)]
    pub(crate) async fn check(&self, permits: u32, set_up: Option<SetUp>) -> Result<Decision> {
        match self.acquire_now(permits, set_up)? {
            Some((id, answer)) => self.decided(id, permits, &answer),
            None => {
                let queue_time = QueueTime::default();
                let asking = self.check_remembering(permits, set_up, None, &queue_time);
                Ok(asking.await?.decision)
            }
        }
    }

    /// Asks the store for a request that [`remembered`](Self::remembered) does not deny. If it is
    /// probably denied all the same, requests that arrive in the meantime share its answer.
    pub(crate) fn check_remembering(
        &self,
        permits: u32,
        set_up: Option<SetUp>,
        deniable: Option<Deniable>,
        queue_time: &QueueTime,
    ) -> impl Future<Output = Result<Checked>> + use<'_> {
        let would_be_denied = |request: &Deniable| {
            let changes = self.store().changes();
            self.queue.denials.would_deny(request, changes)
        };
        let request = PlainRequest {
            permits,
            set_up,
            deniable,
            is_shared: deniable.as_ref().is_some_and(would_be_denied),
            queue_time: queue_time.clone(),
        };
        async move {
            let calls_aside = || Some(self.queue.aside.get()?.calls());
            let calls = calls_aside();
            let checked = self.plain.ask(&(), &request).await?;
            // Permits may have been taken ahead or given back in the meantime, or are being given
            // back because of this denial.
            if !checked.decision.is_granted()
                && let Some(calls) = match calls {
                    Some(calls) => calls.were_made().then_some(calls),
                    None => calls_aside(),
                }
            {
                let again = async {
                    calls.done().await;
                    self.plain.ask(&(), &request).await
                };
                return Box::pin(again).await;
            }
            Ok(checked)
        }
    }
}
