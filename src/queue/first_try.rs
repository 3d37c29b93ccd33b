//! The request of a waiter that finds nobody before it: its *first try*.
//!
//! A waiter that arrives while nobody waits and no call of the queue is in flight asks for itself,
//! beside the plain requests. If permits are available, it needs no driver and no place in the
//! queue. Meanwhile the driver makes no call, so nobody overtakes the waiter, and nobody else makes
//! a first try. Callers that one call has served together ask again together: they make no first
//! try, but share the driver's next call. The steps of the state are in `state/first_try.rs`.
//!
//! A first try ends in one of five ways:
//! - **Granted.** The waiter never joins the queue.
//! - **Denied.** The waiter joins, and the denial says when the driver's call is due. If permits
//!   may have come free since the request was sent, it is due at once.
//! - **Time is up.** The waiter gives up. What the abandoned call takes is given back.
//! - **Unanswered.** The waiter joins, and the driver asks for it: there is an outage, in which the
//!   breaker's probe is the driver's to make; the call has failed, and the waiter stays through
//!   outages; or another runtime polls the future.
//! - **Late.** The waiter joins and keeps its request: the first answer counts.
//!
//! Where the call fails and the waiter does not stay through outages, it gets the error. The call
//! may also be silent, and the runtime of its caller may stall. So a first try holds up the queue
//! for the longest hold-up at most, and two races follow.
//!
//! **The waiter joins, and others join behind it.** It joins once it has been held up for four
//! fifths of that time and another waiter has joined: a waiter without others needs no driver. Its
//! sequence number is the lower one, so its place is before theirs. It has the last fifth to take
//! it, and if the others join only then, a fifth from that moment. If its runtime stalls, the
//! driver asks for the others when the time is over. Its first try ends in the step in which it
//! joins, and not before, so that the driver never finds it in neither place.
//!
//! **A late answer, and the answer of the queue.** The waiter awaits both. If the queue's answer is
//! first, the late one goes back to the store. If the late one is first and grants, the waiter
//! keeps the grant only if nobody waits who came before it: otherwise it would overtake them, and
//! the grant goes back. If it denies, the waiter stays in the queue. Whichever it takes, it leaves
//! the queue, which gives back what the other answer grants.

use std::future::Future;
use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::bounds::Arrival;
use super::leaving::within;
use super::plain::{Checked, PlainRequest};
use super::requests::WaitQueue;
use super::shared::Queue;
use super::state::{Availability, Waits, time_to_join};
use super::substitute::WhileAway;
use super::waiter::PlaceInQueue;
use crate::batch::hold_up_within;
use crate::box_future::BoxFuture;
use crate::decision::{Decision, Denied};
use crate::error::Result;
use crate::grant::Grant;
use crate::same_runtime::SameRuntime;
use crate::window::Requests;

/// How a first try ended.
pub(super) enum Tried<'a> {
    Granted(Grant),
    /// What its denial says about the next call.
    Denied(Availability),
    TimeIsUp,
    /// The waiter joins the queue without an answer.
    Unanswered,
    /// It joins, and the answer may still come.
    Late(Trying<'a>),
}

impl Tried<'_> {
    /// How a first try ended that was answered so. Its call was sent at `sent_at`.
    fn of(answer: Checked, sent_at: Instant) -> Self {
        match answer.decision {
            Decision::Granted(granted) => Self::Granted(granted.grant),
            Decision::Denied(Denied { remaining, .. }) => {
                // Its age counts from the call: the caller may have polled the answer late.
                Self::Denied(Availability::new(remaining, sent_at, answer.wait, sent_at))
            }
        }
    }
}

/// The request of a first try. It resolves to `None` if another runtime polls it.
pub(super) type Trying<'a> = BoxFuture<'a, Result<Option<Checked>>>;

