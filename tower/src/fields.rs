//! The header fields that state limits: a server writes them, and a client reads them.
//!
//! ```
//! use http::HeaderMap;
//! use redisson_rate_limiter::{FixedWindow, RedissonClient};
//! use redisson_rate_limiter_tower::fields::{self, Fields, Limit};
//! use std::time::{Duration, SystemTime};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> redisson_rate_limiter::Result<()> {
//! let client = RedissonClient::in_memory();
//! let limiter = client.policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?.with_name("user");
//! let decision = limiter.check("alice", 1).await?;
//!
//! let mut headers = HeaderMap::new();
//! let limits: Vec<Limit> = Limit::of(limiter.name(), &decision).into_iter().collect();
//! Fields::Ietf.add_to(&mut headers, &limits);
//! assert_eq!(headers["ratelimit-policy"], r#""user";q=100;w=60"#);
//! assert_eq!(headers["ratelimit"], r#""user";r=99;t=0"#);
//!
//! let limits = fields::parse(&headers, SystemTime::now());
//! assert_eq!((&*limits[0].name, limits[0].remaining), ("user", 99));
//! # Ok(()) }
//! ```

mod limit;
mod parse;
mod retry_after;
mod write;

use http::HeaderName;
use http::header::RETRY_AFTER;

pub use limit::Limit;
pub use parse::{parse, wait};
pub use retry_after::{parse_retry_after, retry_after};
pub(crate) use write::Written;

/// `RateLimit`
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// `RateLimit-Policy`
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The form in which limits are stated.
///
/// | form | fields, for 99 of 100 requests in a minute |
/// |---|---|
/// | [`Ietf`](Self::Ietf) | `RateLimit: "user";r=99;t=0` and `RateLimit-Policy: "user";q=100;w=60` |
/// | [`Draft7`](Self::Draft7) | `RateLimit: limit=100, remaining=99, reset=60` and `RateLimit-Policy: 100;w=60` |
/// | [`XRateLimit`](Self::XRateLimit) | `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 99`, `X-RateLimit-Reset: 60` |
/// | [`XRateLimitAt`](Self::XRateLimitAt) | `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 99`, `X-RateLimit-Reset: 1784073660` |
/// | [`None`](Self::None) | none |
///
/// All times are in seconds, rounded up. `Retry-After` is sent with each rejection that has one,
/// whatever the form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fields {
    /// The fields of `draft-ietf-httpapi-ratelimit-headers` from version 8 on (the newest is 11):
    /// lists of all limits, by name. `t` is the time until something is available: zero if
    /// something is left.
    #[default]
    Ietf,
    /// The fields of version 7 of `draft-ietf-httpapi-ratelimit-headers`. `RateLimit` has one
    /// limit, the strictest, and `RateLimit-Policy` all limits. `reset` is the time until the
    /// whole limit is available again, or, if nothing is left, until something is.
    Draft7,
    /// The fields that came before the draft. They have one limit, the strictest.
    /// `X-RateLimit-Reset` is the number of seconds until the whole limit is available again, not a
    /// point in time.
    XRateLimit,
    /// The fields of [`XRateLimit`](Self::XRateLimit), but `X-RateLimit-Reset` is a point in time,
    /// in seconds since 1970 by the clock of this process.
    XRateLimitAt,
    /// No field.
    None,
}

impl Fields {
    /// The names of the fields that a response can have, for `Access-Control-Expose-Headers`:
    /// scripts from another origin can read only the fields that the server lists there.
    ///
    /// ```
    /// use redisson_rate_limiter_tower::fields::Fields;
    ///
    /// // For tower-http: CorsLayer::new().expose_headers(Fields::Ietf.names().to_vec())
    /// assert_eq!(Fields::Ietf.names(), ["retry-after", "ratelimit", "ratelimit-policy"]);
    /// ```
    #[must_use]
    pub fn names(self) -> &'static [HeaderName] {
        static IETF: [HeaderName; 3] = [RETRY_AFTER, RATELIMIT, RATELIMIT_POLICY];
        static X: [HeaderName; 4] = [RETRY_AFTER, X_LIMIT, X_REMAINING, X_RESET];
        match self {
            Self::Ietf | Self::Draft7 => &IETF,
            Self::XRateLimit | Self::XRateLimitAt => &X,
            Self::None => &IETF[..1],
        }
    }
}
