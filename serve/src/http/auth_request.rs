//! nginx's `auth_request`: `/v1/auth-request/DOMAIN?ENTRY=HEADER&…`. The query, written in the
//! configuration of nginx, names the entries of the request and the header fields with their
//! values, so that no client can name an entry.
//!
//! nginx passes a request on at 204, rejects it at 403, and answers 500 to anything else.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use percent_encoding::percent_decode_str;
use redisson_rate_limiter::Verdict;

use super::answer::Answer;
use super::document::{DeniedOrBlocked, LargeHead, Unauthorized, Undecided};
use crate::part::Part;
use crate::service::Service;

const PATH: &str = "/v1/auth-request";

/// For nginx's auth_request
///
/// Each parameter of the query has the name of an entry, and as its value the name of the header
/// field that holds the entry's value. An entry whose field is missing or empty is left out. Any
/// method does. Blocked requests have no Retry-After.
#[utoipa::path(
    get,
    path = "/v1/auth-request/{domain}",
    params(
        ("domain" = String, Path),
        (
            "entries" = Option<std::collections::BTreeMap<String, String>>,
            Query,
            style = Form,
            explode
        )
    ),
    responses(
        (
            status = 204,
            description = "Granted.",
            headers(
                ("RateLimit" = String, description = "What is left, by the name of the rule."),
                ("RateLimit-Policy" = String, description = "The limits, by the name of the rule.")
            )
        ),
        Unauthorized,
        (
            status = 403,
            description = "Denied, or blocked by a rule; or a header field is there several times.",
            body = DeniedOrBlocked,
            content_type = "application/problem+json",
            headers(
                ("RateLimit" = String, description = "What is left, by the name of the rule."),
                ("RateLimit-Policy" = String, description = "The limits, by the name of the rule."),
                ("Retry-After" = u64, description = "In seconds.")
            )
        ),
        LargeHead,
        Undecided
    )
)]
pub(super) async fn answer(State(service): State<Arc<Service>>, request: Request) -> Answer {
    // Decoded here and not by axum, which would refuse a path that is not UTF-8.
    let domain = request.uri().path().strip_prefix(PATH);
    let domain = domain.unwrap_or_default();
    let domain = percent_decode_str(domain.strip_prefix('/').unwrap_or(domain)).decode_utf8_lossy();
    let entries = match entries(&request) {
        Ok(entries) => entries,
        Err(detail) => return Answer::problem(StatusCode::FORBIDDEN, &detail),
    };
    let part = Part {
        domain: domain.into(),
        entries,
        is_descriptor: false,
        is_first: true,
        cost: 1,
        longest_turn: service.longest_turn(None),
    };
    match service.check(std::slice::from_ref(&part)).await {
        Ok(Verdict::Granted(granted)) => Answer::no_content(granted.decision()),
        Ok(Verdict::Denied(joint)) => Answer::denied(&joint).or_forbidden(),
        Err(error) => Answer::failed(&error).or_forbidden(),
    }
}

/// Reads the entries that the query names. A header field that occurs several times is an error,
/// because a client must have added one.
fn entries(request: &Request) -> Result<Vec<(String, String)>, String> {
    let query = request.uri().query().unwrap_or_default();
    let mut entries = Vec::new();
    for (name, header) in form_urlencoded::parse(query.as_bytes()) {
        let values = request.headers().get_all(&*header);
        let mut values = values.iter();
        let value = values.next();
        if values.next().is_some() {
            return Err(format!("the header field {header} is there several times"));
        }
        if let Some(value) = value.filter(|it| !it.is_empty()) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            entries.push((name.into_owned(), value));
        }
    }
    Ok(entries)
}
