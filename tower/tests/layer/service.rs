//! The contract of a service: ready before it is called, and a clone is another one.

use std::cell::Cell;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Response};
use redisson_rate_limiter::{BoxFuture, Decision, Granted, Limiter, Quota, RedissonClient, Result};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Everyone;
use tower::{Layer, Service, ServiceExt};

use crate::fixture::{MINUTE, per_minute, request};

/// A service that is ready once for each poll, and not ready when it is cloned. It is not `Send`.
#[derive(Default)]
struct Strict {
    is_ready: bool,
    calls: Rc<Cell<u32>>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self {
            is_ready: false,
            calls: Rc::clone(&self.calls),
        }
    }
}

/// An error that has no trait at all.
struct Broken;

impl Service<Request<String>> for Strict {
    type Response = Response<String>;
    type Error = Broken;
    type Future = Ready<std::result::Result<Response<String>, Broken>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<std::result::Result<(), Broken>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.is_ready),
            "called before it was ready"
        );
        self.calls.set(self.calls.get() + 1);
        ready(if request.body().is_empty() {
            Ok(Response::new(String::new()))
        } else {
            Err(Broken)
        })
    }
}

/// A limiter that decides at once.
#[derive(Debug)]
struct AtOnce;

impl Limiter for AtOnce {
    fn check<'a>(&'a self, _key: &'a str, _cost: u32) -> BoxFuture<'a, Result<Decision>> {
        Box::pin(async move { unreachable!("it was decided at once") })
    }

    fn check_now(&self, _key: &str, _cost: u32) -> Option<Result<Decision>> {
        Some(Ok(Granted::new(1)
            .with_quota(Quota::new(5, MINUTE))
            .with_remaining(4)
            .into()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_is_ready_is_the_one_that_is_called() {
    let strict = Strict::default();
    let calls = Rc::clone(&strict.calls);
    let limiter = per_minute(&RedissonClient::in_memory(), 9);
    let layers = [
        RateLimitLayer::new(AtOnce, Everyone),
        RateLimitLayer::new(limiter.clone(), Everyone),
        RateLimitLayer::with_async_key(limiter, |_| Box::pin(async { None })),
        RateLimitLayer::new(AtOnce, Everyone).skip(|_| true),
    ];
    for (place, layer) in (1..).zip(layers) {
        let mut service = layer.layer(strict.clone());
        for _ in 0..2 {
            let response = service.ready().await.ok().unwrap().call(request());
            assert_eq!(response.await.ok().unwrap().status(), 200);
        }
        assert_eq!(calls.get(), 2 * place);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_service_may_overlap() {
    let limiter = per_minute(&RedissonClient::in_memory(), 9);
    let layer = RateLimitLayer::with_async_key(limiter, |_| {
        Box::pin(async {
            tokio::task::yield_now().await;
            None
        })
    });
    let mut service = layer.layer(Strict::default());
    let first = service.ready().await.ok().unwrap().call(request());
    let second = service.ready().await.ok().unwrap().call(request());
    let (second, first) = tokio::join!(second, first);
    assert!(first.is_ok() && second.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_service_is_untouched() {
    let service = RateLimitLayer::new(AtOnce, Everyone).layer(Strict::default());
    let failed = service.oneshot(Request::new("break".to_owned())).await;
    assert!(matches!(failed, Err(Broken)));
}
