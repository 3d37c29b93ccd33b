//! The OpenAPI document, which is generated from the types of the API, and the probes.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use serde::Serialize;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi, ToSchema};

use super::answer::{Denied, Granted, Problem, RETRY, Released, content};
use super::{api, auth_request};
use crate::service::Service;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "rratelimiter serve",
        version = "1",
        description = "Rate limits by the rules of a file. A request has entries, such as user and \
                       path; each rule whose key names some of them applies, and all that apply \
                       decide together: either all are charged, or none. Other paths are answered \
                       with 404 and a problem."
    ),
    paths(
        api::check, api::acquire, api::peek, api::release, auth_request::answer, document,
        healthz, readyz
    ),
    security((), ("token" = [])),
    components(schemas(Granted, Denied, Problem, Released)),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// The decisions of the rules.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "the document has it")]
pub(super) enum Decided {
    /// Granted by all rules that apply, and charged by all.
    #[response(
        status = 200,
        headers(
            (
                "RateLimit" = String,
                description = "What is left, by the name of the rule: \
                               draft-ietf-httpapi-ratelimit-headers."
            ),
            ("RateLimit-Policy" = String, description = "The limits, by the name of the rule.")
        )
    )]
    Granted(Granted),
    /// Denied, and charged by no rule.
    #[response(
        status = 429,
        content_type = "application/problem+json",
        headers(
            (
                "RateLimit" = String,
                description = "What is left, by the name of the rule. Not of a request that is \
                               never granted."
            ),
            ("RateLimit-Policy" = String, description = "The limits, by the name of the rule."),
            (
                "Retry-After" = u64,
                description = "In seconds. Not of a request that is never granted."
            )
        )
    )]
    Denied(Denied),
    /// A rule blocks the request.
    #[response(status = 403, content_type = "application/problem+json")]
    Blocked(Problem),
}

/// The answer to a release.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "the document has it")]
pub(super) enum Given {
    /// The permits were given back.
    #[response(status = 200)]
    Released(Released),
}

/// The reasons why a body is refused.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "the document has it")]
pub(super) enum Wrong {
    /// The body cannot be read, or a limiter cannot decide such a request.
    #[response(status = 400, content_type = "application/problem+json")]
    Unreadable(Problem),
    /// The body did not come in time.
    #[response(status = 408, content_type = "application/problem+json")]
    Late(Problem),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// The body is not application/json.
    #[response(status = 415, content_type = "application/problem+json")]
    OtherType(Problem),
}

/// The reasons why requests are not decided.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "the document has it")]
pub(super) enum Undecided {
    /// A rule is invalid, or something else is stored in its keys.
    #[response(status = 500, content_type = "application/problem+json")]
    Unusable(Problem),
    /// The store is away, or the server is shutting down.
    #[response(
        status = 503,
        content_type = "application/problem+json",
        headers(
            ("RateLimit" = String, description = "What is left, by the name of the rule."),
            ("RateLimit-Policy" = String, description = "The limits, by the name of the rule."),
            ("Retry-After" = u64, description = "In seconds.")
        )
    )]
    Away(Problem),
}

/// The token is missing or wrong.
#[derive(IntoResponses)]
#[response(status = 401, content_type = "application/problem+json")]
#[expect(dead_code, reason = "the document has it")]
pub(super) struct Unauthorized(Problem);

/// The path does not have this method.
#[derive(IntoResponses)]
#[response(
    status = 405,
    content_type = "application/problem+json",
    headers(("Allow" = String, description = "The methods that the path has."))
)]
#[expect(dead_code, reason = "the document has it")]
pub(super) struct OtherMethod(Problem);

/// The head is too large, or has too many fields. The connection ends.
#[derive(IntoResponses)]
#[response(status = 431)]
pub(super) struct LargeHead;

/// A request that is denied or blocked.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the document has it")]
pub(super) enum DeniedOrBlocked {
    Denied(Denied),
    Blocked(Problem),
}

/// This document
#[utoipa::path(
    get,
    path = "/openapi.json",
    responses(
        (status = 200, description = "This document.", body = Object),
        Unauthorized,
        OtherMethod,
        LargeHead
    )
)]
pub(super) async fn document() -> Response {
    static DOCUMENT: LazyLock<String> =
        LazyLock::new(|| Document::openapi().to_json().unwrap_or_default());
    content("application/json", DOCUMENT.as_str())
}

/// Whether the process answers
#[utoipa::path(
    get,
    path = "/healthz",
    security(()),
    responses(
        (status = 200, description = "It is.", body = String, content_type = "text/plain"),
        OtherMethod,
        LargeHead
    )
)]
pub(super) async fn healthz() -> Response {
    content("text/plain; charset=utf-8", "ok\n")
}

/// Whether requests are decided
///
/// They are not while the server is shutting down, or while the store is away and requests fail.
#[utoipa::path(
    get,
    path = "/readyz",
    security(()),
    responses(
        (status = 200, description = "They are.", body = String, content_type = "text/plain"),
        OtherMethod,
        LargeHead,
        (status = 503, description = "They are not.", body = String, content_type = "text/plain",
            headers(("Retry-After" = u64, description = "In seconds.")))
    )
)]
pub(super) async fn readyz(State(service): State<Arc<Service>>) -> Response {
    if service.is_ready() {
        return content("text/plain; charset=utf-8", "ok\n");
    }
    let mut response = content("text/plain; charset=utf-8", "not ready\n");
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, RETRY);
    response
}
