//! `check`, `acquire`, `peek` and `release`.

use std::time::Duration;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode};
use redisson_rate_limiter::{Result, Verdict};
use serde_json::json;
use tokio::time::timeout;

use super::answer::Answer;
use super::asked::Asked;
use crate::service::Service;

/// The largest body that is read.
const LARGEST_BODY: usize = 64 * 1024;

/// Entries that a request may have.
const MOST_ENTRIES: usize = 64;

pub(super) async fn answer(service: &Service, request: Request<Incoming>) -> Answer {
    let operation = request.uri().path().to_owned();
    let asked = match read(service, request).await {
        Ok(asked) => asked,
        Err(refused) => return refused,
    };
    let wait = asked.timeout_ms.map(|it| Duration::from_millis(it.0));
    let part = asked.into_part(service.longest_turn(None));
    let parts = std::slice::from_ref(&part);
    match (&*operation, wait) {
        ("/v1/acquire", Some(wait)) => {
            let wait = wait.min(service.settings.max_wait);
            decided(&service.acquire(part, wait).await)
        }
        ("/v1/acquire", None) => {
            Answer::problem(StatusCode::BAD_REQUEST, "`timeout_ms` is missing")
        }
        (_, Some(_)) => {
            let detail = "`timeout_ms` is for /v1/acquire";
            Answer::problem(StatusCode::BAD_REQUEST, detail)
        }
        ("/v1/peek", None) => decided(&service.peek(parts).await),
        ("/v1/release", None) => match service.release(&part).await {
            Ok(limiters) => Answer::ok(&json!({ "released": limiters })),
            Err(error) => Answer::failed(&error),
        },
        _ => decided(&service.check(parts).await),
    }
}

fn decided(verdict: &Result<Verdict>) -> Answer {
    match verdict {
        Ok(Verdict::Granted(granted)) => Answer::granted(granted.decision()),
        Ok(Verdict::Denied(joint)) => Answer::denied(joint),
        Err(error) => Answer::failed(error),
    }
}

/// The body, read in time and within bounds.
async fn read(service: &Service, request: Request<Incoming>) -> Result<Asked, Answer> {
    let content_type = request.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok());
    let content_type = content_type.and_then(|it| it.split(';').next());
    // A page of another origin cannot send this without being asked first whether it may.
    if !content_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) {
        let detail = "the body must be application/json";
        return Err(Answer::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let body = Limited::new(request.into_body(), LARGEST_BODY).collect();
    let body = match timeout(service.settings.client_timeout, body).await {
        Err(_) => {
            let detail = "the body did not come in time";
            return Err(Answer::problem(StatusCode::REQUEST_TIMEOUT, detail));
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is larger than {LARGEST_BODY} bytes");
            return Err(Answer::problem(StatusCode::PAYLOAD_TOO_LARGE, &detail));
        }
        Ok(Err(error)) => {
            let detail = format!("the body was not read: {error}");
            return Err(Answer::problem(StatusCode::BAD_REQUEST, &detail));
        }
        Ok(Ok(body)) => body.to_bytes(),
    };
    let asked: Asked = serde_json::from_slice(&body)
        .map_err(|error| Answer::problem(StatusCode::BAD_REQUEST, &error.to_string()))?;
    if asked.entries.0.len() > MOST_ENTRIES {
        let detail = format!("`entries` are more than {MOST_ENTRIES}");
        return Err(Answer::problem(StatusCode::BAD_REQUEST, &detail));
    }
    Ok(asked)
}
