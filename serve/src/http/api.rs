//! `check`, `acquire`, `peek` and `release`.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use redisson_rate_limiter::{Result, Verdict};

use super::answer::{Answer, Released};
use super::asked::{Asked, AtOnce};
use super::document::{Decided, Given, LargeHead, OtherMethod, Unauthorized, Undecided, Wrong};
use crate::service::Service;

/// Takes permits if they are there
///
/// Returns at once, or when the turn that a leaky bucket gives has come.
#[utoipa::path(
    post,
    path = "/v1/check",
    request_body = Asked,
    responses(Decided, Wrong, Unauthorized, OtherMethod, LargeHead, Undecided)
)]
pub(super) async fn check(State(service): State<Arc<Service>>, AtOnce(part): AtOnce) -> Answer {
    decided(&service.check(slice::from_ref(&part)).await)
}

/// Waits for permits
///
/// Asks again after the time that each denial states, until the request is granted or the next try
/// would come after the timeout. Nothing is kept if the client disconnects.
#[utoipa::path(
    post,
    path = "/v1/acquire",
    request_body = Asked,
    responses(Decided, Wrong, Unauthorized, OtherMethod, LargeHead, Undecided)
)]
pub(super) async fn acquire(State(service): State<Arc<Service>>, asked: Asked) -> Answer {
    let Some(wait) = asked.timeout_ms.map(|it| Duration::from_millis(it.0)) else {
        return Answer::problem(StatusCode::BAD_REQUEST, "`timeout_ms` is missing");
    };
    let part = asked.into_part(service.longest_turn(None));
    let wait = wait.min(service.settings.max_wait);
    decided(&service.acquire(part, wait).await)
}

/// Returns what check would return
///
/// Charges nothing. Rules in shadow mode are not asked.
#[utoipa::path(
    post,
    path = "/v1/peek",
    request_body = Asked,
    responses(Decided, Wrong, Unauthorized, OtherMethod, LargeHead, Undecided)
)]
pub(super) async fn peek(State(service): State<Arc<Service>>, AtOnce(part): AtOnce) -> Answer {
    decided(&service.peek(slice::from_ref(&part)).await)
}

/// Gives permits back
///
/// The permits go to the RRateLimiters whose rules apply: those that were taken first come back.
/// Other algorithms take nothing back.
#[utoipa::path(
    post,
    path = "/v1/release",
    request_body = Asked,
    responses(Given, Wrong, Unauthorized, OtherMethod, LargeHead, Undecided)
)]
pub(super) async fn release(State(service): State<Arc<Service>>, AtOnce(part): AtOnce) -> Answer {
    match service.release(&part).await {
        Ok(released) => Answer::ok(&Released { released }),
        Err(error) => Answer::failed(&error),
    }
}

fn decided(verdict: &Result<Verdict>) -> Answer {
    match verdict {
        Ok(Verdict::Granted(granted)) => Answer::granted(granted.decision()),
        Ok(Verdict::Denied(joint)) => Answer::denied(joint),
        Err(error) => Answer::failed(error),
    }
}
