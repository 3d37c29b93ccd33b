//! Limiters whose keys lie in several slots of a cluster, where no call reaches all of them.
//!
//! All are asked first, without a charge, the slots at the same time. Then each slot's limiters
//! decide, in one call, one slot after another, until one denies. The slots that would deny come
//! first, so that a denied request is charged nowhere, and then the slot that could grant the
//! fewest further requests. Thus of many requests at once most are denied by the slot that has
//! least left, before they are charged to a slot that has more left for other requests. Of slots
//! that could grant as many, those whose charges can be given back come first. What was charged
//! before a denial is given back, by the rules of each algorithm: a leaky bucket keeps it. So no
//! limiter ever grants more than its limit.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::decide;
use super::taken::Taken;
use crate::box_future::BoxFuture;
use crate::decision::{Decision, Denied};
use crate::error::{Error, Result};
use crate::fallback::TargetRequest;
use crate::keys::hash_tag;
use crate::limiters::Registry;
use crate::limiters::charge::peek_requests;
use crate::policies::call::Purpose;
use crate::store::Store;

/// The limiters of a decision that lie in one slot.
pub(super) struct Slot {
    requests: Arc<[TargetRequest]>,
    /// Their places in the decision.
    places: Vec<usize>,
    decisions: Vec<Decision>,
}

/// The slots of a decision; `None` if one call reaches all of its limiters.
pub(super) fn slots(store: &dyn Store, requests: &[TargetRequest]) -> Option<Vec<Slot>> {
    if !store.is_cluster() {
        return None;
    }
    let mut slots: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        // All keys of a target are in the slot of the first one.
        let keys = request.target.all_keys();
        let slot = keys.first().map_or("", |first| hash_tag(first));
        match slots.iter_mut().find(|(found, _)| found == slot) {
            Some((_, places)) => places.push(place),
            None => slots.push((slot.to_owned(), vec![place])),
        }
    }
    if slots.len() < 2 {
        return None;
    }
    let slots = slots.into_iter().map(|(_, places)| Slot {
        requests: places
            .iter()
            .map(|&place| requests[place].clone())
            .collect(),
        places,
        decisions: Vec::new(),
    });
    Some(slots.collect())
}

/// The slots of a decision that was refused because its keys lie in several slots, before anything
/// was charged: only the first connection shows that a server is part of a cluster.
pub(super) fn slots_after<T>(
    decided: &Result<T>,
    store: &dyn Store,
    requests: &[TargetRequest],
) -> Option<Vec<Slot>> {
    match decided {
        Err(Error::InvalidName { .. }) => slots(store, requests),
        _ => None,
    }
}

impl Slot {
    fn is_granted(&self) -> bool {
        self.decisions.iter().all(Decision::is_granted)
    }

    /// Whether a charge to one of its limiters cannot be given back.
    fn keeps_charges(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|it| it.target.model.properties().gives_turns)
    }

    /// How many further requests like this one it could grant.
    fn further(&self) -> u64 {
        let each = self.requests.iter().zip(&self.decisions);
        let further = each.map(|(request, it)| it.remaining() / u64::from(request.cost.max(1)));
        further.min().unwrap_or(0)
    }
}

/// Decides a request by limiters in several slots, or says what they would decide.
pub(super) async fn decide_or_peek(
    registry: &Arc<Registry>,
    mut slots: Vec<Slot>,
    purpose: Purpose,
) -> Result<(Vec<Decision>, Taken)> {
    ask(registry, &mut slots).await?;
    let mut taken = Taken::nothing(registry);
    if purpose == Purpose::Peek {
        return Ok((joined(slots), taken));
    }
    slots.sort_by_key(|slot| (slot.is_granted(), slot.further(), slot.keeps_charges()));
    let mut is_denied = false;
    for slot in &mut slots {
        // Each slot that would deny the request decides on it, so that each sets its penalty.
        if is_denied && slot.is_granted() {
            break;
        }
        // If it fails, what was taken is given back in the background.
        let (decisions, of_slot) = decide(registry, &slot.requests).await?;
        slot.decisions = decisions;
        is_denied |= !slot.is_granted();
        taken.add_all(of_slot);
    }
    if is_denied {
        let requests = slots.iter().flat_map(|slot| slot.requests.iter());
        let longest_window = requests.map(|it| it.target.model.quota().window).max();
        taken.give_back(longest_window.unwrap_or_default()).await;
    }
    Ok((joined(slots), taken))
}

/// Asks all slots at the same time what they would decide.
async fn ask(registry: &Registry, slots: &mut [Slot]) -> Result<()> {
    let asking = slots.iter().map(|slot| {
        let Registry {
            store, local_store, ..
        } = registry;
        let asking: BoxFuture<'_, _> = Box::pin(peek_requests(store, local_store, &slot.requests));
        asking
    });
    let mut asking: Vec<_> = asking.collect();
    let mut answers: Vec<_> = asking.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (asking, answer) in asking.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(decisions) = asking.as_mut().poll(context)
            {
                *answer = Some(decisions);
            }
        }
        match answers.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    drop(asking);
    for (slot, answer) in slots.iter_mut().zip(answers.into_iter().flatten()) {
        slot.decisions = answer?;
    }
    Ok(())
}

/// The decisions in the order of the charges. If one denies, those that would grant are not
/// charged.
fn joined(slots: Vec<Slot>) -> Vec<Decision> {
    let is_granted = slots.iter().all(Slot::is_granted);
    let each = slots.into_iter();
    let each = each.flat_map(|slot| slot.places.into_iter().zip(slot.decisions));
    let mut decisions: Vec<_> = each.collect();
    decisions.sort_unstable_by_key(|(place, _)| *place);
    let decisions = decisions.into_iter().map(|(_, decision)| match decision {
        Decision::Granted(granted) if !is_granted => {
            let remaining = granted.remaining + u64::from(granted.grant.permits());
            Decision::Denied(Denied {
                limit: granted.limit,
                window: granted.window,
                remaining: remaining.min(granted.limit),
                reset: granted.reset,
                source: granted.source,
                ..Denied::new(Duration::ZERO)
            })
        }
        decision => decision,
    });
    decisions.collect()
}
