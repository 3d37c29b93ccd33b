//! What is charged when something goes wrong: once, and nothing is kept.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use http::{Request, Response};
use redisson_rate_limiter::{Rate, RedissonClient};
use redisson_rate_limiter_tower::key::{Everyone, Header};
use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
use tokio::time::{advance, timeout};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::fixture::{Handled, MINUTE, ask, left, of, per_minute, request};

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_has_charged_once_and_the_next_goes_on() {
    let limiter = per_minute(&RedissonClient::in_memory(), 3);
    let layer = RateLimitLayer::new(limiter.clone(), Header::new("x-user"));
    let handler = service_fn(|request: Request<String>| async move {
        assert!(request.body().is_empty(), "the handler panics");
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = layer.layer(handler);
    let panics = Request::builder()
        .header("x-user", "alice")
        .body("x".to_owned())
        .unwrap();
    let panicked = tokio::spawn(service.clone().oneshot(panics)).await;
    assert!(panicked.unwrap_err().is_panic());
    assert_eq!(left(&limiter, "alice").await, 2);
    assert_eq!(service.oneshot(of("alice")).await.unwrap().status(), 200);
    assert_eq!(left(&limiter, "alice").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_never_read_is_charged_once() {
    /// A body that is neither `Send` nor `Default`, and fails who reads it.
    struct Unread(std::rc::Rc<()>);

    let limiter = per_minute(&RedissonClient::in_memory(), 3);
    let layer = RateLimitLayer::new(limiter.clone(), Everyone);
    let handler = service_fn(|request: Request<Unread>| async move {
        drop(request);
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let body = Unread(std::rc::Rc::new(()));
    let kept = std::rc::Rc::clone(&body.0);
    let response = layer
        .layer(handler)
        .oneshot(Request::new(body))
        .await
        .unwrap();
    drop(response); // without reading its body
    assert_eq!(left(&limiter, "everyone").await, 2);
    assert_eq!(std::rc::Rc::strong_count(&kept), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_takes_nothing() {
    let client = RedissonClient::in_memory();
    let limiter = client
        .rate_limiter("api")
        .with_rate(Rate::overall(1, MINUTE))
        .unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), Everyone).wait_up_to(2 * MINUTE);
    let handled = Handled::default();
    let service = layer.layer(handled.service());
    service.clone().oneshot(request()).await.unwrap();
    let waiting = service.clone().oneshot(request());
    timeout(MINUTE / 2, waiting).await.unwrap_err();
    advance(MINUTE).await;
    assert_eq!(
        (limiter.available_permits().await.unwrap(), handled.count()),
        (1, 1)
    );
    // One that waits is served.
    service.clone().oneshot(request()).await.unwrap();
    service.oneshot(request()).await.unwrap();
    assert_eq!(handled.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_is_handled_was_charged_once() {
    let limiter = per_minute(&RedissonClient::in_memory(), 3);
    let layer = RateLimitLayer::new(limiter.clone(), Everyone);
    let handler =
        service_fn(|_: Request<String>| pending::<Result<Response<String>, Infallible>>());
    let mut service = layer.layer(handler);
    {
        let mut response = pin!(service.call(request()));
        for _ in 0..3 {
            poll_fn(|context| {
                assert!(response.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
    }
    assert_eq!(left(&limiter, "everyone").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_skipped_request_and_one_that_costs_nothing_are_not_charged() {
    let limiter = per_minute(&RedissonClient::in_memory(), 3);
    let layer = RateLimitLayer::new(limiter.clone(), Everyone)
        .skip(|request| request.uri.path() == "/healthz")
        .cost(|request| if request.uri.path() == "/heavy" { 2 } else { 0 });
    for path in ["/healthz", "/light"] {
        let response = ask(&layer, Request::get(path).body(String::new()).unwrap()).await;
        assert_eq!(
            (response.status().as_u16(), response.headers().len()),
            (200, 0),
            "{path}"
        );
    }
    assert_eq!(left(&limiter, "everyone").await, 3);
    for status in [200, 429] {
        let response = ask(&layer, Request::get("/heavy").body(String::new()).unwrap()).await;
        assert_eq!(response.status(), status);
    }
    assert_eq!(left(&limiter, "everyone").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_decision_and_gives_the_charge_back_once() {
    let client = RedissonClient::in_memory();
    let limiter = client
        .keyed_rate_limiter("api:", Rate::overall(5, MINUTE))
        .unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), Header::new("x-user")).cost(|_| 2);
    let handler = service_fn(|request: Request<String>| async move {
        let charged = request.extensions().get::<Charged>().unwrap().clone();
        let names: Vec<_> = charged
            .by_limiter()
            .map(|(name, it)| (name, it.remaining()))
            .collect();
        assert_eq!(names, [("api:", 3)]);
        assert_eq!(charged.decision().remaining(), 3);
        assert_eq!(charged.refund().await.unwrap(), 2);
        assert_eq!(charged.refund().await.unwrap(), 0);
        charged.settle(1).await.unwrap();
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = layer.layer(handler);
    service.oneshot(of("alice")).await.unwrap();
    assert_eq!(limiter.peek("alice", 1).await.unwrap().remaining(), 4);
}
