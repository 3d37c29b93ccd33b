//! The service that limits requests.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::decide::sealed::Decide;
use crate::decide::{Deciding, OneLimiter};
use crate::future::ResponseFuture;
use crate::reject::{ProblemJson, Reject};
use crate::settings::Settings;

/// A service whose requests are limited, made by a [`RateLimitLayer`](crate::RateLimitLayer).
pub struct RateLimit<S, D = OneLimiter, R = ProblemJson> {
    inner: S,
    settings: Arc<Settings<D, R>>,
}

impl<S, D, R> RateLimit<S, D, R> {
    pub(crate) fn new(inner: S, settings: Arc<Settings<D, R>>) -> Self {
        Self { inner, settings }
    }
}

impl<S: Clone, D, R> RateLimit<S, D, R> {
    /// Gives up what `poll_ready` has reserved in the inner service, such as one of a limited
    /// number of places, because the request is rejected, or reserves it again after its grant.
    fn release(&mut self) {
        self.inner = self.inner.clone();
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
        let skip = settings.options.skip.as_ref();
        if skip.is_some_and(|skip| skip(&head)) {
            let request = Request::from_parts(head, body);
            return ResponseFuture::passed(settings, self.inner.call(request), None);
        }
        match settings.decide.decide(head, settings.options.wait) {
            Deciding::Now(head, answer) => match settings.admit(head, answer) {
                Ok((head, on_response)) => {
                    let request = Request::from_parts(head, body);
                    ResponseFuture::passed(settings, self.inner.call(request), on_response)
                }
                Err(response) => {
                    self.release();
                    ResponseFuture::rejected(settings, response)
                }
            },
            Deciding::Later(decision) => {
                self.release();
                ResponseFuture::deciding(settings, decision, self.inner.clone(), body)
            }
        }
    }
}
