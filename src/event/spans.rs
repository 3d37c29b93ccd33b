//! Spans of `tracing`, by the names of OpenTelemetry's semantic conventions where they have one.

use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

use super::{AskedLimiter, Mode, RequestResult};
use crate::escaped::Escaped;

/// The target of all spans, which filters of `tracing` name.
pub(super) const TARGET: &str = "redisson_rate_limiter";

/// The span of a request for permits. It is never entered, because a request only waits.
pub(super) fn request() -> Span {
    debug_span!(
        target: TARGET,
        "rate_limiter.request",
        otel.kind = "internal",
        otel.status_code = Empty,
        rate_limiter.limiter = Empty,
        rate_limiter.permits = Empty,
        rate_limiter.mode = Empty,
        rate_limiter.result = Empty,
        rate_limiter.source = Empty,
        "error.type" = Empty,
    )
}

pub(super) fn end_request(
    span: &Span,
    result: RequestResult,
    limiters: &[AskedLimiter<'_>],
    mode: Mode,
) {
    if span.is_disabled() {
        return;
    }
    let names: Vec<_> = limiters.iter().map(|it| it.name).collect();
    span.record("rate_limiter.limiter", display(Escaped(&names.join(", "))));
    let permits = limiters.iter().map(|it| it.permits).max();
    span.record("rate_limiter.permits", permits);
    span.record("rate_limiter.mode", mode.as_str());
    span.record("rate_limiter.result", result.as_str());
    span.record("rate_limiter.source", result.source().map(|it| it.as_str()));
    if let RequestResult::Failed(kind) = result {
        fail(span, kind.as_str());
    }
}

/// A call of a script, which several requests may share. `server` is asked for its name only where
/// the span is recorded.
#[cfg(feature = "redis")]
pub(crate) fn call(
    script: &'static str,
    requests: u32,
    attempt: u32,
    server: impl FnOnce() -> Option<String>,
) -> Span {
    let span = debug_span!(
        target: TARGET,
        "EVALSHA",
        otel.kind = "client",
        otel.status_code = Empty,
        db.system.name = "redis",
        db.operation.name = "EVALSHA",
        db.stored_procedure.name = script,
        server.address = Empty,
        server.port = Empty,
        rate_limiter.requests = requests,
        rate_limiter.attempt = attempt,
        "error.type" = Empty,
    );
    if !span.is_disabled()
        && let Some(server) = server()
    {
        let port = server.rsplit_once(':');
        let port = port.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let (address, port) = port.map_or((&*server, None), |(host, port)| (host, Some(port)));
        span.record("server.address", display(Escaped(address)));
        span.record("server.port", port);
    }
    span
}

/// Notes in a span that it ends with an error of this kind.
pub(crate) fn fail(span: &Span, kind: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", kind);
}
