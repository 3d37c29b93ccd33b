//! The decision that a store's answer means for a request.

use std::time::Duration;

use super::{Decision, DecisionSource, Denied, Granted};
use crate::error::{Error, Result};
use crate::permit::CallId;
use crate::window::{Acquired, Requests};

/// Returns whether the only request of a call was granted.
#[inline]
pub(crate) fn is_granted(name: &str, permits: u32, answer: &Acquired) -> Result<bool> {
    if !answer.found {
        check_fits(name, permits, answer.rate)?;
    }
    Ok(Requests::one(permits).taken(answer) > 0)
}

/// Refuses permits that exceed the rate.
pub(crate) fn check_fits(name: &str, permits: u32, rate: i64) -> Result<()> {
    if i64::from(permits) > rate {
        return Err(Error::ExceedsLimit {
            name: name.to_owned(),
            requested: permits,
            limit: rate as u64,
        });
    }
    Ok(())
}

/// The decision on the only request of a call.
#[inline]
pub(crate) fn decision_alone(
    name: &str,
    id: CallId,
    permits: u32,
    answer: &Acquired,
) -> Result<Decision> {
    let is_granted = is_granted(name, permits, answer)?;
    let taken = if is_granted { i64::from(permits) } else { 0 };
    let left = answer.available - taken;
    decision(name, id, (0, permits), is_granted, left, answer)
}

/// The decision on a request for `permits` of the run at the index `run`. `left` permits remain
/// after it, unless the answer says how many are left now.
#[inline]
pub(crate) fn decision(
    name: &str,
    id: CallId,
    (run, permits): (usize, u32),
    is_granted: bool,
    left: i64,
    answer: &Acquired,
) -> Result<Decision> {
    if !is_granted {
        check_fits(name, permits, answer.rate)?;
    }
    let limit = answer.rate as u64;
    let window = answer.interval();
    let remaining = answer.left_now().unwrap_or(left).max(0) as u64;
    let available_in = Some(match remaining {
        0 => answer.available_in(),
        _ => Duration::ZERO,
    });
    Ok(if is_granted {
        let grant = answer.grant(id, permits);
        Decision::Granted(Granted {
            grant,
            limit,
            window,
            remaining,
            // The permits of this request come back last.
            reset: window,
            delay: Duration::ZERO,
            source: DecisionSource::Store,
            available_in,
        })
    } else {
        Decision::Denied(Denied {
            retry_after: answer.retry_after(run),
            limit,
            window,
            remaining,
            // Permits that this call granted to earlier requests come back last.
            reset: if left < answer.available {
                window
            } else {
                answer.until_all()
            },
            source: DecisionSource::Store,
            available_in,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Details;

    #[test]
    fn the_permits_left_now_take_precedence_over_those_left_by_the_grant() {
        for (left_now, remaining) in [(None, 4), (Some(7), 7), (Some(0), 0)] {
            let mut answer = Acquired::new(0, 10, 5, 1_000, 1_000).with_details(Details {
                left_now,
                ..Details::default()
            });
            answer.found = true;
            let decision = decision_alone("limiter", CallId::default(), 1, &answer).unwrap();
            assert!(decision.is_granted());
            assert_eq!(decision.remaining(), remaining);
        }
    }

    #[test]
    fn permits_granted_earlier_in_the_call_of_a_denied_one_are_back_last() {
        let mut answer = Acquired::new(0, 10, 5, 1_000, 60_000);
        answer.until_all = 7_000;
        for (left, reset) in [(5, 7), (2, 60)] {
            let denied = decision("limiter", CallId::default(), (0, 8), false, left, &answer);
            assert_eq!(denied.unwrap().reset(), Duration::from_secs(reset));
        }
    }
}
