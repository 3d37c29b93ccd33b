//! The layer in the servers that it is for.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Extension, Router};
use http::Request;
use redisson_rate_limiter::{Rate, RedissonClient};
use redisson_rate_limiter_tower::key::{ClientAddress, Header};
use redisson_rate_limiter_tower::reject::Grpc;
use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;
use tower::ServiceExt;

use crate::fixture::{MINUTE, per_minute};

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
        charged.decision().unwrap().remaining().to_string()
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

#[tokio::test]
async fn a_client_of_tonic_reads_why_and_for_how_long_it_is_denied() {
    let limiter = RedissonClient::in_memory()
        .keyed_rate_limiter("calls:", Rate::overall(2, MINUTE))
        .unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), Header::new("x-user")).reject_with(Grpc);
    let (_, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().layer(layer).add_service(health);
    let server = tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let mut check = async |user: &'static str| {
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request
            .metadata_mut()
            .insert("x-user", user.parse().unwrap());
        client.check(request).await.map(tonic::Response::into_inner)
    };
    for _ in 0..2 {
        assert_eq!(check("alice").await.unwrap().status, 1); // it serves
    }
    let denied = check("alice").await.unwrap_err();
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted);
    assert_eq!(denied.message(), "rate limit exceeded");
    let details = denied.get_error_details();
    let delay = details.retry_info().and_then(|it| it.retry_delay).unwrap();
    assert!(Duration::ZERO < delay && delay <= MINUTE + Duration::from_millis(3));
    let violations = &details.quota_failure().unwrap().violations;
    let violations: Vec<_> = violations
        .iter()
        .map(|it| (&*it.subject, &*it.description))
        .collect();
    assert_eq!(violations, [("calls:", "2 per 60s")]);
    assert_eq!(check("bob").await.unwrap().status, 1);
    let retry_after = denied.metadata().get("retry-after").unwrap();
    assert_eq!(
        retry_after.to_str().unwrap(),
        delay.as_secs_f64().ceil().to_string()
    );
    server.abort();
}
