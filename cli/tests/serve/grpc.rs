//! Envoy's rate limit service.

use std::time::Duration;

use prost::Message;
use prost_types::FileDescriptorProto;
use prost_types::field_descriptor_proto::Type;
use redis::AsyncCommands;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::Code::Unavailable;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::sentinel::sentinel_of;
use crate::support::messages::{Code, DescriptorStatus, RateLimitRequest, RateLimitResponse, Unit};
use crate::support::servers::Server;
use crate::support::servers::cluster::Cluster;
use crate::support::{Serve, ask, envoy};

/// The rules of the page that shows them beside the configuration of envoyproxy/ratelimit.
const RULES: &str = r#"
[[rules]]
name = "addresses"
when = { domain = "edge" }
by = ["remote_address"]
limit = { algorithm = "fixed_window", rate = "3/1m" }
[rules.keys]
"192.0.2.9" = "block"

[[rules]]
name = "logins"
when = { domain = "edge", path = "/login" }
by = ["remote_address"]
limit = { algorithm = "fixed_window", rate = "2/1h" }

[[rules]]
name = "trial"
when = { domain = "edge" }
by = ["tenant"]
limit = { algorithm = "fixed_window", rate = "1/1500ms" }
shadow = true
"#;

const ADDRESS: &[(&str, &str)] = &[("remote_address", "192.0.2.1")];
const LOGIN: &[(&str, &str)] = &[("path", "/login"), ("remote_address", "192.0.2.1")];

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    let statuses = response.statuses.iter().map(|it| it.code());
    (response.overall_code(), statuses.collect())
}

fn remaining(status: &DescriptorStatus) -> (u32, u32) {
    let limit = status.current_limit.as_ref().unwrap();
    (status.limit_remaining, limit.requests_per_unit)
}

async fn all_descriptors_are_decided_together(serve: Serve) {
    let both = envoy("edge", &[ADDRESS, LOGIN, &[("user", "alice")]]);
    for left in [1, 0] {
        let ok = serve.ask(both.clone()).await.unwrap();
        assert_eq!(codes(&ok), (Code::Ok, vec![Code::Ok; 3]));
        assert_eq!(remaining(&ok.statuses[0]), (left + 1, 3));
        assert_eq!(remaining(&ok.statuses[1]), (left, 2));
        let limit = ok.statuses[1].current_limit.as_ref().unwrap();
        assert_eq!((&*limit.name, limit.unit()), ("logins", Unit::Hour));
        let reset = ok.statuses[1].duration_until_reset.as_ref().unwrap();
        assert!((1..=3_600).contains(&reset.seconds));
        // No rule is for it.
        assert_eq!(ok.statuses[2].current_limit, None);
        let field = |name: &str| ok.response_headers_to_add.iter().find(|it| it.key == name);
        assert!(
            field("ratelimit")
                .unwrap()
                .value
                .starts_with("\"logins\";r=")
        );
        assert!(field("retry-after").is_none());
    }
    for _ in 0..2 {
        let denied = serve.ask(both.clone()).await.unwrap();
        let each = vec![Code::Ok, Code::OverLimit, Code::Ok];
        assert_eq!(codes(&denied), (Code::OverLimit, each));
        // The address is not charged for a login that is denied.
        assert_eq!(remaining(&denied.statuses[0]), (1, 3));
        let mut fields = denied.response_headers_to_add.iter();
        assert!(fields.any(|it| it.key == "retry-after"));
    }
    let ok = serve.ask(envoy("edge", &[ADDRESS])).await.unwrap();
    assert_eq!(codes(&ok).0, Code::Ok);
    assert_eq!(codes(&serve.ask(both).await.unwrap()).0, Code::OverLimit);
}

#[tokio::test]
async fn all_descriptors_are_decided_together_in_memory() {
    all_descriptors_are_decided_together(Serve::start(RULES)).await;
}

