//! Every kind of limiter, and layers whose types are written down.

use std::sync::Arc;

use redisson_rate_limiter::{AnyPolicy, Plan, Rate, RedissonClient, Result, Rule, Rules};
use redisson_rate_limiter_tower::fields::Fields;
use redisson_rate_limiter_tower::key::{Everyone, Header};
use redisson_rate_limiter_tower::reject::Grpc;
use redisson_rate_limiter_tower::{ByRules, RateLimit, RateLimitLayer};

use tokio::task::JoinSet;

use crate::fixture::{MINUTE, ask, by_rules, field, of, per_minute, request};

/// A service that has a layer in a field.
struct Named<S> {
    layer: RateLimitLayer,
    by_rules: RateLimitLayer<ByRules>,
    service: RateLimit<S>,
}

fn rules(client: &RedissonClient) -> Result<Rules> {
    client.rules([
        Rule::new(per_minute(client, 2)).by(["user"]),
        Rule::new(per_minute(client, 9).with_prefix("all:").with_name("all")),
    ])
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_limiter_limits_each_key() {
    let client = RedissonClient::in_memory();
    let rate = Rate::overall(2, MINUTE);
    let user = || Header::new("x-user");
    let mut layers = vec![RateLimitLayer::new(
        client.keyed_rate_limiter("keyed:", rate).unwrap(),
        user(),
    )];
    for (place, policy) in AnyPolicy::examples(2, MINUTE).enumerate() {
        let limiter = client
            .policy_limiter(policy)
            .unwrap()
            .with_prefix(format!("{place}:"));
        layers.push(RateLimitLayer::new(limiter, user()));
    }
    for layer in layers {
        let mut requests = JoinSet::new();
        for _ in 0..200 {
            let layer = layer.clone();
            requests.spawn(async move { ask(&layer, of("alice")).await.status().as_u16() });
        }
        let mut statuses = requests.join_all().await;
        statuses.sort_unstable();
        statuses.dedup();
        assert_eq!(statuses, [200, 429], "{layer:?}");
        assert_eq!(ask(&layer, of("bob")).await.status(), 200, "{layer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_for_all_needs_no_key() {
    let limiter = RedissonClient::in_memory().rate_limiter("api");
    let layer = RateLimitLayer::new(
        limiter.with_rate(Rate::overall(1, MINUTE)).unwrap(),
        Everyone,
    );
    assert_eq!(ask(&layer, of("alice")).await.status(), 200);
    assert_eq!(ask(&layer, of("bob")).await.status(), 429);
}

#[tokio::test(start_paused = true)]
async fn rules_decide_together_and_name_the_one_that_denies() {
    let client = RedissonClient::in_memory();
    let layer = by_rules(Arc::new(rules(&client).unwrap()));
    for left in [1, 0] {
        let response = ask(&layer, of("alice")).await;
        let time = if left == 0 { 60 } else { 0 };
        let all = left + 7;
        let expected = format!(r#""user";r={left};t={time}, "all";r={all};t=0"#);
        assert_eq!(field(&response, "ratelimit"), Some(&*expected));
    }
    let denied = ask(&layer, of("alice")).await;
    assert_eq!(denied.status(), 429);
    assert!(
        denied.body().ends_with(r#""violated-policies":["user"]}"#),
        "{}",
        denied.body()
    );
    assert_eq!(
        field(&denied, "ratelimit"),
        Some(r#""user";r=0;t=60, "all";r=7;t=0"#)
    );
    // The rule for users does not apply.
    let response = ask(&layer, request()).await;
    assert_eq!(field(&response, "ratelimit"), Some(r#""all";r=6;t=0"#));
    // The strictest one is stated first, whatever the order of the rules.
    for _ in 0..5 {
        assert_eq!(ask(&layer, request()).await.status(), 200);
    }
    let response = ask(&layer, of("bob")).await;
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""all";r=0;t=60, "user";r=1;t=0"#)
    );
}

#[tokio::test(start_paused = true)]
async fn rules_can_be_replaced_while_the_layer_is_in_use() {
    let client = RedissonClient::in_memory();
    let rules = Arc::new(rules(&client).unwrap());
    let layer = by_rules(Arc::clone(&rules)).fields(Fields::None);
    for status in [200, 200, 429] {
        assert_eq!(ask(&layer, of("alice")).await.status(), status);
    }
    rules.replace([]).unwrap();
    let response = ask(&layer, of("alice")).await;
    assert_eq!(
        (response.status().as_u16(), response.headers().len()),
        (200, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_says_what_is_counted_and_for_whom() {
    let limiter = per_minute(&RedissonClient::in_memory(), 9);
    let layer = RateLimitLayer::new(limiter, Everyone).describe(|limit| {
        assert_eq!(limit.name, "user");
        limit
            .with_unit("content-bytes")
            .with_partition_key(&b"trial"[..])
    });
    let response = ask(&layer, request()).await;
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""user";q=9;qu="content-bytes";w=60;pk=:dHJpYWw=:"#)
    );
    assert_eq!(
        field(&response, "ratelimit"),
        Some(r#""user";r=8;t=0;pk=:dHJpYWw=:"#)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_blocked_by_a_rule_gets_a_403_without_a_time_to_retry() {
    let client = RedissonClient::in_memory();
    let rule = { Rule::new(per_minute(&client, 5)).by(["user"]) }
        .with_plan("blocked", Plan::Block)
        .key("mallory", "blocked");
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
    assert_eq!(ask(&layer, of("alice")).await.status(), 200);
    let blocked = ask(&layer, of("mallory")).await;
    assert_eq!(
        (blocked.status().as_u16(), field(&blocked, "retry-after")),
        (403, None)
    );
    let blocked = ask(&layer.reject_with(Grpc), of("mallory")).await;
    assert_eq!(field(&blocked, "grpc-status"), Some("7")); // PERMISSION_DENIED
}

#[tokio::test(start_paused = true)]
async fn the_types_of_layers_and_services_can_be_written_down() {
    let client = RedissonClient::in_memory();
    let layer: RateLimitLayer = RateLimitLayer::new(per_minute(&client, 1), Everyone)
        .skip(|request| request.uri.path() == "/healthz")
        .cost(|_| 1);
    let named = Named {
        service: tower::Layer::layer(&layer, ()),
        by_rules: by_rules(Arc::new(rules(&client).unwrap())),
        layer,
    };
    let Named {
        layer,
        by_rules,
        service,
    } = &named;
    assert!(format!("{layer:?} {by_rules:?} {service:?}").contains("user"));
}
