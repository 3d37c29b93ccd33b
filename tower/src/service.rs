//! The service.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use crate::charged::Charged;
use crate::decide::sealed::Decide;
use crate::decide::{Answer, Deciding, OneLimiter};
use crate::fields::{Written, retry_after};
use crate::future::ResponseFuture;
use crate::layer::Settings;
use crate::reject::{ProblemJson, Reject, Rejection};

/// A service whose requests are limited: from [`RateLimitLayer`](crate::RateLimitLayer).
pub struct RateLimit<S, D = OneLimiter, R = ProblemJson> {
    inner: S,
    settings: Arc<Settings<D, R>>,
}

impl<S, D, R> RateLimit<S, D, R> {
    pub(crate) fn new(inner: S, settings: Arc<Settings<D, R>>) -> Self {
        Self { inner, settings }
    }
}

impl<S: Clone, D, R> Clone for RateLimit<S, D, R> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.settings))
    }
}

impl<S: fmt::Debug, D: fmt::Debug, R> fmt::Debug for RateLimit<S, D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("settings", &self.settings)
            .finish()
    }
}

impl<S, D, R, ReqBody, ResBody> Service<Request<ReqBody>> for RateLimit<S, D, R>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    D: Decide,
    R: Reject<ResBody>,
{
    type Response = Response<ResBody>;
    type Error = S::Error;
    type Future = ResponseFuture<S, D, R, ReqBody>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        let (head, body) = request.into_parts();
        if settings.skip.as_ref().is_some_and(|skip| skip(&head)) {
            let request = Request::from_parts(head, body);
            return ResponseFuture::passed(settings, self.inner.call(request), None);
        }
        match settings.decide.decide(head, settings.wait) {
            Deciding::Now(head, answer) => match settings.admit(head, answer) {
                Ok((head, left)) => {
                    let request = Request::from_parts(head, body);
                    ResponseFuture::passed(settings, self.inner.call(request), left)
                }
                Err(response) => ResponseFuture::rejected(settings, response),
            },
            Deciding::Later(decision) => {
                // The one that is ready goes along, and its clone stays.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(settings, decision, ready, body)
            }
        }
    }
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
                    charged: self.settle.is_some().then(|| charged.clone().into()),
                };
                head.extensions.insert(charged);
                Ok((head, Some(left)))
            }
            Answer::Denied(charged) => {
                let mut response = self.rejection(&head, Rejection::denied(&charged));
                self.written(&charged).add_to(response.headers_mut());
                Err(response)
            }
            Answer::Failed(error) => Err(self.rejection(&head, Rejection::failed(&error))),
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
        if let Some(time) = rejection.retry_after() {
            let headers = response.headers_mut();
            headers
                .entry(RETRY_AFTER)
                .or_insert_with(|| retry_after(time));
        }
        response
    }

    /// The fields that state the limits.
    fn written(&self, charged: &Charged) -> Written {
        self.fields.write(charged.limits().as_slice())
    }
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