#[tokio::test]
async fn all_descriptors_are_decided_together_in_redis() {
    let server = Server::start();
    all_descriptors_are_decided_together(Serve::on(&server, RULES, &[])).await;
}

/// All rules decide, also in several slots one after another: a request that is denied is charged
/// to none.
#[tokio::test]
async fn all_descriptors_are_decided_together_on_a_cluster() {
    let cluster = Cluster::start();
    let serve = Serve::start_with(RULES, &[], |command| {
        command.env("REDIS_URL", cluster.urls().join(","));
    });
    all_descriptors_are_decided_together(serve).await;
}

#[tokio::test]
async fn all_descriptors_are_decided_together_behind_a_sentinel() {
    let primary = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let (_sentinel, url) = sentinel_of(&primary, folder.path(), "");
    let serve = Serve::start_with(RULES, &[], |command| {
        command.env("REDIS_URL", url);
    });
    all_descriptors_are_decided_together(serve).await;
}

#[tokio::test]
async fn what_no_rule_is_for_is_not_limited() {
    let serve = Serve::start(RULES);
    let longer: &[_] = &[("path", "/login"), ("remote_address", "::1"), ("user", "a")];
    for request in [
        envoy("other", &[ADDRESS]),
        envoy("edge", &[&[("path", "/other"), ("remote_address", "::1")]]),
        envoy("edge", &[longer]),
        envoy("edge", &[&[]]),
    ] {
        for _ in 0..4 {
            let ok = serve.ask(request.clone()).await.unwrap();
            assert_eq!(codes(&ok), (Code::Ok, vec![Code::Ok]));
            assert_eq!(ok.statuses[0].current_limit, None);
        }
    }
}

#[tokio::test]
async fn a_request_adds_as_many_hits_as_it_says() {
    let serve = Serve::start(RULES);
    let mut request = envoy("edge", &[ADDRESS, LOGIN]);
    request.hits_addend = 2;
    request.descriptors[1].hits_addend = Some(1);
    let ok = serve.ask(request.clone()).await.unwrap();
    assert_eq!(remaining(&ok.statuses[0]), (1, 3));
    assert_eq!(remaining(&ok.statuses[1]), (1, 2));
    // A descriptor that adds none is looked at.
    let mut look = envoy("edge", &[LOGIN, ADDRESS]);
    look.descriptors[0].hits_addend = Some(0);
    let ok = serve.ask(look.clone()).await.unwrap();
    assert_eq!(codes(&ok), (Code::Ok, vec![Code::Ok; 2]));
    assert_eq!(remaining(&ok.statuses[0]), (1, 2));
    assert_eq!(remaining(&ok.statuses[1]), (0, 3));
    let denied = serve.ask(look).await.unwrap();
    let each = vec![Code::Ok, Code::OverLimit];
    assert_eq!(codes(&denied), (Code::OverLimit, each));
    // The same descriptor twice is one that costs as much as both.
    let twins: &[_] = &[("remote_address", "192.0.2.2")];
    let ok = serve.ask(envoy("edge", &[twins, twins])).await.unwrap();
    assert_eq!(ok.statuses.len(), 2);
    assert_eq!(remaining(&ok.statuses[1]), (1, 3));
}

