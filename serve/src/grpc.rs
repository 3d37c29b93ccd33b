//! Envoy's rate limit service, `envoy.service.ratelimit.v3.RateLimitService`, and the health
//! service, by gRPC.

mod asked;
mod messages;
mod should_rate_limit;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::server::Grpc;
use tonic::{Code, Status};

use super::connection::{Io, drive};
use super::service::Service;
use should_rate_limit::{Lenient, ShouldRateLimit};

const LARGEST_HEAD: u32 = 16 * 1024;
const MOST_STREAMS: u32 = 1_024;

/// Descriptors hold whole paths and header fields.
const LARGEST_MESSAGE: usize = 1024 * 1024;

/// A message of one byte, which cannot be read.
const UNREADABLE: &[u8] = &[0, 0, 0, 0, 1, 0xff];

/// Serves one connection.
pub(super) async fn serve(io: Io, service: Arc<Service>) {
    let closing = service.closing.subscribe();
    let client_timeout = service.settings.client_timeout;
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(route(service, request).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // A client that does not answer a ping in time is gone.
        .keep_alive_interval(2 * client_timeout)
        .keep_alive_timeout(client_timeout)
        .max_header_list_size(LARGEST_HEAD)
        .max_concurrent_streams(MOST_STREAMS);
    drive(builder.serve_connection(io, answer), closing).await;
}

async fn route(service: Arc<Service>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path();
    if path.starts_with("/grpc.health.v1.Health/") {
        let mut health = service.grpc_health.server.clone();
        return match health.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
    }
    if !service.credentials.allow(request.headers()) {
        return Status::unauthenticated("the token is missing or wrong").into_http();
    }
    if path != should_rate_limit::PATH {
        return Status::unimplemented(format!("there is no method {path}")).into_http();
    }
    // The message has to come in time, and the store has a time of its own. A turn may be as late
    // again.
    let longest_turn = service.longest_turn(deadline(request.headers()));
    let longest = service.longest_turn(None).saturating_mul(2);
    let mut grpc = Grpc::new(Lenient);
    grpc = grpc.apply_max_message_size_config(Some(LARGEST_MESSAGE), None);
    let asking = ShouldRateLimit {
        service,
        longest_turn,
    };
    let Ok(response) = timeout(longest, grpc.unary(asking.clone(), request)).await else {
        return Status::deadline_exceeded("the request took too long").into_http();
    };
    let status = Status::from_header_map(response.headers());
    match status.map(|it| it.code()) {
        // Too large to be read. A client of the proxy can have it so.
        Some(Code::OutOfRange) => {
            let unreadable = Request::new(Full::new(Bytes::from_static(UNREADABLE)));
            grpc.unary(asking, unreadable).await
        }
        _ => response,
    }
}

/// The time that a client gives its request, in the header field of gRPC: up to eight digits, and a
/// unit.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u32 = number.parse().ok()?;
    let unit = match unit {
        "H" => Duration::from_secs(3_600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        _ => return None,
    };
    unit.checked_mul(number)
}
