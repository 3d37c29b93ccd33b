//! The settings of a layer, and what it does with a decision.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Response, response};
use redisson_rate_limiter::{Ending, Error};
use tokio::time::Instant;

use crate::charged::Charged;
use crate::decide::Answer;
use crate::fields::{Fields, Limit, Written, retry_after};
use crate::reject::{Reason, Reject, Rejection};

/// Whether a request is not limited.
type Skip = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
/// The cost that the limiter of this name should have charged, or `None` to keep the charge.
type Settle = Arc<dyn Fn(&response::Parts, &str) -> Option<u32> + Send + Sync>;
/// Whether a response says that its request has failed.
type IsFailure = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type Describe = Arc<dyn for<'a> Fn(Limit<'a>) -> Limit<'a> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings<D, R> {
    pub(crate) decide: D,
    pub(crate) reject: R,
    pub(crate) options: Options,
}

/// The settings that are the same whatever decides and however rejections are answered.
#[derive(Clone)]
pub(crate) struct Options {
    /// The form of the header fields that state the limits.
    pub(crate) fields: Fields,
    /// Completes each limit before the header fields state it.
    pub(crate) describe: Option<Describe>,
    pub(crate) skip: Option<Skip>,
    pub(crate) settle: Option<Settle>,
    pub(crate) is_failure: IsFailure,
    /// The longest time that a request waits for a grant.
    pub(crate) wait: Duration,
    /// The least `Retry-After` while Redis is unavailable.
    pub(crate) outage: Duration,
    /// The longest random time that is added to each `Retry-After`.
    pub(crate) jitter: Duration,
    /// The last warning that a limiter is set up wrongly.
    pub(crate) misconfigured: LastWarning,
    /// The last warning that a request costs more than the whole limit.
    pub(crate) exceeded: LastWarning,
    /// The last warning that a charge could not be settled.
    pub(crate) unsettled: LastWarning,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fields: Fields::default(),
            describe: None,
            skip: None,
            settle: None,
            is_failure: Arc::new(is_failure),
            wait: Duration::ZERO,
            outage: Duration::from_secs(1),
            jitter: Duration::ZERO,
            misconfigured: LastWarning::default(),
            exceeded: LastWarning::default(),
            unsettled: LastWarning::default(),
        }
    }
}

/// What to do with the response to a request that was granted.
pub(crate) struct OnResponse {
    /// The header fields to add.
    pub(crate) written: Written,
    /// The charge to settle, if it depends on the response.
    pub(crate) charged: Option<Box<Charged>>,
}

impl<D, R> Settings<D, R> {
    /// Returns the head of a request that goes on to the service, or else the response to it.
    pub(crate) fn admit<B>(
        &self,
        mut head: Parts,
        answer: Answer,
    ) -> Result<(Parts, Option<OnResponse>), Response<B>>
    where
        R: Reject<B>,
    {
        match answer {
            Answer::Free => Ok((head, None)),
            Answer::Granted(charged) => {
                let on_response = OnResponse {
                    written: self.write_limits(&charged),
                    charged: (self.options.settle.is_some() || charged.depends_on_ending())
                        .then(|| charged.clone().into()),
                };
                let outer = head.extensions.remove();
                head.extensions.insert(charged.inside(outer));
                Ok((head, Some(on_response)))
            }
            Answer::Denied(charged) => {
                let mut response = self.rejection(&head, Rejection::denied(&charged));
                self.write_limits(&charged).add_to(response.headers_mut());
                Err(response)
            }
            Answer::Failed { error, limiter } => {
                let rejection = Rejection::failed(&error, limiter.as_deref());
                let exceeded = rejection.exceeded().map(|limit| self.describe(limit));
                let mut response = self.rejection(&head, rejection);
                if let Some(limit) = exceeded {
                    let fields = self.options.fields;
                    fields.add_policies_to(response.headers_mut(), &[limit]);
                }
                if let Some(limiter) = limiter.filter(|_| error.is_never_granted())
                    && self.options.exceeded.is_due()
                {
                    tracing::warn!(
                        limiter,
                        "a request costs more than the limit: such a request is never granted"
                    );
                }
                Err(response)
            }
        }
    }

