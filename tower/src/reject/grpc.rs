//! Rejections of gRPC.

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};

use super::protobuf::Message;
use super::{Reason, Reject, Rejection};

/// Rejects with a status of gRPC, for tonic and other servers: `RESOURCE_EXHAUSTED` with the
/// details `RetryInfo` and `QuotaFailure`, or `UNAVAILABLE` with `RetryInfo` while Redis is
/// unavailable.
///
/// ```
/// use http::{Request, Response};
/// use redisson_rate_limiter::{FixedWindow, RedissonClient};
/// use redisson_rate_limiter_tower::RateLimitLayer;
/// use redisson_rate_limiter_tower::key::Everyone;
/// use redisson_rate_limiter_tower::reject::Grpc;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tonic_types::StatusExt;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let per_minute = FixedWindow::new(1, Duration::from_secs(60));
/// let limiter = RedissonClient::in_memory().policy_limiter(per_minute)?.with_name("calls");
/// let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
/// let service = RateLimitLayer::new(limiter, Everyone).reject_with(Grpc).layer(handler);
/// assert_eq!(service.clone().oneshot(Request::new(())).await.expect("infallible").status(), 200);
///
/// let response = service.oneshot(Request::new(())).await.expect("infallible");
/// let status = tonic::Status::from_header_map(response.headers()).expect("a status");
/// assert_eq!(status.code(), tonic::Code::ResourceExhausted);
/// let details = status.get_error_details();
/// assert_eq!(details.retry_info().and_then(|it| it.retry_delay), Some(Duration::from_secs(60)));
/// assert_eq!(details.quota_failure().expect("of quota").violations[0].subject, "calls");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Grpc;

impl<B: Default> Reject<B> for Grpc {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        let (code, message) = match rejection.reason() {
            Reason::QuotaExceeded => (8, "rate limit exceeded"),
            Reason::Unavailable => (14, "rate limiter unavailable"),
            Reason::Blocked => (7, "blocked"),
            Reason::Misconfigured => (13, "rate limiter misconfigured"),
        };
        let mut status = Message::default().integer(1, code).bytes(2, message);
        if let Some(time) = rejection.retry_after() {
            let delay = Message::default()
                // The most seconds that a Duration of Protocol Buffers may have.
                .integer(1, time.as_secs().min(315_576_000_000))
                .integer(2, u64::from(time.subsec_nanos()));
            status = status.any(3, "RetryInfo", Message::default().bytes(1, delay.0));
        }
        let violations = rejection
            .violated()
            .fold(Message::default(), |all, (name, decision)| {
                let description = format!("{} per {:?}", decision.limit(), decision.window());
                let violation = Message::default().bytes(1, name).bytes(2, description);
                all.bytes(1, violation.0)
            });
        if code == 8 && !violations.0.is_empty() {
            status = status.any(3, "QuotaFailure", violations);
        }

        // A response without messages has its status in the header instead of the trailers.
        let mut response = Response::new(B::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(
            HeaderName::from_static("grpc-status"),
            HeaderValue::from(code),
        );
        headers.insert(
            HeaderName::from_static("grpc-message"),
            HeaderValue::from_static(message),
        );
        if let Ok(details) = HeaderValue::try_from(status.base64()) {
            headers.insert(HeaderName::from_static("grpc-status-details-bin"), details);
        }
        response
    }
}
