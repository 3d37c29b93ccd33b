//! The HTTP API.

mod answer;
mod api;
mod asked;
mod auth_request;

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioTimer;

pub(super) use answer::{Answer, READ, content, health, is_read};
pub(super) use asked::read_part;

use super::connection::{Io, drive};
use super::service::Service;

/// The longest head of a request, and as many header fields.
const LONGEST_HEAD: usize = 16 * 1024;
const MOST_HEADERS: usize = 100;

/// The document that describes the API.
const OPENAPI: &str = include_str!("http/openapi.json");

/// Serves one connection.
pub(super) async fn serve(io: Io, service: Arc<Service>) {
    let closing = service.closing.subscribe();
    let client_timeout = service.settings.client_timeout;
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(route(&service, request).await) }
    });
    let builder = http1(client_timeout);
    drive(builder.serve_connection(io, answer), closing).await;
}

/// HTTP/1 for clients that send a head in time, and none that is too large.
pub(super) fn http1(client_timeout: std::time::Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(client_timeout)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS);
    builder
}

async fn route(service: &Service, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    match path {
        // For probes, which have no token.
        "/healthz" | "/readyz" => return health(service, &request),
        _ if !service.credentials.allow(request.headers()) => {
            return Answer::problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong")
                .with_challenge()
                .into();
        }
        _ => {}
    }
    match path {
        "/v1/check" | "/v1/acquire" | "/v1/peek" | "/v1/release" => match *request.method() {
            Method::POST => api::answer(service, request).await.into(),
            _ => Answer::not_allowed("POST").into(),
        },
        "/openapi.json" => match is_read(request.method()) {
            true => content("application/json", OPENAPI),
            false => Answer::not_allowed(READ).into(),
        },
        _ if path.starts_with(auth_request::PATH) => {
            auth_request::answer(service, request).await.into()
        }
        _ => Answer::problem(StatusCode::NOT_FOUND, "there is nothing here").into(),
    }
}