#[tokio::test]
async fn a_descriptor_that_asks_for_more_than_its_limit_is_the_one_denied() {
    let serve = Serve::start(RULES);
    let asked = |hits: [u64; 3]| {
        let mut request = envoy("edge", &[ADDRESS, LOGIN, &[("user", "alice")]]);
        for (descriptor, hits) in request.descriptors.iter_mut().zip(hits) {
            descriptor.hits_addend = Some(hits);
        }
        request
    };
    let (fits, exceeds) = (Code::Ok, Code::OverLimit);
    for (hits, each) in [
        ([1, 3, 9], [fits, exceeds, fits]),
        ([4, 1, 1], [exceeds, fits, fits]),
        ([u64::from(u32::MAX), 3, 1], [exceeds, exceeds, fits]),
        ([4, 0, 1], [exceeds, fits, fits]),
    ] {
        let denied = serve.ask(asked(hits)).await.unwrap();
        assert_eq!(codes(&denied), (Code::OverLimit, each.to_vec()), "{hits:?}");
        // The rule is told, and nothing was charged.
        assert_eq!(remaining(&denied.statuses[0]), (3, 3), "{hits:?}");
        assert_eq!(remaining(&denied.statuses[1]), (2, 2), "{hits:?}");
        let limit = denied.statuses[1].current_limit.as_ref().unwrap();
        assert_eq!((&*limit.name, limit.unit()), ("logins", Unit::Hour));
        assert_eq!(denied.statuses[2].current_limit, None);
    }
}

/// Limits of which a single call grants no more than 500, and two together no more than 500 of
/// both.
pub const LOGS: &str = r#"
[[rules]]
name = "bytes"
when = { domain = "edge" }
by = ["tenant"]
limit = { algorithm = "sliding_window_log", rate = "1000/1h" }

[[rules]]
name = "bytes of users"
when = { domain = "edge" }
by = ["user"]
limit = { algorithm = "sliding_window_log", rate = "800/1h" }
"#;

async fn what_no_call_grants_at_once_is_over_the_limit(serve: Serve) {
    let acme: &[_] = &[("tenant", "acme")];
    let alice: &[_] = &[("user", "alice")];
    let asked = |hits: [u64; 3]| {
        let mut request = envoy("edge", &[acme, alice, &[("path", "/")]]);
        for (descriptor, hits) in request.descriptors.iter_mut().zip(hits) {
            descriptor.hits_addend = Some(hits);
        }
        request
    };
    let (fits, over) = (Code::Ok, Code::OverLimit);
    for (hits, each) in [
        ([501, 1, 1], [over, fits, fits]),
        ([1, 800, 9], [fits, over, fits]),
        ([1_000, 801, 1], [over, over, fits]),
        ([251, 250, 1], [over, over, fits]), // both together
        ([500, 0, 1], [fits; 3]),
        ([250, 250, 1], [fits; 3]),
    ] {
        let answer = serve.ask(asked(hits)).await.unwrap();
        let overall = if each == [fits; 3] { fits } else { over };
        assert_eq!(codes(&answer), (overall, each.to_vec()), "{hits:?}");
        for (status, name) in answer.statuses.iter().zip(["bytes", "bytes of users"]) {
            let limit = status.current_limit.as_ref().unwrap();
            assert_eq!(limit.name, name, "{hits:?}");
        }
    }
    // Only those that were granted are charged.
    let ok = serve.ask(asked([250, 1, 1])).await.unwrap();
    assert_eq!(remaining(&ok.statuses[0]), (0, 1_000));
    assert_eq!(remaining(&ok.statuses[1]), (549, 800));
}

#[tokio::test]
async fn what_no_call_grants_at_once_is_over_the_limit_in_memory() {
    what_no_call_grants_at_once_is_over_the_limit(Serve::start(LOGS)).await;
}

#[tokio::test]
async fn what_no_call_grants_at_once_is_over_the_limit_in_redis() {
    let server = Server::start();
    what_no_call_grants_at_once_is_over_the_limit(Serve::on(&server, LOGS, &[])).await;
}

#[tokio::test]
async fn hits_that_would_be_given_back_are_looked_at() {
    let serve = Serve::start(RULES);
    let mut refund = envoy("edge", &[ADDRESS]);
    refund.descriptors[0].is_negative_hits = true;
    for left in [3, 2, 1] {
        let seen = serve.ask(refund.clone()).await.unwrap();
        assert_eq!(remaining(&seen.statuses[0]), (left, 3));
        serve.ask(envoy("edge", &[ADDRESS])).await.unwrap();
    }
    let seen = serve.ask(refund).await.unwrap();
    assert_eq!(codes(&seen), (Code::OverLimit, vec![Code::OverLimit]));
}

