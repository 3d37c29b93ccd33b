//! The layer in the servers that it is for.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Extension, Router};
use http::Request;
use redisson_rate_limiter::RedissonClient;
use redisson_rate_limiter_tower::key::{ClientAddress, Everyone};
use redisson_rate_limiter_tower::reject::Grpc;
use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
use tower::{Layer, ServiceExt};

use crate::fixture::per_minute;

#[tokio::test(start_paused = true)]
async fn a_router_of_axum_takes_the_layer() {
    let client = RedissonClient::in_memory();
    let layer = RateLimitLayer::new(
        per_minute(&client, 1),
        ClientAddress::peer().with_peer(|request| {
            request
                .extensions
                .get::<ConnectInfo<SocketAddr>>()
                .map(|it| it.0.ip())
        }),
    );
    let left = |Extension(charged): Extension<Charged>| async move {
        charged.decision().remaining().to_string()
    };
    let router = Router::new().route("/", get(left)).layer(layer);
    let ask = async |peer: [u8; 4]| {
        let peer = ConnectInfo(SocketAddr::from((peer, 80)));
        let request = Request::builder()
            .extension(peer)
            .body(Body::empty())
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        (status, body.to_bytes())
    };
    assert_eq!(ask([192, 0, 2, 1]).await, (200, "0".into()));
    let (status, body) = ask([192, 0, 2, 1]).await;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status, &body["violated-policies"][0]),
        (429, &"user".into())
    );
    assert_eq!(ask([192, 0, 2, 2]).await.0, 200);
}

#[cfg(feature = "axum")]
#[tokio::test(start_paused = true)]
async fn axum_says_the_peer_and_the_route() {
    use redisson_rate_limiter_tower::key::{Key, Route};

    let client = RedissonClient::in_memory();
    let limiter = per_minute(&client, 1);
    let layer = RateLimitLayer::new(limiter.clone(), Route.and(ClientAddress::peer()));
    let router = Router::new()
        .route("/users/{id}", get(|| async {}))
        .layer(layer);
    for (path, status) in [("/users/1", 200), ("/users/2", 429)] {
        let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 80)));
        let request = Request::get(path)
            .extension(peer)
            .body(Body::empty())
            .unwrap();
        assert_eq!(
            router.clone().oneshot(request).await.unwrap().status(),
            status
        );
    }
    assert_eq!(
        crate::fixture::left(&limiter, "/users/{id}:192.0.2.1").await,
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_of_tonic_takes_the_layer() {
    let client = RedissonClient::in_memory();
    let layer = RateLimitLayer::new(per_minute(&client, 1), Everyone).reject_with(Grpc);
    let handler = tower::service_fn(|_: Request<tonic::body::Body>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(tonic::body::Body::empty()))
    });
    let service = layer.layer(handler);
    let ask = async || {
        let request = Request::new(tonic::body::Body::empty());
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        tonic::Status::from_header_map(response.headers()).map(|it| it.code())
    };
    assert_eq!(ask().await, None);
    assert_eq!(ask().await, Some(tonic::Code::ResourceExhausted));
}
