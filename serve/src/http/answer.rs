//! Answers: JSON, and `application/problem+json` (RFC 9457) for requests that are not granted.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use redisson_rate_limiter::{Decision, DecisionSource, Error, JointDecision};
use serde::Serialize;
use utoipa::ToSchema;

use crate::joint::{denies, state_limit, state_limits, strictest_first};
use crate::service::{costs_too_much, unavailable};

/// A request that was granted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Granted {
    granted: bool,
    /// Whether the failure policy has decided, because the store was away.
    by_failure_policy: bool,
    /// The limits that apply, the strictest first. Empty if no rule applies.
    limits: Vec<Limit>,
}

/// A request that a limit denies.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Denied {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    granted: bool,
    /// Why the request is never granted: it costs too much, or too many rules apply to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<String>,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    /// The limits that apply, the strictest first. Empty if the request is never granted.
    limits: Vec<Limit>,
}

/// One limit after the decision.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Limit {
    /// The name of the rule.
    name: String,
    /// Whether this limit alone would have granted the request.
    granted: bool,
    limit: u64,
    window_ms: u64,
    remaining: u64,
    /// The time until something is available; 0 if something is left.
    available_in_ms: u64,
    /// The time until the whole limit is available again.
    reset_ms: u64,
    #[schema(required)]
    retry_after_ms: Option<u64>,
}

/// The number of limiters to which permits were given back.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Released {
    pub(super) released: usize,
}

/// Why a request was not decided, or is blocked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<String>,
    /// False if the failure policy has denied the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    granted: Option<bool>,
}

/// An answer, whose header fields state the limits.
#[derive(Debug)]
pub(crate) struct Answer(Response);

const PROBLEM: &str = "application/problem+json";

/// The `Retry-After` while the store is away, in seconds: the store is probed about as often.
pub(super) const RETRY: HeaderValue = HeaderValue::from_static("1");

impl Answer {
    /// The answer to a granted request. `joint` has the limits that apply, if any.
    pub(super) fn granted(joint: Option<&JointDecision>) -> Self {
        let body = Granted {
            granted: true,
            by_failure_policy: joint.is_some_and(JointDecision::is_by_failure_policy),
            limits: joint.map(limits).unwrap_or_default(),
        };
        Self::ok(&body).stating(joint)
    }

    pub(super) fn ok(body: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, "application/json", body)
    }

    /// The answer to a granted request, without a body.
    pub(super) fn no_content(joint: Option<&JointDecision>) -> Self {
        Self(StatusCode::NO_CONTENT.into_response()).stating(joint)
    }

    /// The answer to a denied request.
    pub(super) fn denied(joint: &JointDecision) -> Self {
        let (name, decision) = joint.deciding();
        if decision.source() == DecisionSource::Rule {
            let detail = format!("the rule `{}` blocks it", name.escape_debug());
            return Self::problem(StatusCode::FORBIDDEN, &detail);
        }
        if joint.is_by_failure_policy() {
            let problem = Problem {
                granted: Some(false),
                ..reduced_capacity("the store is away")
            };
            return Self::of(&problem).stating(Some(joint)).with_retry();
        }
        let violated = joint.by_limiter().filter(|(_, it)| denies(it));
        let denied = Denied {
            violated_policies: violated.map(|(name, _)| name.to_owned()).collect(),
            limits: limits(joint),
            ..Denied::quota_exceeded()
        };
        Self::json(StatusCode::TOO_MANY_REQUESTS, PROBLEM, &denied).stating(Some(joint))
    }

    pub(super) fn failed(error: &Error) -> Self {
        if let Some(why) = unavailable(error) {
            return Self::of(&reduced_capacity(why)).with_retry();
        }
        let detail = error.to_string();
        if costs_too_much(error) {
            let exceeded = exceeded(error);
            let denied = Denied {
                detail: Some(detail),
                violated_policies: exceeded
                    .iter()
                    .map(|(rule, _)| (*rule).to_owned())
                    .collect(),
                ..Denied::quota_exceeded()
            };
            let mut answer = Self::json(StatusCode::TOO_MANY_REQUESTS, PROBLEM, &denied);
            if let Some((rule, Some(limit))) = exceeded {
                state_limit(answer.0.headers_mut(), rule, limit);
            }
            return answer;
        }
        Self::problem(StatusCode::INTERNAL_SERVER_ERROR, &detail)
    }

    /// The answer to a request that was not decided.
    pub(crate) fn problem(status: StatusCode, detail: &str) -> Self {
        Self::of(&Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: Some(detail.to_owned()),
            granted: None,
        })
    }

    pub(super) fn with_challenge(mut self) -> Self {
        let bearer = HeaderValue::from_static("Bearer");
        self.0.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        self
    }

    /// Turns a 429 into a 403, because nginx answers 500 to any status other than 2xx, 401 and 403.
    pub(super) fn or_forbidden(mut self) -> Self {
        let status = self.0.status_mut();
        if *status == StatusCode::TOO_MANY_REQUESTS {
            *status = StatusCode::FORBIDDEN;
        }
        self
    }

    /// Adds a `Retry-After`, unless there is one already.
    fn with_retry(mut self) -> Self {
        self.0.headers_mut().entry(RETRY_AFTER).or_insert(RETRY);
        self
    }

    fn of(problem: &Problem) -> Self {
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::json(status, PROBLEM, problem)
    }

    fn json(status: StatusCode, content_type: &'static str, body: &impl Serialize) -> Self {
        // Serialization fails only for maps with keys other than strings, which no body has.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut response = content(content_type, body);
        *response.status_mut() = status;
        Self(response)
    }

    /// Adds the header fields that state the limits.
    fn stating(mut self, joint: Option<&JointDecision>) -> Self {
        if let Some(joint) = joint {
            state_limits(self.0.headers_mut(), joint);
        }
        self
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        self.0
    }
}

impl Denied {
    fn quota_exceeded() -> Self {
        Self {
            kind: "https://iana.org/assignments/http-problem-types#quota-exceeded",
            title: "Request cannot be satisfied as assigned quota has been exceeded",
            status: 429,
            granted: false,
            detail: None,
            violated_policies: Vec::new(),
            limits: Vec::new(),
        }
    }
}

/// The rule whose limit the request exceeds, and the limit, if the error states it. `None` if no
/// rule is the cause.
fn exceeded(error: &Error) -> Option<(&str, Option<u64>)> {
    match error {
        Error::ExceedsLimit { name, limit, .. } => Some((name, Some(*limit))),
        Error::InvalidRule { rule, .. } => Some((rule, None)),
        _ => None,
    }
}

fn reduced_capacity(detail: &str) -> Problem {
    Problem {
        kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
        title: "Request cannot be satisfied due to temporary server capacity constraints",
        status: 503,
        detail: Some(detail.to_owned()),
        granted: None,
    }
}

fn limits(joint: &JointDecision) -> Vec<Limit> {
    let limits = strictest_first(joint).into_iter();
    limits
        .map(|(name, decision)| limit(name, decision))
        .collect()
}

fn limit(name: &str, decision: &Decision) -> Limit {
    Limit {
        name: name.to_owned(),
        granted: !denies(decision),
        limit: decision.limit(),
        window_ms: millis(decision.window()),
        remaining: decision.remaining(),
        available_in_ms: millis(decision.available_in()),
        reset_ms: millis(decision.reset()),
        retry_after_ms: decision.retry_after().map(millis),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn content(content_type: &'static str, body: impl Into<Body>) -> Response {
    let fields = [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (fields, body.into()).into_response()
}
