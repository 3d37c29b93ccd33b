//! Layers around each other: each charges by itself, and a handler sees what all have charged.

use std::convert::Infallible;

use http::{Request, Response};
use redisson_rate_limiter::{KeyedRateLimiter, Rate, RedissonClient};
use redisson_rate_limiter_tower::key::Everyone;
use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::fixture::{MINUTE, field, request};

/// The permits that the outer and the inner limiter have left of 20, of which a request was charged
/// 1 and 5, after a handler that does this.
async fn left_after(handler: impl AsyncFn(Charged) + Clone) -> [u64; 2] {
    left_after_settling(None, handler).await
}

/// What `left_after` returns if the inner layer settles its charge when the response comes: the
/// request then costs this there.
async fn left_after_settling(
    cost: Option<u32>,
    handler: impl AsyncFn(Charged) + Clone,
) -> [u64; 2] {
    let client = RedissonClient::in_memory();
    let [outer, inner] = ["calls", "tokens"].map(|name| {
        let limiter = client.keyed_rate_limiter(&format!("{name}:"), Rate::overall(20, MINUTE));
        limiter.unwrap().with_name(name)
    });
    let service = service_fn(|request: Request<String>| {
        let handler = handler.clone();
        async move {
            handler(request.extensions().get::<Charged>().unwrap().clone()).await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let service = RateLimitLayer::new(inner.clone(), Everyone)
        .cost(|_| 5)
        .settle(move |_| cost)
        .layer(service);
    let service = RateLimitLayer::new(outer.clone(), Everyone).layer(service);
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(field(&response, "ratelimit"), Some(r#""tokens";r=15;t=0"#));
    let all = response.headers().get_all("ratelimit");
    assert_eq!(all.iter().nth(1).unwrap(), r#""calls";r=19;t=0"#);
    let left = async |limiter: &KeyedRateLimiter| {
        let limiter = limiter.rate_limiter("everyone");
        limiter.available_permits().await.unwrap()
    };
    [left(&outer).await, left(&inner).await]
}

#[tokio::test(start_paused = true)]
async fn a_handler_gives_back_what_all_layers_have_charged() {
    let left = left_after(async |charged: Charged| {
        let names: Vec<_> = charged.by_limiter().map(|(name, _)| name).collect();
        assert_eq!(names, ["tokens", "calls"]);
        assert_eq!(charged.refund().await.unwrap(), 6);
    });
    assert_eq!(left.await, [20, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_settles_the_charge_of_the_innermost_layer() {
    let left = left_after(async |charged: Charged| {
        assert_eq!(charged.decision().unwrap().remaining(), 15);
        charged.settle(7).await.unwrap();
    });
    assert_eq!(left.await, [19, 13]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_settles_the_charge_of_each_layer_by_its_limiter() {
    let left = left_after(async |charged: Charged| {
        let cost = |limiter: &str| Some(if limiter == "calls" { 2 } else { 4 });
        charged.settle_each(cost).await.unwrap();
    });
    assert_eq!(left.await, [18, 16]);
}

#[tokio::test(start_paused = true)]
async fn a_response_settles_the_charge_of_its_own_layer_only() {
    let left = left_after_settling(Some(7), async |_| {});
    assert_eq!(left.await, [19, 13]);
}
