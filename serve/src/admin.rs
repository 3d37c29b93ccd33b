//! The routes of the admin address: the status page and `/metrics`. They change nothing.

mod status;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tower_http::set_header::SetResponseHeaderLayer;

use super::http::{Answer, content, missing, other_method, probes};
use super::service::Service;

const PAGE: &str = include_str!("admin/page.html");
const SCRIPT: &str = include_str!("admin/page.js");
const STYLE: &str = include_str!("admin/page.css");

/// The content security policy: the page loads nothing from other origins, and only its own script
/// runs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

pub(super) fn routes(service: &Arc<Service>) -> Router {
    let with = |name: HeaderName, value| {
        SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value))
    };
    Router::new()
        .route("/", get(async || content("text/html; charset=utf-8", PAGE)))
        .route(
            "/page.js",
            get(async || content("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route(
            "/page.css",
            get(async || content("text/css; charset=utf-8", STYLE)),
        )
        .route("/status.json", get(status_json))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(other_method)
        .fallback(missing)
        .merge(probes())
        .layer(from_fn_with_state(Arc::clone(service), from_here))
        .layer(with(CONTENT_SECURITY_POLICY, POLICY))
        .layer(with(X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(with(X_FRAME_OPTIONS, "DENY"))
        .layer(with(REFERRER_POLICY, "no-referrer"))
        .with_state(Arc::clone(service))
}

async fn status_json(State(service): State<Arc<Service>>) -> Response {
    content("application/json", status::status(&service).to_string())
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    service.metrics.sample(&service.client);
    content("text/plain; version=0.0.4", service.prometheus.render())
}

/// Refuses requests with a foreign host name if the admin address is local.
async fn from_here(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let is_local = (service.settings.admin.0).is_some_and(|it| it.ip().is_loopback());
    if is_local && !is_numeric_or_localhost(request.headers()) {
        let detail = "by an address or as localhost only";
        return Answer::problem(StatusCode::MISDIRECTED_REQUEST, detail).into_response();
    }
    next.run(request).await
}

/// Whether the field `Host` is an address or `localhost`. Any other name may belong to a foreign
/// page whose name resolves to this address (DNS rebinding), so that its script reads the status.
fn is_numeric_or_localhost(headers: &HeaderMap) -> bool {
    let Some(Ok(host)) = headers.get(HOST).map(HeaderValue::to_str) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}
