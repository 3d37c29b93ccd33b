//! What only a Redis server shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use redis::AsyncCommands;
use redisson_rate_limiter::{
    Event, FailurePolicy, FixedWindow, LimiterOptions, RedissonClient, Rule,
};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::{Everyone, Header};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::{Layer, ServiceExt};

use crate::fixture::{Handled, MINUTE, ask, by_rules, field, left, of, per_minute, request};
use crate::support::Server;
use crate::support::cluster::Cluster;

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
        Rule::new(per_minute(&client, 9)).by(["user"]),
        Rule::new(per_minute(&client, 90).with_prefix("all:").with_name("all")),
    ]);
    let layer = by_rules(Arc::new(rules.unwrap()));
    let response = ask(&layer, of("alice")).await;
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""user";r=8;t=0, "all";r=89;t=0"#)
    );
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// Their keys lie on three nodes: the rules are asked in turn, and what one has taken goes back
/// when the next one denies.
#[tokio::test]
async fn on_a_cluster_a_request_is_charged_by_all_rules_or_by_none() {
    let cluster = Cluster::start();
    let client = RedissonClient::builder()
        .response_timeout(MINUTE)
        .connect(&cluster.urls().join(","))
        .await
        .unwrap();
    let limiter = |name: &str, limit| {
        let limiter = per_minute(&client, limit);
        limiter.with_prefix(format!("{name}:")).with_name(name)
    };
    let (users, all) = (limiter("user", 9), limiter("all", 13));
    let rules = client.rules([
        Rule::new(users.clone()).by(["user"]),
        Rule::new(all.clone()),
    ]);
    let layer = by_rules(Arc::new(rules.unwrap()));
    let mut granted = Vec::new();
    for user in ["alice", "bob", "carol"] {
        for request in 1..=10 {
            let response = ask(&layer, of(user)).await;
            let is_granted = response.status() == 200;
            assert!(is_granted || response.status() == 429);
            granted.extend(is_granted.then_some((user, request)));
        }
    }
    // Nine of the first user, and the four that are left for all.
    let expected = (1..=9).map(|it| ("alice", it));
    let expected = expected.chain((1..=4).map(|it| ("bob", it)));
    assert_eq!(granted, expected.collect::<Vec<_>>());
    let users_left = [
        left(&users, "alice").await,
        left(&users, "bob").await,
        left(&users, "carol").await,
    ];
    assert_eq!((users_left, left(&all, "all").await), ([0, 5, 9], 0));
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
async fn redis_is_emptied_and_restarted_under_load_and_each_limit_holds() {
    const LIMIT: usize = 50;
    let server = Server::start();
    let port = server.port();
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let per_hour = FixedWindow::new(50, 60 * MINUTE);
    let layer = RateLimitLayer::new(client.policy_limiter(per_hour).unwrap(), Everyone);
    let handled = Handled::default();
    let service = layer.layer(handled.service());
    let (sender, mut statuses) = mpsc::channel(1);
    let mut load = JoinSet::new();
    for _ in 0..20 {
        let (service, sender) = (service.clone(), sender.clone());
        load.spawn(async move {
            loop {
                let response = service.clone().oneshot(request()).await.unwrap();
                sender.send(response.status().as_u16()).await.unwrap();
            }
        });
    }
    let (mut granted, mut lost) = (0, 0);
    // Waits for this status, and for this many grants. A request without an answer in time may be
    // one of them.
    let mut until = async |all: usize, status: u16| {
        let mut seen = BTreeMap::from([200, 429, 503].map(|status| (status, 0)));
        let waiting = async {
            loop {
                let last = statuses.recv().await.unwrap();
                *seen.get_mut(&last).expect("one of these") += 1;
                granted += usize::from(last == 200);
                lost += usize::from(last == 503 && all > 0);
                if last == status && granted + lost >= all {
                    return;
                }
            }
        };
        if timeout(2 * MINUTE, waiting).await.is_err() {
            panic!("{granted} of {all} are granted, and {lost} lost; seen since: {seen:?}");
        }
        assert!(all == 0 || granted <= all, "{granted} of {all}");
        granted
    };
    until(LIMIT, 429).await;
    let mut raw = server.connection().await;
    redis::cmd("FLUSHALL").exec_async(&mut raw).await.unwrap();
    until(2 * LIMIT, 429).await;
    drop(server);
    for _ in 0..50 {
        until(0, 503).await; // more than there are requests that were answered before
    }
    let _server = Server::start_at(port, &[]);
    let granted = until(3 * LIMIT, 429).await;
    load.shutdown().await;
    assert_eq!(handled.count() as usize, granted);
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
