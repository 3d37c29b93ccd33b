//! Answers: JSON, and `application/problem+json` (RFC 9457) for all that is not granted.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use redisson_rate_limiter::{Decision, DecisionSource, Error, JointDecision};
use serde_json::{Value, json};

use crate::joint::{denies, state_limit, state_limits, strictest_first};
use crate::service::{Service, costs_too_much, is_wrong_request, unavailable};

/// An answer, whose header fields state the limits.
#[derive(Debug)]
pub(crate) struct Answer {
    response: Response<Full<Bytes>>,
}

impl Answer {
    /// A request that was granted, by these limits if any apply.
    pub(super) fn granted(joint: Option<&JointDecision>) -> Self {
        let limits = joint.map_or_else(|| json!([]), limits);
        let is_by_failure_policy = joint.is_some_and(JointDecision::is_by_failure_policy);
        let body = json!({
            "granted": true,
            "by_failure_policy": is_by_failure_policy,
            "limits": limits,
        });
        Self::json(StatusCode::OK, "application/json", &body).stating(joint)
    }

    pub(super) fn ok(body: &Value) -> Self {
        Self::json(StatusCode::OK, "application/json", body)
    }

    /// A request that was granted, to a client that reads no body.
    pub(super) fn no_content(joint: Option<&JointDecision>) -> Self {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Self { response }.stating(joint)
    }

    pub(super) fn denied(joint: &JointDecision) -> Self {
        let (name, decision) = joint.deciding();
        let body = match decision.source() {
            DecisionSource::Rule => {
                let detail = format!("the rule `{}` blocks it", name.escape_debug());
                return Self::problem(StatusCode::FORBIDDEN, &detail);
            }
            _ if joint.is_by_failure_policy() => {
                let mut body = reduced_capacity("the store is away");
                body["granted"] = false.into();
                return Self::json(StatusCode::SERVICE_UNAVAILABLE, PROBLEM, &body)
                    .stating(Some(joint))
                    .with_retry();
            }
            _ => {
                let violated = joint.by_limiter().filter(|(_, it)| denies(it));
                let mut body = quota_exceeded();
                body["violated-policies"] = violated.map(|(name, _)| name).collect();
                body["granted"] = false.into();
                body["limits"] = limits(joint);
                body
            }
        };
        Self::json(StatusCode::TOO_MANY_REQUESTS, PROBLEM, &body).stating(Some(joint))
    }

    pub(super) fn failed(error: &Error) -> Self {
        if let Some(why) = unavailable(error) {
            let body = reduced_capacity(why);
            return Self::json(StatusCode::SERVICE_UNAVAILABLE, PROBLEM, &body).with_retry();
        }
        let detail = error.to_string();
        if costs_too_much(error) {
            let mut body = quota_exceeded();
            body["granted"] = false.into();
            body["detail"] = detail.into();
            body["limits"] = json!([]);
            let exceeded = exceeded(error);
            body["violated-policies"] = exceeded.iter().map(|(rule, _)| *rule).collect();
            let mut answer = Self::json(StatusCode::TOO_MANY_REQUESTS, PROBLEM, &body);
            if let Some((rule, Some(limit))) = exceeded {
                state_limit(answer.response.headers_mut(), rule, limit);
            }
            return answer;
        }
        let status = match is_wrong_request(error) {
            true => StatusCode::BAD_REQUEST,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::problem(status, &detail)
    }

    /// A request that was not decided.
    pub(crate) fn problem(status: StatusCode, detail: &str) -> Self {
        let body = json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": detail,
        });
        Self::json(status, PROBLEM, &body)
    }

    /// The methods are separated by commas.
    pub(crate) fn not_allowed(allowed: &'static str) -> Self {
        let detail = format!("allowed here: {allowed}");
        let mut answer = Self::problem(StatusCode::METHOD_NOT_ALLOWED, &detail);
        let allowed = HeaderValue::from_static(allowed);
        answer.response.headers_mut().insert(ALLOW, allowed);
        answer
    }

    pub(super) fn with_challenge(mut self) -> Self {
        let bearer = HeaderValue::from_static("Bearer");
        let headers = self.response.headers_mut();
        headers.insert(WWW_AUTHENTICATE, bearer);
        self
    }

    /// For nginx, which answers 500 to what is neither granted nor forbidden.
    pub(super) fn or_forbidden(mut self) -> Self {
        let status = self.response.status_mut();
        if [StatusCode::TOO_MANY_REQUESTS, StatusCode::BAD_REQUEST].contains(status) {
            *status = StatusCode::FORBIDDEN;
        }
        self
    }

    /// With a time to retry, unless there is one already.
    fn with_retry(mut self) -> Self {
        let headers = self.response.headers_mut();
        headers.entry(RETRY_AFTER).or_insert(RETRY);
        self
    }

    fn json(status: StatusCode, content_type: &'static str, body: &Value) -> Self {
        let mut response = content(content_type, body.to_string());
        *response.status_mut() = status;
        Self { response }
    }

    /// Adds the header fields that state the limits.
    fn stating(mut self, joint: Option<&JointDecision>) -> Self {
        if let Some(joint) = joint {
            state_limits(self.response.headers_mut(), joint);
        }
        self
    }
}

impl From<Answer> for Response<Full<Bytes>> {
    fn from(answer: Answer) -> Self {
        answer.response
    }
}

/// The rule that asks for too much to be granted, and its limit, if that is why.
fn exceeded(error: &Error) -> Option<(&str, Option<u64>)> {
    match error {
        Error::ExceedsLimit { name, limit, .. } => Some((name, Some(*limit))),
        Error::InvalidRule { rule, .. } => Some((rule, None)),
        _ => None,
    }
}

const PROBLEM: &str = "application/problem+json";

/// In seconds: a store that is away is asked again about as often.
const RETRY: HeaderValue = HeaderValue::from_static("1");

fn quota_exceeded() -> Value {
    json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
    })
}

fn reduced_capacity(detail: &str) -> Value {
    json!({
        "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        "title": "Request cannot be satisfied due to temporary server capacity constraints",
        "status": 503,
        "detail": detail,
    })
}

fn limits(joint: &JointDecision) -> Value {
    let limits = strictest_first(joint).into_iter();
    limits
        .map(|(name, decision)| limit(name, decision))
        .collect()
}

fn limit(name: &str, decision: &Decision) -> Value {
    json!({
        "name": name,
        "granted": !denies(decision),
        "limit": decision.limit(),
        "window_ms": millis(decision.window()),
        "remaining": decision.remaining(),
        "available_in_ms": millis(decision.available_in()),
        "reset_ms": millis(decision.reset()),
        "retry_after_ms": decision.retry_after().map(millis),
    })
}

/// The methods of what can only be read.
pub(crate) const READ: &str = "GET, HEAD";

/// Whether a request only reads. The answer to a HEAD is sent without its body.
pub(crate) fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// `/healthz`: the process answers. `/readyz`: it decides requests.
pub(crate) fn health<B>(service: &Service, request: &Request<B>) -> Response<Full<Bytes>> {
    if !is_read(request.method()) {
        return Answer::not_allowed(READ).into();
    }
    if request.uri().path() == "/healthz" || service.is_ready() {
        return content("text/plain; charset=utf-8", "ok\n");
    }
    let mut response = content("text/plain; charset=utf-8", "not ready\n");
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, RETRY);
    response
}

pub(crate) fn content(content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
