//! Envoy's rate limit service, `envoy.service.ratelimit.v3.RateLimitService`, and the health service, by gRPC.

mod asked;
mod health;
mod messages;
mod should_rate_limit;

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

pub(super) use health::GrpcHealth;

use super::door::{Io, drive};
use super::service::Service;
use should_rate_limit::ShouldRateLimit;

const LARGEST_HEAD: u32 = 16 * 1024;
const MOST_STREAMS: u32 = 1_024;

/// Descriptors hold whole paths and header fields.
const LARGEST_MESSAGE: usize = 1024 * 1024;

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
    // The message has to come in time; the store has a time of its own.
    let client_timeout = service.settings.client_timeout;
    let store_timeout = service.response_timeout;
    let codec = ProstCodec::default();
    let mut grpc = Grpc::new(codec).apply_max_message_size_config(Some(LARGEST_MESSAGE), None);
    let answered = grpc.unary(ShouldRateLimit(service), request);
    match timeout(client_timeout + store_timeout, answered).await {
        Ok(response) => response,
        Err(_) => Status::deadline_exceeded("the request took too long").into_http(),
    }
}
