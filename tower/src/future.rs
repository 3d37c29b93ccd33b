//! The response to a request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use redisson_rate_limiter::BoxFuture;
use tower_service::Service;

use crate::charged::Charged;
use crate::decide::Later;
use crate::reject::Reject;
use crate::settings::{OnResponse, Settings};

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) to a request.
    pub struct ResponseFuture<S, D, R, B>
    where
        S: Service<Request<B>>,
    {
        settings: Arc<Settings<D, R>>,
        // What to do with the response. `None` before the decision and for unlimited requests.
        on_response: Option<OnResponse>,
        #[pin]
        state: State<S, S::Future, S::Response, S::Error, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, F, P, E, B> {
        Deciding { decision: Later, service: Option<S>, body: Option<B> },
        Admitted { service: S, request: Option<Request<B>>, uncalled: Uncalled },
        Running { #[pin] response: F },
        Settling {
            settling: BoxFuture<'static, ()>,
            response: Option<Result<P, E>>,
        },
        Rejected { response: Option<P> },
    }
}

impl<S, D, R, B> ResponseFuture<S, D, R, B>
where
    S: Service<Request<B>>,
{
    /// The future of a request that was passed to the service at once.
    pub(crate) fn passed(
        settings: Arc<Settings<D, R>>,
        response: S::Future,
        on_response: Option<OnResponse>,
    ) -> Self {
        Self {
            settings,
            on_response,
            state: State::Running { response },
        }
    }

    /// The future of a request that was rejected at once.
    pub(crate) fn rejected(settings: Arc<Settings<D, R>>, response: S::Response) -> Self {
        let response = Some(response);
        Self {
            settings,
            on_response: None,
            state: State::Rejected { response },
        }
    }

    /// The future of a request whose decision takes time; `service` is called if it is granted.
    pub(crate) fn deciding(
        settings: Arc<Settings<D, R>>,
        decision: Later,
        service: S,
        body: B,
    ) -> Self {
        let (service, body) = (Some(service), Some(body));
        Self {
            settings,
            on_response: None,
            state: State::Deciding {
                decision,
                service,
                body,
            },
        }
    }
}

/// The charge of a granted request until the service is called. Dropping it gives the charge back
/// in the background.
struct Uncalled(Option<Charged>);

impl Uncalled {
    fn give_back(&mut self) {
        if let Some(charged) = self.0.take() {
            charged.refund_in_background();
        }
    }
}

impl Drop for Uncalled {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The panic message if the future is polled after it was ready, which callers must not do.
const POLLED_AGAIN: &str = "polled after it was ready";

impl<S, D, R, ReqBody, ResBody> Future for ResponseFuture<S, D, R, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    R: Reject<ResBody>,
{
    type Output = Result<Response<ResBody>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Deciding {
                    decision,
                    service,
                    body,
                } => {
                    let (head, answer) = ready!(decision.as_mut().poll(context));
                    match this.settings.admit(head, answer) {
                        Ok((head, on_response)) => {
                            let charged = head.extensions.get::<Charged>();
                            let charged = charged.filter(|_| on_response.is_some());
                            let uncalled = Uncalled(charged.map(Charged::of_this_layer));
                            *this.on_response = on_response;
                            let body = body.take().expect(POLLED_AGAIN);
                            State::Admitted {
                                service: service.take().expect(POLLED_AGAIN),
                                request: Some(Request::from_parts(head, body)),
                                uncalled,
                            }
                        }
                        Err(response) => State::Rejected {
                            response: Some(response),
                        },
                    }
                }
                StateProjection::Admitted {
                    service,
                    request,
                    uncalled,
                } => {
                    if let Err(error) = ready!(service.poll_ready(context)) {
                        uncalled.give_back();
                        return Poll::Ready(Err(error));
                    }
                    uncalled.0 = None;
                    let request = request.take().expect(POLLED_AGAIN);
                    State::Running {
                        response: service.call(request),
                    }
                }
                StateProjection::Running { response } => {
                    let response = ready!(response.poll(context));
                    let Some(OnResponse { written, charged }) = this.on_response.take() else {
                        return Poll::Ready(response);
                    };
                    let response = response.map(|mut response| {
                        written.add_to(response.headers_mut());
                        response
                    });
                    let Some(charged) = charged else {
                        return Poll::Ready(response);
                    };
                    let (costs, response) = match response {
                        Ok(response) => {
                            let (head, body) = response.into_parts();
                            let costs = this.settings.costs(&charged, Some(&head));
                            (costs, Ok(Response::from_parts(head, body)))
                        }
                        Err(error) => (this.settings.costs(&charged, None), Err(error)),
                    };
                    if costs.is_empty() {
                        return Poll::Ready(response);
                    }
                    let unsettled = this.settings.options.unsettled.clone();
                    let settling = Box::pin(async move {
                        let cost = |limiter: &str| costs.get(limiter).copied();
                        if let Err(error) = charged.settle_each(cost).await {
                            unsettled.not_settled(&error);
                        }
                    });
                    State::Settling {
                        settling,
                        response: Some(response),
                    }
                }
                StateProjection::Settling { settling, response } => {
                    ready!(settling.as_mut().poll(context));
                    return Poll::Ready(response.take().expect(POLLED_AGAIN));
                }
                StateProjection::Rejected { response } => {
                    return Poll::Ready(Ok(response.take().expect(POLLED_AGAIN)));
                }
            };
            this.state.set(next);
        }
    }
}
