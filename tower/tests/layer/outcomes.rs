//! What is charged when something goes wrong: once, and nothing is kept.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use http::request::Parts;
use http::{Request, Response};
use redisson_rate_limiter::{
    Event, FixedWindow, MemoryStore, PolicyLimiter, Rate, RedissonClient, Rule,
};
use redisson_rate_limiter_tower::key::{Everyone, Header};
use redisson_rate_limiter_tower::{ByRules, Charged, RateLimitLayer};
use tokio::sync::mpsc;
use tokio::time::{advance, timeout};
use tower::util::Either;
use tower::{Layer, ServiceExt, service_fn};

use crate::fixture::{Handled, MINUTE, ask, by_rules, left, of, per_minute, request};
use crate::support::Server;

/// A layer that charges 1 of 3 a minute, or of a request for `/heavy` all of them.
struct Case {
    layer: Either<RateLimitLayer, RateLimitLayer<ByRules>>,
    limiter: PolicyLimiter<FixedWindow>,
    /// Gets an item for each request that is denied.
    denied: mpsc::UnboundedReceiver<()>,
    _server: Option<Server>,
}

/// One limiter and rules, in memory and in Redis. A request that has to wait waits.
async fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for is_in_redis in [false, true] {
        for has_rules in [false, true] {
            let (denial, denied) = mpsc::unbounded_channel();
            let builder = RedissonClient::builder().response_timeout(MINUTE);
            let builder = builder.on_event(move |event| {
                if matches!(event, Event::Request { result, .. } if result.as_str() == "denied") {
                    let _ = denial.send(());
                }
            });
            let server = is_in_redis.then(Server::start);
            let client = match &server {
                Some(server) => builder.connect(&server.url()).await.unwrap(),
                None => builder.in_memory(&MemoryStore::new()),
            };
            let limiter = per_minute(&client, 3);
            let cost = |request: &Parts| if request.uri.path() == "/heavy" { 3 } else { 1 };
            let as_text = move |request: &Parts| Some(cost(request).to_string());
            let layer = if has_rules {
                let rule = Rule::new(limiter.clone()).by(["user"]);
                let rules = Arc::new(client.rules([rule]).unwrap());
                Either::Right(
                    by_rules(rules)
                        .attribute("user", Everyone)
                        .attribute("cost", as_text)
                        .wait_up_to(2 * MINUTE),
                )
            } else {
                let layer = RateLimitLayer::new(limiter.clone(), Everyone);
                Either::Left(layer.cost(cost).wait_up_to(2 * MINUTE))
            };
            cases.push(Case {
                layer,
                limiter,
                denied,
                _server: server,
            });
        }
    }
    cases
}

#[tokio::test]
async fn a_handler_that_panics_has_charged_once_and_the_next_goes_on() {
    for Case {
        layer,
        limiter,
        _server,
        ..
    } in cases().await
    {
        let handler = service_fn(|request: Request<String>| async move {
            assert!(request.body().is_empty(), "the handler panics");
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let service = layer.layer(handler);
        let panics = service.clone().oneshot(Request::new("x".to_owned()));
        let panicked = tokio::spawn(panics).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(left(&limiter, "everyone").await, 2);
        assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
        assert_eq!(left(&limiter, "everyone").await, 1);
    }
}

#[tokio::test]
async fn a_body_that_is_never_read_is_charged_once() {
    /// A body that is neither `Send` nor `Default`, nor an `http_body::Body` that could be read.
    struct Unread(std::rc::Rc<()>);

    for Case {
        layer,
        limiter,
        _server,
        ..
    } in cases().await
    {
        let handler = service_fn(|request: Request<Unread>| async move {
            drop(request);
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        let body = Unread(std::rc::Rc::new(()));
        let kept = std::rc::Rc::clone(&body.0);
        let response = layer.layer(handler).oneshot(Request::new(body)).await;
        drop(response.unwrap()); // without reading its body
        assert_eq!(left(&limiter, "everyone").await, 2);
        assert_eq!(std::rc::Rc::strong_count(&kept), 1);
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_waits_is_not_charged() {
    for mut case in cases().await {
        let handled = Handled::default();
        let service = case.layer.layer(handled.service());
        service.clone().oneshot(request()).await.unwrap();
        let heavy = Request::get("/heavy").body(String::new()).unwrap();
        tokio::select! {
            _ = service.oneshot(heavy) => panic!("it is let through"),
            denied = case.denied.recv() => assert_eq!(denied, Some(())),
        }
        assert_eq!(left(&case.limiter, "everyone").await, 2);
        assert_eq!(handled.count(), 1);
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_is_handled_was_charged_once() {
    for Case {
        layer,
        limiter,
        _server,
        ..
    } in cases().await
    {
        let (handling, mut handled) = mpsc::unbounded_channel();
        let handler = service_fn(move |_: Request<String>| {
            handling.send(()).unwrap();
            pending::<Result<Response<String>, Infallible>>()
        });
        tokio::select! {
            _ = layer.layer(handler).oneshot(request()) => panic!("it is never answered"),
            handled = handled.recv() => assert_eq!(handled, Some(())),
        }
        assert_eq!(left(&limiter, "everyone").await, 2);
    }
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
        assert_eq!(charged.decision().unwrap().remaining(), 3);
        assert_eq!(charged.refund().await.unwrap(), 2);
        assert_eq!(charged.refund().await.unwrap(), 0);
        charged.settle(1).await.unwrap();
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = layer.layer(handler);
    service.oneshot(of("alice")).await.unwrap();
    assert_eq!(limiter.peek("alice", 1).await.unwrap().remaining(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_no_charge_of_a_request_that_no_rule_applies_to() {
    let client = RedissonClient::in_memory();
    let rule = Rule::new(per_minute(&client, 1)).by(["user"]);
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
    for (asked, is_charged) in [(of("alice"), true), (request(), false)] {
        let handler = service_fn(move |request: Request<String>| async move {
            let charged = request.extensions().get::<Charged>();
            assert_eq!(charged.is_some(), is_charged);
            Ok::<_, Infallible>(Response::new(String::new()))
        });
        layer.layer(handler).oneshot(asked).await.unwrap();
    }
}
