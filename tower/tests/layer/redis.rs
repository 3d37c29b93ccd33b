//! What only a Redis server shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis::AsyncCommands;
use redisson_rate_limiter::{Event, FailurePolicy, LimiterOptions, RedissonClient, Rule};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::{Everyone, Header, by};

use crate::fixture::{MINUTE, ask, field, of, per_minute, request};
use crate::support::Server;

async fn connect(server: &Server) -> RedissonClient {
    RedissonClient::builder()
        .response_timeout(MINUTE)
        .connect(&server.url())
        .await
        .unwrap()
}

#[tokio::test]
async fn all_rules_of_a_request_are_one_call() {
    let server = Server::start();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let client = RedissonClient::builder()
        .response_timeout(MINUTE)
        .on_event(move |event| {
            if matches!(event, Event::Call { .. }) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })
        .connect(&server.url())
        .await
        .unwrap();
    let rules = client.rules([
        Rule::new(per_minute(&client, 9), by(Header::new("x-user")), |_, _| ()),
        Rule::new(
            per_minute(&client, 90).with_prefix("all:").with_name("all"),
            by(Everyone),
            |_, _| (),
        ),
    ]);
    let layer = RateLimitLayer::by_rules(Arc::new(rules.unwrap()));
    let response = ask(&layer, of("alice")).await;
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""user";r=8;t=60, "all";r=89;t=60"#)
    );
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn neither_long_nor_secret_keys_reach_redis() {
    let server = Server::start();
    let client = connect(&server).await;
    use redisson_rate_limiter_tower::key::Key;
    let long = "k".repeat(1 << 20);
    let layer = RateLimitLayer::new(per_minute(&client, 9), Header::new("x-user"));
    assert_eq!(ask(&layer, of(&long)).await.status(), 200);
    let layer = RateLimitLayer::new(
        per_minute(&client, 9),
        Header::new("x-user").hashed("secret"),
    );
    assert_eq!(ask(&layer, of("sk-123")).await.status(), 200);
    let keys: Vec<String> = server.connection().await.keys("*").await.unwrap();
    assert!(!keys.is_empty());
    for key in keys {
        assert!(key.len() < 100 && !key.contains("sk-123"), "{key}");
    }
}

#[tokio::test]
async fn while_redis_is_down_the_failure_policy_says_who_gets_in() {
    let server = Server::start();
    let client = connect(&server).await;
    let layer = |policy| {
        let options = LimiterOptions::new().failure_policy(policy);
        RateLimitLayer::new(per_minute(&client, 9).with_options(options), Everyone)
    };
    assert_eq!(
        ask(&layer(FailurePolicy::Error), request()).await.status(),
        200
    );
    server.signal("KILL");
    for (policy, status) in [(FailurePolicy::Deny, 503), (FailurePolicy::Allow, 200)] {
        let response = ask(&layer(policy), request()).await;
        assert_eq!(response.status(), status);
        let retry_after = (status == 503).then_some("1");
        assert_eq!(field(&response, "retry-after"), retry_after);
    }
}

#[tokio::test]
async fn without_a_failure_policy_a_lost_redis_is_a_503() {
    let server = Server::start();
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let layer = RateLimitLayer::new(per_minute(&client, 9), Everyone);
    server.signal("KILL");
    let response = ask(&layer, request()).await;
    assert_eq!(
        (response.status().as_u16(), field(&response, "retry-after")),
        (503, Some("1"))
    );
}
