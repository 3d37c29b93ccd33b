//! Envoy's rate limit service, `envoy.service.ratelimit.v3.RateLimitService`, the health service
//! and reflection, by gRPC.

mod asked;
mod messages;
mod should_rate_limit;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::post;
use http_body_util::Full;
use hyper::HeaderMap;
use hyper::body::Bytes;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tonic::server::Grpc;
use tonic::{Code, Status};
use tonic_reflection::server::Builder as Reflection;

use super::connection::{Io, drive};
use super::service::Service;
use should_rate_limit::{Lenient, ShouldRateLimit};

const LARGEST_HEAD: u32 = 16 * 1024;
const MOST_STREAMS: u32 = 1_024;

/// The most bytes of a message: descriptors may contain whole paths and header fields.
const LARGEST_MESSAGE: usize = 1024 * 1024;

/// The definitions of the messages, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!("grpc/messages/descriptors.bin");

/// A frame with a message of one byte, which cannot be decoded.
const UNREADABLE: &[u8] = &[0, 0, 0, 0, 1, 0xff];

/// The routes of the gRPC address.
///
/// # Errors
/// Only if the descriptors built into this program are invalid.
pub(super) fn routes(service: &Arc<Service>) -> io::Result<Router> {
    let reflection = Reflection::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(io::Error::other)?;
    let asking = Router::new()
        .route(should_rate_limit::PATH, post(should_rate_limit))
        .route_service("/grpc.reflection.v1.ServerReflection/{*method}", reflection)
        .fallback(unimplemented)
        .layer(from_fn_with_state(Arc::clone(service), with_token));
    // Health checks need no token.
    let health = service.grpc_health.server.clone();
    let routes = Router::new().route_service("/grpc.health.v1.Health/{*method}", health);
    Ok(routes.merge(asking).with_state(Arc::clone(service)))
}

/// Serves one connection.
pub(super) async fn serve(io: Io, routes: Router, service: &Service) {
    let closing = service.closing.subscribe();
    let client_timeout = service.settings.client_timeout;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // A client that does not answer a ping in time is disconnected.
        .keep_alive_interval(2 * client_timeout)
        .keep_alive_timeout(client_timeout)
        .max_header_list_size(LARGEST_HEAD)
        .max_concurrent_streams(MOST_STREAMS);
    let routes = TowerToHyperService::new(routes);
    drive(builder.serve_connection(io, routes), closing).await;
}

async fn with_token(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    if service.credentials.allow(request.headers()) {
        return next.run(request).await;
    }
    Status::unauthenticated("the token is missing or wrong").into_http()
}

async fn unimplemented(request: Request) -> Response {
    let path = request.uri().path();
    Status::unimplemented(format!("there is no method {path}")).into_http()
}

/// Answers a call of `ShouldRateLimit`. A generated service would return errors for messages that
/// cannot be decoded or are too large; this function decides them too, because a client of the
/// proxy may have caused them.
async fn should_rate_limit(State(service): State<Arc<Service>>, request: Request) -> Response {
    // The wait for a turn may take half of the time. The other half is for receiving the message
    // and for the store.
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
    let response = match status.map(|it| it.code()) {
        // The message is too large to be read, so it is decided like one that cannot be decoded.
        Some(Code::OutOfRange) => {
            let unreadable = hyper::Request::new(Full::new(Bytes::from_static(UNREADABLE)));
            grpc.unary(asking, unreadable).await
        }
        _ => response,
    };
    response.map(Body::new)
}

/// The time that a client gives its request in the field `grpc-timeout`: up to eight digits and a
/// unit. `None` if the field is missing or malformed.
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
