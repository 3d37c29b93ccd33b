//! What rejected requests get.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http::request::Parts;
use redisson_rate_limiter::{
    BoxFuture, Decision, DecisionSource, Denied, Error, FailurePolicy, Faults, FixedWindow,
    Granted, LimiterOptions, MemoryStore, Quota, RedissonClient, Rule, SlidingWindowLog,
};
use redisson_rate_limiter_tower::fields::Fields;
use redisson_rate_limiter_tower::key::{Everyone, Header};
use redisson_rate_limiter_tower::reject::{Grpc, Reason, StatusOnly};
use redisson_rate_limiter_tower::{RateLimitLayer, Rejection};
use tonic_types::StatusExt;

use crate::events::Events;
use crate::fixture::{Always, MINUTE, ask, by_rules, field, left, of, per_minute, request};

const SECOND: Duration = Duration::from_secs(1);

fn failing(error: Error) -> RateLimitLayer {
    RateLimitLayer::new(Always(Err(error)), Everyone)
}

fn unavailable() -> Error {
    Error::Indeterminate { source: None }
}

fn uninitialized() -> Error {
    Error::NotInitialized {
        name: "api".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_to_retry_is_rounded_up() {
    let denied = Denied::new(Duration::from_millis(1_001)).with_quota(Quota::new(5, MINUTE));
    let layer = RateLimitLayer::new(Always(Ok(denied.into())), Everyone);
    let response = ask(&layer, request()).await;
    assert_eq!(
        (response.status().as_u16(), field(&response, "retry-after")),
        (429, Some("2"))
    );
    assert_eq!(field(&response, "ratelimit"), Some(r#""";r=0;t=2"#));
}

#[tokio::test(start_paused = true)]
async fn jitter_only_adds_to_the_time_to_retry() {
    let denied = Denied::new(MINUTE).with_quota(Quota::new(5, MINUTE));
    let layer = RateLimitLayer::new(Always(Ok(denied.into())), Everyone);
    let layer = layer.retry_after_jitter(9 * SECOND);
    let mut times = Vec::new();
    for _ in 0..200 {
        let response = ask(&layer, request()).await;
        times.push(
            field(&response, "retry-after")
                .unwrap()
                .parse::<u64>()
                .unwrap(),
        );
    }
    times.sort_unstable();
    times.dedup();
    assert!(
        times.len() > 3 && times[0] >= 60 && *times.last().unwrap() <= 69,
        "{times:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_a_503_that_says_when_to_retry() {
    let response = ask(&failing(unavailable()), request()).await;
    assert_eq!(
        (response.status().as_u16(), field(&response, "retry-after")),
        (503, Some("1"))
    );
    let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
    let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    assert_eq!(
        (&body["type"], &body["status"]),
        (&kind.into(), &503.into())
    );
    let layer = failing(unavailable()).retry_after_outage(10 * SECOND);
    assert_eq!(
        field(&ask(&layer, request()).await, "retry-after"),
        Some("10")
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_worth_a_retry_after_the_longer_of_two_times() {
    for (of_policy, expected) in [(SECOND, "10"), (MINUTE, "60")] {
        let mut denied = Denied::new(of_policy);
        denied.source = DecisionSource::FailurePolicy;
        let layer = RateLimitLayer::new(Always(Ok(denied.into())), Everyone);
        let layer = layer.retry_after_outage(10 * SECOND);
        let response = ask(&layer, request()).await;
        assert_eq!(response.status().as_u16(), 503);
        assert_eq!(field(&response, "retry-after"), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_set_up_wrongly_is_a_500_without_details() {
    let response = ask(&failing(uninitialized()), request()).await;
    assert_eq!(
        (response.status().as_u16(), field(&response, "retry-after")),
        (500, None)
    );
    assert_eq!(
        response.body(),
        r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_be_granted_is_not_told_to_retry() {
    let limiter = per_minute(&RedissonClient::in_memory(), 3);
    let layer = RateLimitLayer::new(limiter, Everyone).cost(|_| 4);
    let response = ask(&layer, request()).await;
    assert_eq!(
        (response.status().as_u16(), field(&response, "retry-after")),
        (429, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_a_limit_names_the_limit_in_all_that_clients_see() {
    let client = RedissonClient::in_memory();
    let user = || per_minute(&client, 3);
    let address = client.policy_limiter(FixedWindow::new(9, MINUTE)).unwrap();
    let address = || address.clone().with_prefix("address:").with_name("address");
    let cost = |_: &Parts| Some("4".to_owned());
    let by_rules = |rules: Vec<Rule>| by_rules(Arc::new(client.rules(rules).unwrap()));
    let of_user = || Rule::new(user()).by(["user"]);
    let alone = by_rules(vec![of_user()]).attribute("cost", cost);
    let together = by_rules(vec![Rule::new(address()), of_user()]).attribute("cost", cost);
    let one = RateLimitLayer::new(user(), Header::new("x-user")).cost(|_| 4);
    let responses = [
        ask(&one, of("alice")).await,
        ask(&alone, of("alice")).await,
        ask(&together, of("alice")).await,
        ask(&together.clone().fields(Fields::Draft7), of("alice")).await,
        ask(&together.clone().fields(Fields::XRateLimit), of("alice")).await,
    ];
    for (place, response) in responses.iter().enumerate() {
        assert_eq!(response.status(), 429, "{place}");
        let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(
            body["violated-policies"],
            serde_json::json!(["user"]),
            "{place}"
        );
        assert!(!response.body().contains("alice"), "{place}");
        // What is left was not asked for.
        assert_eq!(field(response, "ratelimit"), None, "{place}");
        assert_eq!(field(response, "x-ratelimit-remaining"), None, "{place}");
    }
    let policies = responses.each_ref().map(|it| field(it, "ratelimit-policy"));
    let named = Some(r#""user";q=3"#);
    assert_eq!(policies, [named, named, named, Some("3"), None]);
    assert_eq!(field(&responses[4], "x-ratelimit-limit"), Some("3"));
    assert_eq!(left(&user(), "alice").await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_limit_of_a_layer_is_warned_of_once_a_minute() {
    let events = Events::start();
    let limiter = per_minute(&RedissonClient::in_memory(), 3);
    let layer = RateLimitLayer::new(limiter, Everyone).cost(|_| 4);
    for told in [1, 0, 0] {
        ask(&layer, request()).await;
        let seen = events.take();
        assert_eq!(seen.len(), told, "{seen:?}");
        assert!(
            seen.iter()
                .all(|it| it.starts_with("WARN") && it.contains("user"))
        );
    }
    tokio::time::advance(MINUTE).await;
    ask(&layer, request()).await;
    assert_eq!(events.take().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_no_limiter_grants_at_once_is_a_429() {
    let client = RedissonClient::in_memory();
    let limiter = || {
        client
            .policy_limiter(SlidingWindowLog::new(1_000, MINUTE))
            .unwrap()
    };
    let layer = RateLimitLayer::new(limiter(), Everyone).cost(|_| 501);
    let rule = Rule::new(limiter()).cost(501);
    let alone = by_rules(Arc::new(client.rules([rule]).unwrap()));
    // Each would grant this cost alone.
    let together = ["one", "other"].map(|name| {
        let limiter = limiter().with_prefix(name).with_name(name);
        Rule::new(limiter).cost(251)
    });
    let together = by_rules(Arc::new(client.rules(together).unwrap()));
    for response in [
        ask(&layer, request()).await,
        ask(&alone, request()).await,
        ask(&together, request()).await,
    ] {
        assert_eq!(
            (response.status().as_u16(), field(&response, "retry-after")),
            (429, None)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_the_failure_policies_of_rules_say_who_gets_in() {
    let (store, faults) = (MemoryStore::new(), Faults::new());
    let client = RedissonClient::builder().in_memory_with_faults(&store, &faults);
    faults.lose_store();
    for (policies, status) in [
        ([FailurePolicy::Allow, FailurePolicy::Allow], 200),
        ([FailurePolicy::Allow, FailurePolicy::Deny], 503),
        ([FailurePolicy::Deny, FailurePolicy::Deny], 503),
        ([FailurePolicy::Allow, FailurePolicy::Error], 503),
    ] {
        let named = ["one", "other"].into_iter().zip(&policies);
        let rules = named.map(|(name, policy)| {
            let options = LimiterOptions::new().failure_policy(policy.clone());
            let limiter = per_minute(&client, 9).with_prefix(name).with_name(name);
            Rule::new(limiter.with_options(options))
        });
        let rules: Vec<_> = rules.collect();
        let layer = by_rules(Arc::new(client.rules(rules).unwrap()));
        let response = ask(&layer, request()).await;
        let retry_after = (status == 503).then_some("1");
        assert_eq!(
            (response.status().as_u16(), field(&response, "retry-after")),
            (status, retry_after),
            "{policies:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_does_not_limit_a_request_that_costs_it_nothing() {
    let client = RedissonClient::in_memory();
    let rule = Rule::new(per_minute(&client, 1));
    let cost = |request: &Parts| Some(u32::from(request.method == "POST").to_string());
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap())).attribute("cost", cost);
    for _ in 0..3 {
        let response = ask(&layer, request()).await;
        assert_eq!(
            (response.status().as_u16(), response.headers().len()),
            (200, 0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_set_up_wrongly_is_reported_once_a_minute() {
    let events = Events::start();
    let layer = failing(uninitialized());
    for told in [1, 0, 0] {
        ask(&layer, request()).await;
        let seen = events.take();
        assert_eq!(seen.len(), told, "{seen:?}");
        for event in seen {
            assert!(
                event.starts_with("WARN") && event.contains("not_initialized"),
                "{event}"
            );
            assert!(
                !event.contains("api"),
                "the limiter's name may hold a key: {event}"
            );
        }
    }
    tokio::time::advance(MINUTE).await;
    ask(&layer.reject_with(StatusOnly), request()).await;
    assert_eq!(events.take().len(), 1);
    // An error that is no mistake of the application is not reported.
    ask(&failing(unavailable()), request()).await;
    assert_eq!(events.take(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_grant_without_a_known_limit_has_no_fields() {
    let layer = RateLimitLayer::new(Always(Ok(Granted::new(1).into())), Everyone);
    let response = ask(&layer, request()).await;
    assert_eq!(
        (response.status().as_u16(), response.headers().len()),
        (200, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn names_in_json_are_escaped() {
    let name = "a\"b\\c\nd\u{7f}é";
    let limiter = per_minute(&RedissonClient::in_memory(), 1).with_name(name);
    let layer = RateLimitLayer::new(limiter, Everyone);
    ask(&layer, request()).await;
    let body: serde_json::Value =
        serde_json::from_str(ask(&layer, request()).await.body()).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!([name]));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_what_its_function_makes_of_it() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let limiter = per_minute(&RedissonClient::in_memory(), 1);
    let layer =
        RateLimitLayer::new(limiter, Everyone).reject_with(move |rejection: &Rejection<'_>| {
            log.lock().unwrap().push((
                rejection.reason(),
                rejection.retry_after(),
                rejection.to_string(),
            ));
            let mut response = Response::new("slow down".to_owned());
            *response.status_mut() = rejection.status();
            response.headers_mut().insert("retry-after", 7.into());
            response
        });
    ask(&layer, request()).await;
    let response = ask(&layer, request()).await;
    assert_eq!(
        (response.status().as_u16(), &**response.body()),
        (429, "slow down")
    );
    assert_eq!(field(&response, "retry-after"), Some("7"));
    assert_eq!(field(&response, "ratelimit"), Some(r#""user";r=0;t=60"#));
    let expected = (
        Reason::QuotaExceeded,
        Some(MINUTE),
        "denied by user".to_owned(),
    );
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn the_form_of_the_fields_can_be_chosen() {
    let limiter = per_minute(&RedissonClient::in_memory(), 9);
    let layer = |fields| {
        RateLimitLayer::new(limiter.clone(), Everyone)
            .fields(fields)
            .reject_with(StatusOnly)
    };
    let response = ask(&layer(Fields::Draft7), request()).await;
    assert_eq!(
        field(&response, "ratelimit"),
        Some("limit=9, remaining=8, reset=60")
    );
    let response = ask(&layer(Fields::XRateLimit), request()).await;
    assert_eq!(field(&response, "x-ratelimit-remaining"), Some("7"));
    assert!(
        ask(&layer(Fields::None), request())
            .await
            .headers()
            .is_empty()
    );
}

fn status(response: &Response<String>) -> tonic::Status {
    tonic::Status::from_header_map(response.headers()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_rejection_of_grpc_has_the_details_that_its_clients_read() {
    let limiter = per_minute(&RedissonClient::in_memory(), 1).with_name("größe");
    let layer = RateLimitLayer::new(limiter, Everyone).reject_with(Grpc);
    ask(&layer, request()).await;
    tokio::time::advance(Duration::from_millis(500)).await;
    let denied = status(&ask(&layer, request()).await);
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted);
    let details = denied.get_error_details();
    let delay = details.retry_info().unwrap().retry_delay;
    assert_eq!(delay, Some(MINUTE - Duration::from_millis(500)));
    let violation = &details.quota_failure().unwrap().violations[0];
    assert_eq!(
        (&*violation.subject, &*violation.description),
        ("größe", "1 per 60s")
    );
}

#[tokio::test(start_paused = true)]
async fn grpc_knows_an_outage_from_a_quota() {
    let codes = [
        (unavailable(), tonic::Code::Unavailable, Some(SECOND)),
        (uninitialized(), tonic::Code::Internal, None),
    ];
    for (error, code, retry) in codes {
        let failed = status(&ask(&failing(error).reject_with(Grpc), request()).await);
        assert_eq!(failed.code(), code);
        let details = failed.get_error_details();
        assert_eq!(details.retry_info().and_then(|it| it.retry_delay), retry);
        assert!(details.quota_failure().is_none());
    }
    // Lengths of one byte and of two, and each rest of base64.
    let names = [126, 127, 128, 129, 130].map(|length| "x".repeat(length));
    for name in names {
        let denied = Denied::new(SECOND).with_quota(Quota::new(300, MINUTE));
        let limiter = Named(name.clone(), denied.into());
        let layer = RateLimitLayer::new(limiter, Everyone).reject_with(Grpc);
        let details = status(&ask(&layer, request()).await).get_error_details();
        assert_eq!(details.quota_failure().unwrap().violations[0].subject, name);
    }
}

#[derive(Debug)]
struct Named(String, Decision);

impl redisson_rate_limiter::Limiter for Named {
    fn name(&self) -> &str {
        &self.0
    }

    fn check<'a>(
        &'a self,
        _key: &'a str,
        _cost: u32,
    ) -> BoxFuture<'a, redisson_rate_limiter::Result<Decision>> {
        Box::pin(async move { Ok(self.1.clone()) })
    }
}
