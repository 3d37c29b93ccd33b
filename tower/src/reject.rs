//! What a request gets that does not reach the service.

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

/// Builds the response to a request that was not let through: [`ProblemJson`], [`StatusOnly`],
/// [`Grpc`], a function from `&Rejection` to `Response<B>`, or a type of your own. The layer then
/// adds `Retry-After`, unless it is there, and the fields that state the limits.
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
    /// The response.
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B>;
}

impl<B, F: Fn(&Rejection<'_>) -> Response<B>> Reject<B> for F {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        self(rejection)
    }
}

/// Why a request was not let through.
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
        /// The limit that the request exceeds, and its name.
        exceeded: Option<(&'a str, Decision)>,
    },
}

/// What kind of reason a rejection has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A limit is used up, or the request costs more than it: 429.
    QuotaExceeded,
    /// Redis is unavailable, and the [`FailurePolicy`](redisson_rate_limiter::FailurePolicy) lets
    /// nothing through, or its local share is used up: 503.
    Unavailable,
    /// A rule [blocks](redisson_rate_limiter::Plan::Block) its client: 403.
    Blocked,
    /// The limiter cannot be used as it is set up, such as one without a rate: 500.
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

    /// By this one limiter, or by rules, whose errors name the rule.
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

    /// The limit that the request exceeds.
    pub(crate) fn exceeded(&self) -> Option<Limit<'a>> {
        match &self.cause {
            Cause::Failed {
                exceeded: Some((name, decision)),
                ..
            } => Limit::of(name, decision),
            _ => None,
        }
    }

    /// Sets when an unavailable service is worth a retry, and adds to each time.
    pub(crate) fn retried(self, outage: Duration, jitter: Duration) -> Self {
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

    /// What kind of reason it has.
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
                // The request says what it costs, and no limiter grants as much at once.
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

    /// The time after which a retry may be granted. `None` if no retry will be: the request costs
    /// more than the limit, or its sender is blocked.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The limiters that denied the request, by name, and their decisions. Of a request that costs
    /// more than a limit, that one: its decision knows the limit and nothing else, and its time to
    /// retry is [`Duration::MAX`].
    pub fn violated(&self) -> impl Iterator<Item = (&str, &Decision)> {
        let (charged, exceeded) = match &self.cause {
            Cause::Denied(charged) => (Some(charged), None),
            Cause::Failed { exceeded, .. } => (None, exceeded.as_ref()),
        };
        let limiters = charged.into_iter().flat_map(|it| it.by_limiter());
        let limiters = limiters.chain(exceeded.map(|(name, decision)| (*name, decision)));
        // One that would have granted the request says zero.
        limiters.filter(|(_, decision)| decision.retry_after().is_some_and(|it| !it.is_zero()))
    }

    /// The error, if there is no decision.
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        match self.cause {
            Cause::Denied(_) => None,
            Cause::Failed { error, .. } => Some(error),
        }
    }
}

/// As in `denied by user, address` and `failed: Redis is unavailable`.
impl fmt::Display for Rejection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = self.error() {
            return write!(f, "failed: {error}");
        }
        let names: Vec<_> = self.violated().map(|(name, _)| name).collect();
        write!(f, "denied by {}", names.join(", "))
    }
}

fn is_cost(error: &Error) -> bool {
    matches!(error, Error::InvalidArgument { argument, .. } if *argument == "cost")
}

/// An empty body.
#[derive(Debug, Clone, Copy, Default)]
pub struct StatusOnly;

impl<B: Default> Reject<B> for StatusOnly {
    fn reject(&self, rejection: &Rejection<'_>) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = rejection.status();
        response
    }
}