#[tokio::test]
async fn a_request_has_a_bounded_number_of_descriptors_and_entries() {
    let serve = Serve::start(RULES);
    let other: &[_] = &[("user", "alice")];
    let entries = [("user", "alice"); 65];
    for (descriptors, code) in [
        (vec![other; 64], Code::Ok),
        (vec![other; 65], Code::OverLimit),
        (vec![&entries[..64]], Code::Ok),
        (vec![other, &entries[..]], Code::OverLimit),
    ] {
        let answer = serve.ask(envoy("edge", &descriptors)).await.unwrap();
        assert_eq!(answer.overall_code(), code);
    }
}

#[tokio::test]
async fn what_is_looked_at_and_denied_has_nothing_charged() {
    let serve = Serve::start(RULES);
    let mut request = envoy("edge", &[LOGIN]);
    request.hits_addend = 2;
    serve.ask(request).await.unwrap();
    let mut look = envoy("edge", &[LOGIN, ADDRESS]);
    look.descriptors[0].hits_addend = Some(0);
    let denied = serve.ask(look).await.unwrap();
    assert_eq!(
        codes(&denied),
        (Code::OverLimit, vec![Code::OverLimit, Code::Ok])
    );
    let ok = serve.ask(envoy("edge", &[ADDRESS])).await.unwrap();
    assert_eq!(remaining(&ok.statuses[0]), (2, 3));
}

#[tokio::test]
async fn a_rule_for_all_requests_is_charged_beside_a_look() {
    let serve = Serve::start(
        r#"
        [[rules]]
        name = "all"
        when = { domain = "edge" }
        limit = { algorithm = "fixed_window", rate = "2/1h" }
        "#,
    );
    let mut request = envoy("edge", &[LOGIN, ADDRESS, &[("user", "alice")]]);
    request.descriptors[0].hits_addend = Some(0);
    for left in [1, 0] {
        let ok = serve.ask(request.clone()).await.unwrap();
        assert_eq!(remaining(&ok.statuses[1]), (left, 2));
    }
    assert_eq!(
        codes(&serve.ask(request.clone()).await.unwrap()).0,
        Code::OverLimit
    );
    // If no descriptor charges anything, the rule is only looked at.
    for descriptor in &mut request.descriptors {
        descriptor.hits_addend = Some(0);
    }
    let denied = serve.ask(request).await.unwrap();
    let each = vec![Code::OverLimit, Code::Ok, Code::Ok];
    assert_eq!(codes(&denied), (Code::OverLimit, each));
}

#[tokio::test]
async fn rules_block_and_shadow_mode_lets_all_through() {
    let serve = Serve::start(RULES);
    let blocked = envoy("edge", &[&[("remote_address", "192.0.2.9")], LOGIN]);
    let blocked = serve.ask(blocked).await.unwrap();
    let each = vec![Code::OverLimit, Code::Ok];
    assert_eq!(codes(&blocked), (Code::OverLimit, each));
    assert_eq!(blocked.response_headers_to_add, []);
    for _ in 0..3 {
        let ok = serve
            .ask(envoy("edge", &[&[("tenant", "acme")]]))
            .await
            .unwrap();
        assert_eq!(codes(&ok), (Code::Ok, vec![Code::Ok]));
    }
    let metrics = serve.metrics().await;
    let counted = "limiter=\"trial\",result=\"denied\",source=\"store\",mode=\"shadow\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_value_that_is_not_utf_8_is_limited_too() {
    let serve = Serve::start(RULES);
    let mut request = envoy("edge", &[ADDRESS]);
    request.descriptors[0].entries[0].value = b"\xff192.0.2.1".to_vec();
    for left in [2, 1, 0] {
        let ok = serve.ask(request.clone()).await.unwrap();
        assert_eq!(remaining(&ok.statuses[0]), (left, 3));
    }
    let denied = serve.ask(request).await.unwrap();
    assert_eq!(codes(&denied), (Code::OverLimit, vec![Code::OverLimit]));
}