    fn rejection<B>(&self, head: &Parts, rejection: Rejection<'_>) -> Response<B>
    where
        R: Reject<B>,
    {
        let jitter = random_up_to(self.options.jitter);
        let rejection = rejection.with_retry_times(self.options.outage, jitter);
        let mut response = self.reject.reject(&rejection);
        tracing::debug!(
            http.request.method = %head.method,
            http.response.status_code = response.status().as_u16(),
            "error.type" = rejection.reason().as_str(),
            "request rejected: {rejection}"
        );
        let failed = rejection
            .error()
            .filter(|_| rejection.reason() == Reason::Misconfigured);
        if let Some(error) = failed.filter(|_| self.options.misconfigured.is_due()) {
            // The event has only the kind of the error, because its text may contain a key.
            tracing::warn!(
                http.response.status_code = response.status().as_u16(),
                "error.type" = error.kind().as_str(),
                "requests fail because their limiter is set up wrongly: events of the level DEBUG have each error"
            );
        }
        if let Some(time) = rejection.retry_after() {
            let headers = response.headers_mut();
            headers
                .entry(RETRY_AFTER)
                .or_insert_with(|| retry_after(time));
        }
        response
    }

    /// The costs that a request with this response should have been charged, by the names of the
    /// limiters; a limiter whose charge stays is left out. `response` is `None` if the service
    /// returned an error.
    pub(crate) fn costs(
        &self,
        charged: &Charged,
        response: Option<&response::Parts>,
    ) -> HashMap<String, u32> {
        let ending = match response {
            Some(response) if !(self.options.is_failure)(response) => Ending::Success,
            _ => Ending::Failure,
        };
        let cost = |limiter: &str| match charged.counts(limiter, ending) {
            true => self.options.settle.as_ref()?(response?, limiter),
            false => Some(0),
        };
        let names = charged.names();
        let costs = names.filter_map(|limiter| Some((limiter.to_owned(), cost(limiter)?)));
        costs.collect()
    }

    /// Writes the header fields that state the limits.
    fn write_limits(&self, charged: &Charged) -> Written {
        let (limits, fields) = (charged.limits(), self.options.fields);
        if self.options.describe.is_none() {
            return fields.write(limits.as_slice());
        }
        let limits = limits.as_slice().iter().cloned();
        let described = limits.map(|limit| self.describe(limit));
        fields.write(&described.collect::<Vec<_>>())
    }

    /// Completes a limit with what the application knows about it.
    fn describe<'a>(&self, limit: Limit<'a>) -> Limit<'a> {
        match &self.options.describe {
            Some(describe) => describe(limit),
            None => limit,
        }
    }
}

/// The time of the last warning of a kind, which all services of a layer share.
#[derive(Clone, Default)]
pub(crate) struct LastWarning(Arc<Mutex<Option<Instant>>>);

impl LastWarning {
    /// Reports that a charge could not be settled: each one as an event of the level DEBUG, and as
    /// a warning at most once a minute.
    pub(crate) fn not_settled(&self, error: &Error) {
        tracing::debug!(%error, "the charge of a request is not settled");
        if self.is_due() {
            // The warning has only the kind of the error, because its text may contain a key.
            tracing::warn!(
                "error.type" = error.kind().as_str(),
                "charges are not settled, and stay as estimated: events of the level DEBUG have each error"
            );
        }
    }

    /// Whether the last warning was at least a minute ago. If so, records one now.
    fn is_due(&self) -> bool {
        const PAUSE: Duration = Duration::from_secs(60);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= PAUSE);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

impl<D: fmt::Debug, R> fmt::Debug for Settings<D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("decide", &self.decide)
            .field("fields", &self.options.fields)
            .field("wait", &self.options.wait)
            .finish_non_exhaustive()
    }
}

/// Whether a response has a status from 400 on, or a status of gRPC other than OK.
fn is_failure(response: &response::Parts) -> bool {
    let status = response.status;
    let of_grpc = response.headers.get("grpc-status");
    status.is_client_error() || status.is_server_error() || of_grpc.is_some_and(|it| it != "0")
}

/// A random time from zero to `most`.
fn random_up_to(most: Duration) -> Duration {
    if most.is_zero() {
        return most;
    }
    // Each `RandomState` has random keys, so the hash of nothing is a random number.
    let random = RandomState::new().build_hasher().finish();
    let upper_half = (random >> 32) as u32;
    most.mul_f64(f64::from(upper_half) / f64::from(u32::MAX))
}
