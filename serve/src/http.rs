//! The HTTP API.

mod answer;
mod api;
mod asked;
mod auth_request;
mod document;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use hyper_util::service::TowerToHyperService;

pub(super) use answer::{Answer, content};
pub(super) use asked::read_part;

use super::connection::{Io, drive};
use super::service::Service;

/// The most bytes of a request's head.
const LONGEST_HEAD: usize = 16 * 1024;
/// The most header fields of a request.
const MOST_HEADERS: usize = 100;

/// The most bytes of a request's body.
const LARGEST_BODY: usize = 64 * 1024;

pub(super) fn routes(service: &Arc<Service>) -> Router {
    let asking = Router::new()
        .route("/v1/check", post(api::check))
        .route("/v1/acquire", post(api::acquire))
        .route("/v1/peek", post(api::peek))
        .route("/v1/release", post(api::release))
        .route("/v1/auth-request", any(auth_request::answer))
        .route("/v1/auth-request/", any(auth_request::answer))
        .route("/v1/auth-request/{*domain}", any(auth_request::answer))
        .route("/openapi.json", get(document::document))
        .method_not_allowed_fallback(other_method)
        .fallback(missing)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn_with_state(Arc::clone(service), with_token));
    // Probes need no token.
    probes().merge(asking).with_state(Arc::clone(service))
}

/// The routes `/healthz`, whether the process answers, and `/readyz`, whether it decides requests.
pub(super) fn probes() -> Router<Arc<Service>> {
    Router::new()
        .route("/healthz", get(document::healthz))
        .route("/readyz", get(document::readyz))
        .method_not_allowed_fallback(other_method)
}

/// Serves one connection.
pub(super) async fn serve(io: Io, routes: Router, service: &Service) {
    let closing = service.closing.subscribe();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(service.settings.client_timeout)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS);
    let routes = TowerToHyperService::new(routes);
    drive(builder.serve_connection(io, routes), closing).await;
}

async fn with_token(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    if service.credentials.allow(request.headers()) {
        return next.run(request).await;
    }
    let refused = Answer::problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
    refused.with_challenge().into_response()
}

/// Answers a method that the path does not have. axum adds the field `Allow`.
pub(super) async fn other_method() -> Answer {
    let detail = "the path has other methods";
    Answer::problem(StatusCode::METHOD_NOT_ALLOWED, detail)
}

pub(super) async fn missing() -> Answer {
    Answer::problem(StatusCode::NOT_FOUND, "there is nothing here")
}