#[tokio::test]
async fn a_request_with_more_limits_than_decide_together_is_denied() {
    let serve = Serve::start(RULES);
    let values: Vec<String> = (0..40).map(|it| format!("198.51.100.{it}")).collect();
    let many: Vec<_> = values
        .iter()
        .map(|it| [("remote_address", &**it)])
        .collect();
    let many: Vec<_> = many.iter().map(|it| &it[..]).collect();
    let ok = serve.ask(envoy("edge", &many[8..])).await.unwrap();
    assert_eq!(codes(&ok), (Code::Ok, vec![Code::Ok; 32]));
    let denied = serve.ask(envoy("edge", &many[..33])).await.unwrap();
    assert_eq!(codes(&denied), (Code::OverLimit, vec![Code::OverLimit; 33]));
    assert_eq!(remaining(&denied.statuses[0]), (3, 3)); // not charged
}

#[tokio::test]
async fn a_turn_after_the_deadline_of_the_client_is_denied() {
    let rules = r#"
        [[rules]]
        name = "paced"
        when = { domain = "edge" }
        by = ["remote_address"]
        limit = { algorithm = "leaky_bucket", rate = "1/1h", capacity = 5 }
        [[rules]]
        name = "slow"
        when = { domain = "edge" }
        by = ["tenant"]
        limit = { algorithm = "leaky_bucket", rate = "1/5s", capacity = 5 }
        "#;
    let server = Server::start();
    for serve in [Serve::start(rules), Serve::on(&server, rules, &[])] {
        let asked = |deadline: Option<Duration>| {
            let mut request = Request::new(envoy("edge", &[ADDRESS]));
            if let Some(deadline) = deadline {
                request.set_timeout(deadline);
            }
            request
        };
        let channel = serve.channel().await;
        let first = ask(channel.clone(), asked(None)).await.unwrap();
        assert_eq!(codes(&first).0, Code::Ok);
        // The turn of the next one is in an hour.
        for deadline in [None, Some(Duration::from_secs(600)), None] {
            let denied = ask(channel.clone(), asked(deadline)).await.unwrap();
            assert_eq!(codes(&denied), (Code::OverLimit, vec![Code::OverLimit]));
            let mut look = envoy("edge", &[ADDRESS]);
            look.descriptors[0].hits_addend = Some(0);
            assert_eq!(
                serve.ask(look).await.unwrap().overall_code(),
                Code::OverLimit
            );
        }
        // They were not charged: only the first one is in the bucket.
        let status = serve.status_json().await;
        assert_eq!(status["rules"][0]["use"]["total"]["granted"], json!(1));
        let peek = json!({ "domain": "edge", "entries": { "remote_address": "192.0.2.1" } });
        let wait = serve.post("/v1/check", peek).await;
        let wait = wait.headers()["retry-after"].to_str().unwrap().to_owned();
        assert!((3_500..=3_600).contains(&wait.parse().unwrap()), "{wait}");
        // The server would wait for this turn, and the client would not.
        for code in [Code::Ok, Code::OverLimit] {
            let mut request = Request::new(envoy("edge", &[&[("tenant", "acme")]]));
            request.set_timeout(Duration::from_secs(6));
            let answer = ask(channel.clone(), request).await.unwrap();
            assert_eq!(codes(&answer).0, code);
        }
    }
}

#[tokio::test]
async fn without_a_store_it_is_unavailable_or_the_failure_policy_decides() {
    for (policy, expected) in [
        ("error", Err(Unavailable)),
        ("allow", Ok(Code::Ok)),
        ("deny", Ok(Code::OverLimit)),
        ("local:1", Ok(Code::Ok)),
    ] {
        let server = Server::start();
        let mut serve = Serve::on(&server, RULES, &["--failure-policy", policy]);
        serve.ask(envoy("edge", &[ADDRESS, LOGIN])).await.unwrap();
        drop(server);
        serve.line_with("lost the connection");
        let decided = serve.ask(envoy("edge", &[ADDRESS, LOGIN])).await;
        let decided = decided.map(|it| it.overall_code()).map_err(|it| it.code());
        assert_eq!(decided, expected, "{policy}");
    }
}

