//! nginx's `auth_request`: `/v1/auth-request/DOMAIN?ENTRY=HEADER&…`. The query, which the
//! configuration of nginx has, says which entries the request has, and which header fields hold
//! their values, so that no client can name an entry.
//!
//! nginx passes a request on at 204, rejects it at 403, and answers 500 to anything else.

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use percent_encoding::percent_decode_str;
use redisson_rate_limiter::Verdict;

use super::answer::Answer;
use crate::part::Part;
use crate::service::Service;

pub(super) const PATH: &str = "/v1/auth-request";

pub(super) async fn answer(service: &Service, request: Request<Incoming>) -> Answer {
    let domain = &request.uri().path()[PATH.len()..];
    let domain = match domain.strip_prefix('/') {
        Some(domain) => percent_decode_str(domain).decode_utf8_lossy(),
        None if domain.is_empty() => domain.into(),
        None => {
            let detail = format!("the path is {PATH}/DOMAIN");
            return Answer::problem(StatusCode::NOT_FOUND, &detail);
        }
    };
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

/// The entries that the query names. A header field that is there several times is the client's
/// work.
fn entries(request: &Request<Incoming>) -> Result<Vec<(String, String)>, String> {
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
