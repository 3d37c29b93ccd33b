//! Costs that are known only afterwards.

use std::convert::Infallible;

use http::{Request, Response};
use redisson_rate_limiter::{KeyedRateLimiter, Rate, RedissonClient};
use redisson_rate_limiter_tower::key::Header;
use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::fixture::{MINUTE, left, of, per_minute};

/// A layer that charges 5, and then what the response says.
fn layer(limiter: impl redisson_rate_limiter::Limiter + 'static) -> RateLimitLayer {
    RateLimitLayer::new(limiter, Header::new("x-user"))
        .cost(|_| 5)
        .settle(|response| response.headers.get("x-cost")?.to_str().ok()?.parse().ok())
}

/// The response to a request that has cost so much.
async fn ask(layer: &RateLimitLayer, cost: &'static str) -> Response<String> {
    let handler = service_fn(move |_: Request<String>| async move {
        let response = Response::builder().header("x-cost", cost);
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    layer.layer(handler).oneshot(of("alice")).await.unwrap()
}

fn limiter(rate: u64) -> KeyedRateLimiter {
    let client = RedissonClient::in_memory();
    client
        .keyed_rate_limiter("tokens:", Rate::overall(rate, MINUTE))
        .unwrap()
}

async fn available(limiter: &KeyedRateLimiter) -> u64 {
    limiter
        .rate_limiter("alice")
        .available_permits()
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_costs_what_its_response_says() {
    for (cost, expected) in [
        ("5", 15),
        ("2", 18),
        ("0", 20),
        ("9", 11),
        ("20", 0),
        ("unknown", 15),
    ] {
        let limiter = limiter(20);
        assert_eq!(ask(&layer(limiter.clone()), cost).await.status(), 200);
        assert_eq!(available(&limiter).await, expected, "{cost}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_limiter_has_not_is_not_charged() {
    let limiter = limiter(7);
    assert_eq!(ask(&layer(limiter.clone()), "10000").await.status(), 200);
    assert_eq!(available(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_charged_the_difference_and_gives_nothing_back() {
    let limiter = per_minute(&RedissonClient::in_memory(), 20);
    ask(&layer(limiter.clone()), "2").await;
    assert_eq!(left(&limiter, "alice").await, 15);
    ask(&layer(limiter.clone()), "7").await;
    assert_eq!(left(&limiter, "alice").await, 8);
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_is_not_settled() {
    let limiter = limiter(6);
    let layer = layer(limiter.clone());
    assert_eq!(ask(&layer, "3").await.status(), 200);
    assert_eq!(ask(&layer, "3").await.status(), 429);
    assert_eq!(available(&limiter).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_once() {
    let limiter = limiter(20);
    let handler = service_fn(|request: Request<String>| async move {
        let charged = request.extensions().get::<Charged>().unwrap();
        charged.settle(7).await.unwrap();
        charged.settle(9).await.unwrap();
        assert_eq!(charged.clone().refund().await.unwrap(), 0);
        let response = Response::builder().header("x-cost", "11");
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    let service = layer(limiter.clone()).layer(handler);
    service.oneshot(of("alice")).await.unwrap();
    assert_eq!(available(&limiter).await, 13);
}