#[tokio::test]
async fn servers_that_share_a_store_grant_the_limit_together_under_load() {
    let server = Server::start();
    let rules = RULES.replace("rate = \"3/1m\"", "rate = \"50/1h\"");
    let both = [0, 1].map(|_| Serve::on(&server, &rules, &[]));
    let mut asking = JoinSet::new();
    for serve in &both {
        let channel = serve.channel().await;
        for _ in 0..100 {
            let request = Request::new(envoy("edge", &[ADDRESS, &[("user", "alice")]]));
            asking.spawn(ask(channel.clone(), request));
        }
    }
    let answers = asking.join_all().await.into_iter();
    let granted = answers.filter(|it| it.as_ref().unwrap().overall_code() == Code::Ok);
    assert_eq!(granted.count(), 50);
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_unavailable_until_it_does() {
    let server = Server::start();
    let serve = Serve::on(&server, RULES, &["--response-timeout", "300ms"]);
    server.signal("STOP");
    for _ in 0..5 {
        let failed = serve.ask(envoy("edge", &[ADDRESS])).await.unwrap_err();
        assert_eq!(failed.code(), Unavailable);
    }
    server.signal("CONT");
    // Until the breaker lets a call through.
    while serve.ask(envoy("edge", &[LOGIN])).await.is_err() {}
}

#[tokio::test]
async fn a_store_that_stops_under_load_grants_the_limit_and_no_more() {
    let server = Server::start();
    let rules = RULES.replace("rate = \"3/1m\"", "rate = \"2000/1h\"");
    let serve = Serve::on(&server, &rules, &["--response-timeout", "300ms"]);
    let (granted, failed) = (watch::Sender::new(0_u32), watch::Sender::new(0_u32));
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let (granted, failed) = (granted.clone(), failed.clone());
        let channel = serve.channel().await;
        callers.spawn(async move {
            loop {
                match ask(channel.clone(), Request::new(envoy("edge", &[ADDRESS]))).await {
                    Ok(answer) if answer.overall_code() == Code::OverLimit => return,
                    Ok(_) => granted.send_modify(|it| *it += 1),
                    Err(status) => {
                        assert_eq!(status.code(), Unavailable);
                        failed.send_modify(|it| *it += 1);
                    }
                }
            }
        });
    }
    let mut seen = (granted.subscribe(), failed.subscribe());
    seen.0.wait_for(|it| *it >= 200).await.unwrap();
    server.signal("STOP");
    seen.1.wait_for(|it| *it > 0).await.unwrap();
    let before = *granted.borrow();
    server.signal("CONT");
    callers.join_all().await;
    let (granted, failed) = (*granted.borrow(), *failed.borrow());
    // A request without an answer may have been charged.
    assert!(before < granted && granted <= 2_000 && granted + failed >= 2_000);
    let counter = "fixed_window:addresses:192.0.2.1";
    let used: u32 = server.connection().await.get(counter).await.unwrap();
    assert_eq!(used, 2_000);
}

#[tokio::test]
async fn the_health_service_says_whether_requests_are_decided() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &[]);
    let mut client = HealthClient::new(serve.channel().await);
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let service = service.to_owned();
        let health = client.check(HealthCheckRequest { service }).await.unwrap();
        assert_eq!(health.into_inner().status, 1);
    }
    let service = String::new();
    let watch = client.watch(HealthCheckRequest { service }).await.unwrap();
    let mut watch = watch.into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    drop(server);
    serve.line_with("lost the connection");
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
}