impl WaitQueue {
    /// Asks for a waiter that finds nobody before it.
    pub(super) async fn first_try(
        &self,
        arrival: &Arrival,
        request: &Waits,
        while_away: &WhileAway,
    ) -> Result<Tried<'_>> {
        let &Waits {
            permits, set_up, ..
        } = request;
        let sent = self.queue.sent();
        match self.acquire_now(permits, set_up)? {
            Some((id, answer)) => {
                let decision = self.decided(id, permits, &answer)?;
                if !decision.is_granted() {
                    self.queue
                        .note(&Requests::one(permits), set_up, &answer, sent);
                }
                let wait = answer.wait();
                Ok(Tried::of(Checked { decision, wait }, sent.at))
            }
            // In an outage the driver asks for the head.
            None if self.queue.has_outage() => Ok(Tried::Unanswered),
            None => {
                let called = self.first_call(arrival, request, while_away.stays(), sent.at);
                called.await
            }
        }
    }

    /// Makes the call of a first try, which is sent at `sent_at`.
    async fn first_call(
        &self,
        arrival: &Arrival,
        request: &Waits,
        stays: bool,
        sent_at: Instant,
    ) -> Result<Tried<'_>> {
        let sequence = arrival.arrived.sequence;
        let &Waits {
            permits,
            set_up,
            until,
        } = request;
        let queue = &self.queue;
        let is_bounded = until.is_some() || stays || self.store().unhealthy_breaker().is_some();
        let request = PlainRequest {
            permits,
            set_up,
            deniable: None,
            is_shared: false,
            queue_time: arrival.queue_time.clone(),
        };
        let mut direct = self.plain.direct(&request)?;
        let asked = if is_bounded {
            let asking = async { direct.await.transpose() };
            let mut asking: Trying<'_> = Box::pin(queue.guarded(stays, asking));
            let answer = queue.unless_late(sequence, &mut asking);
            let asked = SameRuntime::new(Box::pin(within(until, answer)))?.await;
            match asked {
                Some(Some(Some(asked))) => asked,
                Some(Some(None)) => return Ok(Tried::Late(asking)),
                Some(None) => return Ok(Tried::TimeIsUp),
                None => Ok(None),
            }
        } else {
            match queue.unless_late(sequence, &mut direct).await {
                Some(answer) => answer.transpose(),
                None => {
                    let asking = async { direct.await.transpose() };
                    return Ok(Tried::Late(Box::pin(asking)));
                }
            }
        };
        match asked {
            Ok(Some(checked)) => Ok(Tried::of(checked, sent_at)),
            // Another runtime polls the future: it waits there.
            Ok(None) => Ok(Tried::Unanswered),
            Err(error) if stays && error.is_unavailable() => {
                queue.step(|state| state.call_failed(Instant::now()));
                Ok(Tried::Unanswered)
            }
            Err(error) => Err(error),
        }
    }
}

impl Queue {
    /// Returns the answer to a first try, or `None` if it takes so long that its caller must join
    /// the queue, in which others wait.
    pub(super) async fn unless_late<T>(
        self: &Arc<Self>,
        sequence: u64,
        mut asking: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        let longest = hold_up_within(self.store.response_timeout());
        let joins_at = Instant::now() + longest - time_to_join(longest);
        tokio::select! {
            biased; // on another runtime it has no answer, and the timer is not polled
            answer = &mut asking => return Some(answer),
            () = sleep_until(joins_at) => {}
        }
        let followed = self.step(|state| state.watch_first_try(sequence));
        if let Some(followed) = followed {
            tokio::select! {
                biased;
                answer = &mut asking => return Some(answer),
                _ = followed => {}
            }
        }
        let now = Instant::now();
        self.step(|state| state.first_try_is_silent(sequence, now));
        None
    }

    /// Returns the answer of the queue, or of a first try that is still in flight, whichever is
    /// first. `None` if the first try ends, and its waiter waits in the queue.
    pub(super) async fn late_answer(
        self: &Arc<Self>,
        sequence: u64,
        stays: bool,
        first_try: &mut Trying<'_>,
        place: &mut PlaceInQueue,
    ) -> Option<Result<Grant>> {
        let checked = tokio::select! {
            biased;
            served = place => return Some(served),
            checked = first_try => checked,
        };
        match checked {
            Ok(checked) => {
                let grant = checked?.decision.into_grant()?;
                if self.state.lock().is_next(sequence) {
                    return Some(Ok(grant));
                }
                self.give_back(grant);
                None
            }
            Err(error) if stays && error.is_unavailable() => None,
            Err(error) => Some(Err(error)),
        }
    }
}
