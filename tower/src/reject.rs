//! The responses to requests that are rejected.

mod grpc;
mod problem_json;
mod protobuf;

use std::fmt;
use std::time::Duration;

use http::{Response, StatusCode};
use redisson_rate_limiter::{Decision, DecisionSource, Denied, Error, ErrorKind, Quota};

use crate::charged::Charged;
use crate::fields::Limit;

pub use grpc::Grpc;
pub use problem_json::ProblemJson;

/// Builds the response to a rejected request. Implemented by [`ProblemJson`], [`StatusOnly`],
/// [`Grpc`], functions from `&Rejection` to `Response<B>`, and types of your own. The layer then
/// adds the fields that state the limits and, unless the response has one, `Retry-After`.
///
/// ```
/// use http::Response;
/// use redisson_rate_limiter_tower::{Reject, Rejection};
///
/// #[derive(Clone)]
/// struct Plain;
///
/// impl Reject<String> for Plain {
///     fn reject(&self, rejection: &Rejection<'_>) -> Response<String> {
///         let mut response = Response::new("Slow down.".to_owned());
///         *response.status_mut() = rejection.status();
///         response
///     }
/// }
/// ```
pub trait Reject<B> {
    /// Returns the response to a request that was rejected for this reason.
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B>;
}

impl<B, F: Fn(&Rejection<'_>) -> Response<B>> Reject<B> for F {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        self(rejection)
    }
}

/// Why a request was rejected.
#[derive(Debug)]
pub struct Rejection<'a> {
    cause: Cause<'a>,
    retry_after: Option<Duration>,
}

#[derive(Debug)]
enum Cause<'a> {
    Denied(&'a Charged),
    Failed {
        error: &'a Error,
        /// The name of the limiter whose whole limit the request exceeds, and a denial that
        /// states that limit.
        exceeded: Option<(&'a str, Decision)>,
    },
}

/// The kind of reason for a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A limit is used up, or the request costs more than it: 429.
    QuotaExceeded,
    /// Redis is unavailable, and the [`FailurePolicy`](redisson_rate_limiter::FailurePolicy) lets
    /// nothing through, or its local share is used up: 503.
    Unavailable,
    /// A rule [blocks](redisson_rate_limiter::Plan::Block) the request's client: 403.
    Blocked,
    /// The limiter is set up wrongly, for example without a rate: 500.
    Misconfigured,
}

impl Reason {
    /// The variant's name in snake case, for logs and metrics. Later versions do not change it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "quota_exceeded",
            Self::Unavailable => "unavailable",
            Self::Blocked => "blocked",
            Self::Misconfigured => "misconfigured",
        }
    }
}

impl<'a> Rejection<'a> {
    pub(crate) fn denied(charged: &'a Charged) -> Self {
        Self {
            cause: Cause::Denied(charged),
            retry_after: charged.decision().and_then(Decision::retry_after),
        }
    }

    /// A rejection because the decision failed. `limiter` is the name of the one limiter that was
    /// asked; `None` for rules, whose errors name the rule.
    pub(crate) fn failed(error: &'a Error, limiter: Option<&'a str>) -> Self {
        let exceeded = match error {
            Error::ExceedsLimit { name, limit, .. } => Some((limiter.unwrap_or(name), *limit)),
            _ if is_cost(error) => limiter.map(|name| (name, 0)),
            _ => None,
        };
        let exceeded = exceeded.map(|(name, limit)| {
            let quota = Quota::new(limit, Duration::ZERO);
            let denied = Denied::new(Duration::MAX).with_quota(quota);
            (name, denied.into())
        });
        Self {
            cause: Cause::Failed { error, exceeded },
            retry_after: None,
        }
    }

    /// The whole limit, if the request costs more than that.
    pub(crate) fn exceeded(&self) -> Option<Limit<'a>> {
        match &self.cause {
            Cause::Failed {
                exceeded: Some((name, decision)),
                ..
            } => Limit::of(name, decision),
            _ => None,
        }
    }

    /// Raises the time to retry to `outage` if Redis is unavailable, removes it for blocked
    /// clients, and adds `jitter`.
    pub(crate) fn with_retry_times(self, outage: Duration, jitter: Duration) -> Self {
        let time = match self.reason() {
            Reason::Unavailable => Some(self.retry_after.map_or(outage, |it| it.max(outage))),
            Reason::Blocked => None,
            _ => self.retry_after,
        };
        Self {
            retry_after: time.map(|it| it.saturating_add(jitter)),
            ..self
        }
    }

    /// The kind of reason for the rejection.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match &self.cause {
            Cause::Denied(charged) => match charged.decision().map(Decision::source) {
                Some(DecisionSource::FailurePolicy) => Reason::Unavailable,
                Some(DecisionSource::Rule) => Reason::Blocked,
                _ => Reason::QuotaExceeded,
            },
            Cause::Failed { error, .. } => match error.kind() {
                ErrorKind::ExceedsLimit | ErrorKind::QueueFull => Reason::QuotaExceeded,
                // No limiter grants a cost this large at once, whatever its limit.
                _ if is_cost(error) => Reason::QuotaExceeded,
                ErrorKind::StoreUnavailable
                | ErrorKind::Indeterminate
                | ErrorKind::AuthenticationFailed
                | ErrorKind::Redis
                | ErrorKind::Closed => Reason::Unavailable,
                _ => Reason::Misconfigured,
            },
        }
    }

    /// 429, 503, 403 or 500: see [`Reason`].
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason() {
            Reason::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            Reason::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Reason::Blocked => StatusCode::FORBIDDEN,
            Reason::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The time after which a retry may be granted. `None` if no retry is granted, because the
    /// request costs more than the limit or its client is blocked.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The names and decisions of the limiters that denied the request. If the request costs more
    /// than a whole limit, this is that limiter, with a decision that states only the limit and
    /// [`Duration::MAX`] as the time to retry.
    pub fn violated(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let (charged, exceeded) = match &self.cause {
            Cause::Denied(charged) => (Some(charged), None),
            Cause::Failed { exceeded, .. } => (None, exceeded.as_ref()),
        };
        let limiters = charged.into_iter().flat_map(|it| it.by_limiter());
        let limiters = limiters.chain(exceeded.map(|(name, decision)| (*name, decision)));
        // A limiter that would have granted the request states a time to retry of zero.
        limiters.filter(|(_, decision)| decision.retry_after().is_some_and(|it| !it.is_zero()))
    }

    /// The error, if the decision failed.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match self.cause {
            Cause::Denied(_) => None,
            Cause::Failed { error, .. } => Some(error),
        }
    }
}

/// Writes a text such as `denied by user, address` or `failed: Redis is unavailable`.
impl fmt::Display for Rejection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = self.error() {
            return write!(f, "failed: {error}");
        }
        let names: Vec<_> = self.violated().map(|(name, _)| name).collect();
        write!(f, "denied by {}", names.join(", "))
    }
}

/// Whether a limiter refused the cost of the request as invalid.
fn is_cost(error: &Error) -> bool {
    matches!(error, Error::InvalidArgument { argument, .. } if *argument == "cost")
}

/// Rejects with the status and an empty body.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatusOnly;

impl<B: Default> Reject<B> for StatusOnly {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = rejection.status();
        response
    }
}
