//! The calls of a queue, and what the process learns from their answers.

use std::sync::Arc;

use tokio::time::Instant;

use super::shared::Queue;
use crate::clock::millis;
use crate::denials::{Denial, Sent};
use crate::error::Result;
use crate::store::AcquireCall;
use crate::window::{Acquired, Ahead, Requests, SetUp};

impl Queue {
    /// Makes a call, and notes what its answer says.
    pub(crate) async fn call(
        self: &Arc<Self>,
        call: &AcquireCall,
        deadline: Instant,
    ) -> Result<Acquired> {
        let change = self.denials.set_up(call.set_up, deadline);
        let mut sent = self.sent();
        let answer = self.store.acquire(call, deadline).await?;
        if let Some(change) = change {
            // A call whose requests all exceed the rate changes nothing.
            let set_up = call.set_up.filter(|_| call.requests.any_fits(answer.rate));
            change.gave(set_up, &mut sent);
        }
        // The answer to a reservation does not say what is available.
        if !matches!(call.ahead, Some(Ahead::Reservation { .. })) {
            self.note(&call.requests, call.set_up, &answer, sent);
        }
        let taken = call.requests.taken(&answer);
        if taken > 0 {
            // A reservation is not new to a call that asks for what others took.
            if !matches!(call.ahead, Some(Ahead::Reservation { .. })) {
                self.note_own(taken);
            }
            // A lease's call does not know the settings of the requests that it is for.
            if !matches!(call.ahead, Some(Ahead::Lease(_))) {
                self.report_granted(call, &answer, call.set_up);
            }
        }
        if let Some(aside) = self.aside.get() {
            Arc::clone(aside).answered(self, call, &answer);
        }
        Ok(answer)
    }

    pub(super) fn sent(&self) -> Sent {
        self.denials.sent(self.store.changes())
    }

    /// Notes what an answer means for later requests.
    pub(super) fn note(
        &self,
        requests: &Requests,
        set_up: Option<SetUp>,
        answer: &Acquired,
        sent: Sent,
    ) {
        let aside = self.aside.get();
        let holds_some = aside.is_some_and(|it| it.holds_some());
        match Denial::by_answer(answer, requests, set_up, sent) {
            // While permits are held aside, or a waiter that has left may still be granted some,
            // the answer does not tell what is left.
            Some(denial) if !holds_some && !self.state.lock().is_left() => {
                self.denials.remember(denial);
            }
            _ => {
                let available = answer.available.max(0).unsigned_abs();
                self.denials.note_available(available);
            }
        }
    }

    /// Reports what a call was granted to [`OnGranted`](super::shared::OnGranted). Permits that
    /// were taken ahead of now may be used until the score of their grant.
    pub(crate) fn report_granted(
        &self,
        call: &AcquireCall,
        answer: &Acquired,
        set_up: Option<SetUp>,
    ) {
        let now = Instant::now();
        let ahead = millis(answer.until_score);
        let until = call.ahead.and_then(|_| now.checked_add(ahead));
        // The grants of one call fit a u32.
        let permits = call.requests.taken(answer) as u32;
        (self.on_granted)(permits, until.unwrap_or(now), set_up);
    }
}
