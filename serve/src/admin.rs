//! The admin address: the status page, and `/metrics`. It only reads.

mod status;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};

use super::connection::{Io, drive};
use super::http::{Answer, READ, content, health, http1, is_read};
use super::service::Service;

const PAGE: &str = include_str!("admin/page.html");
const SCRIPT: &str = include_str!("admin/page.js");
const STYLE: &str = include_str!("admin/page.css");

/// The page loads nothing from elsewhere, and nothing in it runs but its script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'";

/// Serves one connection.
pub(super) async fn serve(io: Io, service: Arc<Service>) {
    let closing = service.closing.subscribe();
    let client_timeout = service.settings.client_timeout;
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(route(&service, &request)) }
    });
    drive(http1(client_timeout).serve_connection(io, answer), closing).await;
}

fn route(service: &Service, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let mut response = answer(service, request);
    let headers = response.headers_mut();
    let mut insert = |name: HeaderName, value| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    insert(CONTENT_SECURITY_POLICY, POLICY);
    insert(X_CONTENT_TYPE_OPTIONS, "nosniff");
    insert(X_FRAME_OPTIONS, "DENY");
    insert(REFERRER_POLICY, "no-referrer");
    response
}

fn answer(service: &Service, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let is_local = (service.settings.admin.0).is_some_and(|it| it.ip().is_loopback());
    if is_local && !is_numeric_or_localhost(request.headers()) {
        let detail = "by an address or as localhost only";
        return Answer::problem(StatusCode::MISDIRECTED_REQUEST, detail).into();
    }
    if !is_read(request.method()) {
        return Answer::not_allowed(READ).into();
    }
    match request.uri().path() {
        "/" => content("text/html; charset=utf-8", PAGE),
        "/page.js" => content("text/javascript; charset=utf-8", SCRIPT),
        "/page.css" => content("text/css; charset=utf-8", STYLE),
        "/status.json" => content("application/json", status::status(service).to_string()),
        "/metrics" => {
            service.metrics.sample(&service.client);
            content("text/plain; version=0.0.4", service.prometheus.render())
        }
        "/healthz" | "/readyz" => health(service, request),
        _ => Answer::problem(StatusCode::NOT_FOUND, "there is nothing here").into(),
    }
}

/// A page of somewhere else could have its own name lead to this address, and read what is here.
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
