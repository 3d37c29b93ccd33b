//! The service.

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

impl<S: Clone, D, R> RateLimit<S, D, R> {
    /// Gives up what the service has set aside for a request, such as one of a limited number of
    /// places: the request is rejected, or waits and takes a place once it is granted.
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
