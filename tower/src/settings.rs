//! What a layer is told, and what it does with a decision.

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

type OfRequest<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;
/// What a limiter of this name should have charged.
type Settle = Arc<dyn Fn(&response::Parts, &str) -> Option<u32> + Send + Sync>;
/// Whether a response says that its request has failed.
type IsFailure = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;
type Describe = Arc<dyn for<'a> Fn(Limit<'a>) -> Limit<'a> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Settings<D, R> {
    pub(crate) decide: D,
    pub(crate) reject: R,
    pub(crate) fields: Fields,
    pub(crate) describe: Option<Describe>,
    pub(crate) skip: Option<OfRequest<bool>>,
    pub(crate) settle: Option<Settle>,
    pub(crate) is_failure: IsFailure,
    pub(crate) wait: Duration,
    pub(crate) outage: Duration,
    pub(crate) jitter: Duration,
    pub(crate) warned: Warned,
    pub(crate) exceeded: Warned,
    pub(crate) unsettled: Warned,
}

/// What is left to do with the response to a request that was let through.
pub(crate) struct Left {
    pub(crate) written: Written,
    /// What the response settles.
    pub(crate) charged: Option<Box<Charged>>,
}

impl<D, R> Settings<D, R> {
    /// The head that goes to the service, or the response of the request that does not.
    pub(crate) fn admit<B>(
        &self,
        mut head: Parts,
        answer: Answer,
    ) -> Result<(Parts, Option<Left>), Response<B>>
    where
        R: Reject<B>,
    {
        match answer {
            Answer::Free => Ok((head, None)),
            Answer::Granted(charged) => {
                let left = Left {
                    written: self.written(&charged),
                    charged: (self.settle.is_some() || charged.depends_on_ending())
                        .then(|| charged.clone().into()),
                };
                let outer = head.extensions.remove();
                head.extensions.insert(charged.inside(outer));
                Ok((head, Some(left)))
            }
            Answer::Denied(charged) => {
                let mut response = self.rejection(&head, Rejection::denied(&charged));
                self.written(&charged).add_to(response.headers_mut());
                Err(response)
            }
            Answer::Failed { error, limiter } => {
                let rejection = Rejection::failed(&error, limiter.as_deref());
                let exceeded = rejection.exceeded().map(|limit| self.limit(limit));
                let mut response = self.rejection(&head, rejection);
                if let Some(limit) = exceeded {
                    self.fields
                        .add_policies_to(response.headers_mut(), &[limit]);
                }
                if let Some(limiter) = limiter.filter(|_| error.is_never_granted())
                    && self.exceeded.is_due()
                {
                    tracing::warn!(
                        limiter,
                        "a request costs more than the limit: it is never granted"
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
        let rejection = rejection.retried(self.outage, random_up_to(self.jitter));
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
        if let Some(error) = failed.filter(|_| self.warned.is_due()) {
            // The text of an error may have a key in it.
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

    /// What the limiters should have charged a request with this response, by their names; `None`
    /// if the service has failed without one.
    pub(crate) fn costs(
        &self,
        charged: &Charged,
        response: Option<&response::Parts>,
    ) -> HashMap<String, u32> {
        let ending = match response {
            Some(response) if !(self.is_failure)(response) => Ending::Success,
            _ => Ending::Failure,
        };
        let cost = |limiter: &str| match charged.counts(limiter, ending) {
            true => self.settle.as_ref()?(response?, limiter),
            false => Some(0),
        };
        let names = charged.names();
        let costs = names.filter_map(|limiter| Some((limiter.to_owned(), cost(limiter)?)));
        costs.collect()
    }

    /// The fields that state the limits.
    fn written(&self, charged: &Charged) -> Written {
        let limits = charged.limits();
        if self.describe.is_none() {
            return self.fields.write(limits.as_slice());
        }
        let described = limits.as_slice().iter().cloned().map(|it| self.limit(it));
        self.fields.write(&described.collect::<Vec<_>>())
    }

    /// A limit as the application describes it.
    fn limit<'a>(&self, limit: Limit<'a>) -> Limit<'a> {
        match &self.describe {
            Some(describe) => describe(limit),
            None => limit,
        }
    }
}

/// When there was a warning last: one for all services of a layer.
#[derive(Clone, Default)]
pub(crate) struct Warned(Arc<Mutex<Option<Instant>>>);

impl Warned {
    /// Tells that a charge stays as it was estimated.
    pub(crate) fn not_settled(&self, error: &Error) {
        tracing::debug!(%error, "the charge of a request is not settled");
        if self.is_due() {
            // The text of an error may have a key in it.
            tracing::warn!(
                "error.type" = error.kind().as_str(),
                "charges are not settled, and stay as estimated: events of the level DEBUG have each error"
            );
        }
    }

    /// Once a minute.
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
            .field("fields", &self.fields)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

/// Whether a response has a status from 400 on, or of gRPC one other than OK.
pub(crate) fn is_failure(response: &response::Parts) -> bool {
    let status = response.status;
    let of_grpc = response.headers.get("grpc-status");
    status.is_client_error() || status.is_server_error() || of_grpc.is_some_and(|it| it != "0")
}

fn random_up_to(most: Duration) -> Duration {
    if most.is_zero() {
        return most;
    }
    // Each hasher of the standard library has keys of its own.
    let random = RandomState::new().build_hasher().finish();
    let part = (random >> 32) as u32;
    most.mul_f64(f64::from(part) / f64::from(u32::MAX))
}