#[tokio::test]
async fn those_who_watch_the_health_are_told_of_a_shutdown_and_do_not_delay_it() {
    let serve = Serve::start_with(RULES, &["--shutdown-timeout", "60s"], |_| {});
    let mut client = HealthClient::new(serve.channel().await);
    let service = String::new();
    let watch = client.watch(HealthCheckRequest { service }).await.unwrap();
    let mut watch = watch.into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    serve.signal(rustix::process::Signal::TERM);
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
    assert!(watch.message().await.unwrap().is_none());
    let (lines, _) = serve.ended();
    assert!(lines.last().unwrap().ends_with(" rratelimiter: ended"));
}

#[tokio::test]
async fn reflection_tells_the_services_and_their_messages() {
    let serve = Serve::start(RULES);
    let mut client = ServerReflectionClient::new(serve.channel().await);
    let mut ask = async |asked: MessageRequest| {
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(asked),
        };
        let stream = futures_util::stream::iter([request]);
        let mut answers = client
            .server_reflection_info(stream)
            .await
            .unwrap()
            .into_inner();
        let answer = answers.message().await.unwrap().unwrap();
        answer.message_response.unwrap()
    };
    let MessageResponse::ListServicesResponse(listed) =
        ask(MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list");
    };
    let mut names: Vec<_> = listed.service.into_iter().map(|it| it.name).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
        ]
    );
    let symbol = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
    let MessageResponse::FileDescriptorResponse(files) =
        ask(MessageRequest::FileContainingSymbol(symbol)).await
    else {
        panic!("no file");
    };
    let file = FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
    let request = file
        .message_type
        .iter()
        .find(|it| it.name() == "RateLimitRequest");
    let domain = &request.unwrap().field[0];
    // As Envoy has it, though the server reads bytes.
    assert_eq!((domain.name(), domain.r#type()), ("domain", Type::String));
}

#[tokio::test]
async fn reflection_needs_the_token() {
    let serve = Serve::start_with(RULES, &[], |command| {
        command.env("RRATELIMITER_TOKEN", "token");
    });
    let mut client = ServerReflectionClient::new(serve.channel().await);
    let nothing = futures_util::stream::iter([]);
    let refused = client.server_reflection_info(nothing).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
}

#[tokio::test]
async fn a_method_that_does_not_exist_needs_the_token_too() {
    let serve = Serve::start_with(RULES, &[], |command| {
        command.env("RRATELIMITER_TOKEN", "token");
    });
    let mut grpc = Grpc::new(serve.channel().await);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/no.such.Service/Method");
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let asked = Request::new(RateLimitRequest::default());
    let refused = grpc.unary(asked, path, codec).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
}

#[tokio::test]
async fn a_window_has_the_unit_of_the_protocol_with_its_length() {
    let units = [
        ("1s", Unit::Second),
        ("1m", Unit::Minute),
        ("60m", Unit::Hour),
        ("1d", Unit::Day),
        ("7d", Unit::Week),
        ("hour", Unit::Hour),
        ("day", Unit::Day),
        ("week", Unit::Week),
        ("month", Unit::Month),
        ("year", Unit::Year),
        ("2s", Unit::Unknown),
        ("32d", Unit::Unknown),
        ("364d", Unit::Unknown),
    ];
    let rules = units.map(|(time, _)| {
        format!(
            "[[rules]]\nname = \"{time}\"\nby = [\"of_{time}\"]\n\
             limit = {{ algorithm = \"fixed_window\", rate = \"9/{time}\" }}\n"
        )
    });
    let serve = Serve::start(&rules.concat());
    for (time, unit) in units {
        let entry = format!("of_{time}");
        let asked = envoy("edge", &[&[(&*entry, "a")]]);
        let answer = serve.ask(asked).await.unwrap();
        let limit = answer.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!((&*limit.name, limit.unit()), (time, unit));
        assert_eq!(limit.requests_per_unit, 9);
    }
}
