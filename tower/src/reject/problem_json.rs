//! Problem details for HTTP APIs (RFC 9457).

use std::fmt::Write;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use super::{Reason, Reject, Rejection};

/// Rejects with a body of `application/problem+json`. Its problem types are those of the draft of
/// the `RateLimit` fields: `quota-exceeded`, or `temporary-reduced-capacity` while Redis is
/// unavailable.
///
/// ```
/// use http::{Request, Response};
/// use redisson_rate_limiter::{FixedWindow, RedissonClient};
/// use redisson_rate_limiter_tower::RateLimitLayer;
/// use redisson_rate_limiter_tower::key::Everyone;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let daily = FixedWindow::new(1, Duration::from_secs(86_400));
/// let limiter = RedissonClient::in_memory().policy_limiter(daily)?.with_name("daily");
/// let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// let service = RateLimitLayer::new(limiter, Everyone).layer(handler);
/// assert_eq!(service.clone().oneshot(Request::new(())).await.expect("infallible").status(), 200);
///
/// let response = service.oneshot(Request::new(())).await.expect("infallible");
/// assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"86400".parse().expect("a value")));
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// assert_eq!(
///     response.body(),
///     r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"violated-policies":["daily"]}"#
/// );
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ProblemJson;

impl<B: From<String>> Reject<B> for ProblemJson {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        let (kind, title) = match rejection.reason() {
            Reason::QuotaExceeded => (
                "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "Request cannot be satisfied as assigned quota has been exceeded",
            ),
            Reason::Unavailable => (
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                "Request cannot be satisfied due to temporary server capacity constraints",
            ),
            Reason::Blocked => ("about:blank", "Forbidden"),
            Reason::Misconfigured => ("about:blank", "Internal Server Error"),
        };
        let status = rejection.status();
        let mut body = format!(
            r#"{{"type":"{kind}","title":"{title}","status":{}"#,
            status.as_u16()
        );
        if kind != "about:blank" {
            body += r#","violated-policies":["#;
            for (place, (name, _)) in rejection.violated().enumerate() {
                if place > 0 {
                    body.push(',');
                }
                push_json(&mut body, name);
            }
            body.push(']');
        }
        body.push('}');
        let mut response = Response::new(B::from(body));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

fn push_json(json: &mut String, text: &str) {
    json.push('"');
    for it in text.chars() {
        match it {
            '"' | '\\' => json.extend(['\\', it]),
            it if it.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(it)); // writing to a String never fails
            }
            it => json.push(it),
        }
    }
    json.push('"');
}
