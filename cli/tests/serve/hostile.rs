//! Requests of hostile clients: a rule that is at its limit must let none of them in. Envoy lets a
//! request in at each error that is no denial, a service at each 200, and nginx at each 2xx.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use redis::AsyncCommands;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};
use tonic_prost::ProstDecoder;

use crate::support::messages::{
    Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use crate::support::servers::Server;
use crate::support::{Serve, envoy};

/// Both are used up by one request: the one for all requests, and the one for a user.
const RULES: &str = r#"
[[rules]]
name = "all"
limit = { algorithm = "fixed_window", rate = "1/1h" }

[[rules]]
name = "users"
by = ["user"]
limit = { algorithm = "fixed_window", rate = "1/1h" }
"#;

const USER: &[(&str, &str)] = &[("user", "alice")];

async fn used_up(rules: &str) -> Serve {
    let serve = Serve::start(rules);
    let used = serve.ask(envoy("edge", &[USER])).await.unwrap();
    assert_eq!(used.overall_code(), Code::Ok);
    serve
}

/// The bytes of a message as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = RateLimitResponse;
    type Encoder = Self;
    type Decoder = ProstDecoder<RateLimitResponse>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::default())
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &bytes);
        Ok(())
    }
}

async fn ask_raw(serve: &Serve, bytes: Vec<u8>) -> Result<RateLimitResponse, Status> {
    let mut grpc = tonic::client::Grpc::new(serve.channel().await);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(Request::new(bytes), path, Raw).await?;
    Ok(answer.into_inner())
}

async fn is_over_limit(serve: &Serve, request: RateLimitRequest, what: &str) {
    let answer = serve.ask(request).await;
    let code = answer.map(|it| it.overall_code());
    assert_eq!(code.ok(), Some(Code::OverLimit), "{what}");
}

#[tokio::test]
async fn no_request_of_envoy_turns_a_limit_into_an_error() {
    let serve = used_up(RULES).await;
    let with = |change: fn(&mut RateLimitRequest)| {
        let mut request = envoy("edge", &[USER]);
        change(&mut request);
        request
    };
    let long = "a".repeat(100_000);
    let long_user: &[_] = &[("user", &*long)];
    let entries = [("user", "alice"); 65];
    for (what, request) in [
        ("as it is", envoy("edge", &[USER])),
        ("no domain", envoy("", &[USER])),
        ("no descriptor", envoy("edge", &[])),
        ("an empty descriptor", envoy("edge", &[&[]])),
        ("an empty name and value", envoy("edge", &[&[("", "")]])),
        ("65 descriptors", envoy("edge", &[USER; 65])),
        ("65 entries", envoy("edge", &[&entries])),
        ("a long value", envoy("edge", &[long_user])),
        ("hits of a request", with(|it| it.hits_addend = u32::MAX)),
        (
            "2^32 hits",
            with(|it| it.descriptors[0].hits_addend = Some(1 << 32)),
        ),
        (
            "most hits",
            with(|it| it.descriptors[0].hits_addend = Some(u64::MAX)),
        ),
        (
            "no hits",
            with(|it| it.descriptors[0].hits_addend = Some(0)),
        ),
        (
            "negative hits",
            with(|it| it.descriptors[0].is_negative_hits = true),
        ),
        (
            "most negative hits",
            with(|it| {
                it.descriptors[0].hits_addend = Some(u64::MAX);
                it.descriptors[0].is_negative_hits = true;
            }),
        ),
        (
            "hits that overflow together",
            with(|it| {
                it.descriptors[0].hits_addend = Some(u64::MAX);
                it.descriptors.push(it.descriptors[0].clone());
            }),
        ),
        (
            "a domain that is not UTF-8",
            with(|it| it.domain = vec![0xff]),
        ),
        (
            "a name that is not UTF-8",
            with(|it| it.descriptors[0].entries[0].key = vec![0xff]),
        ),
        (
            "a value that is not UTF-8",
            with(|it| it.descriptors[0].entries[0].value = vec![0xff]),
        ),
    ] {
        is_over_limit(&serve, request, what).await;
    }
    // Nor does a message that is too large, or that cannot be read.
    let huge = "a".repeat(2 * 1024 * 1024);
    is_over_limit(&serve, envoy("edge", &[&[("user", &huge)]]), "2 MiB").await;
    for bytes in [
        &b"\xff"[..],
        b"\x0a\x7fedge",
        b"\x12\x02\x0a\x7f",
        b"\x08\x01",
        b"",
    ] {
        let answer = ask_raw(&serve, bytes.to_vec()).await.unwrap();
        assert_eq!(answer.overall_code(), Code::OverLimit, "{bytes:?}");
    }
}

#[tokio::test]
async fn random_requests_of_envoy_are_decided() {
    let serve = used_up(RULES).await;
    let text = || vec(any::<u8>(), 0..20);
    let entry = (prop_oneof![Just(b"user".to_vec()), text()], text());
    let entry = entry.prop_map(|(key, value)| Entry { key, value });
    let descriptor = (
        vec(entry, 0..4),
        prop_oneof![Just(None), Just(Some(0)), any::<u64>().prop_map(Some)],
        prop::bool::weighted(0.2),
    );
    let descriptor =
        descriptor.prop_map(
            |(entries, hits_addend, is_negative_hits)| RateLimitDescriptor {
                entries,
                hits_addend,
                is_negative_hits,
            },
        );
    let request = (text(), vec(descriptor, 0..6), any::<u32>());
    let request = request.prop_map(|(domain, descriptors, hits_addend)| RateLimitRequest {
        domain,
        descriptors,
        hits_addend,
    });
    let mut random = random_cases();
    for _ in 0..300 {
        let request = request.new_tree(&mut random).unwrap().current();
        is_over_limit(&serve, request.clone(), &format!("{request:?}")).await;
    }
    let bytes = vec(any::<u8>(), 0..60);
    for _ in 0..300 {
        let bytes = bytes.new_tree(&mut random).unwrap().current();
        let answer = ask_raw(&serve, bytes.clone()).await.unwrap();
        assert_eq!(answer.overall_code(), Code::OverLimit, "{bytes:?}");
    }
}

/// The same cases in each run.
fn random_cases() -> TestRunner {
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(Config::default(), random)
}

#[tokio::test]
async fn hits_of_any_number_are_as_any_other_above_the_limit() {
    let largest = r#"
        [[rules]]
        name = "bytes"
        by = ["user"]
        limit = { algorithm = "fixed_window", rate = "4294967295/1h" }
        [rules.keys]
        monitoring = "allow"
        "#;
    let serve = Serve::start(largest);
    let hits = |user, hits: &[u64]| {
        let user: &[_] = &[("user", user)];
        let mut request = envoy("edge", &[user].repeat(hits.len()));
        for (descriptor, hits) in request.descriptors.iter_mut().zip(hits) {
            descriptor.hits_addend = Some(*hits);
        }
        request
    };
    for many in [
        &[1_u64 << 32][..],
        &[u64::MAX],
        &[u32::MAX.into(), 1],
        &[u64::MAX, u64::MAX],
    ] {
        let answer = serve.ask(hits("alice", many)).await.unwrap();
        assert_eq!(answer.overall_code(), Code::OverLimit, "{many:?}");
        let status = &answer.statuses[0];
        assert_eq!(status.code(), Code::OverLimit);
        assert_eq!(status.current_limit.as_ref().unwrap().name, "bytes");
        // A user without a limit is never denied.
        let allowed = serve.ask(hits("monitoring", many)).await.unwrap();
        assert_eq!(allowed.overall_code(), Code::Ok, "{many:?}");
    }
    let cost = |cost: Value| json!({ "entries": { "user": "alice" }, "cost": cost });
    for many in [json!(1_u64 << 32), json!(u64::MAX), json!(1e300)] {
        for path in ["/v1/check", "/v1/peek"] {
            let answer = serve.post(path, cost(many.clone())).await;
            assert_eq!(
                answer.status(),
                StatusCode::TOO_MANY_REQUESTS,
                "{path} {many}"
            );
            assert!(answer.headers().get("retry-after").is_none());
        }
    }
    // Nothing of it was charged.
    let all = serve.ask(hits("alice", &[u32::MAX.into()])).await.unwrap();
    assert_eq!(all.overall_code(), Code::Ok);
}

/// What counts for the same target is charged together.
#[tokio::test]
async fn descriptors_of_one_target_are_charged_together() {
    let rules = r#"
        [[rules]]
        name = "users"
        by = ["user"]
        limit = { algorithm = "fixed_window", rate = "3/1h" }
        [[rules]]
        name = "addresses"
        by = ["remote_address"]
        limit = { algorithm = "fixed_window", rate = "3/1h" }
        [[rules]]
        name = "paths"
        when = { path = "/login" }
        limit = { algorithm = "fixed_window", rate = "3/1h" }
        "#;
    let long = "a".repeat(1_000);
    let hash = "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3";
    let hash = format!("sha256-{hash}");
    let server = Server::start();
    for serve in [Serve::start(rules), Serve::on(&server, rules, &[])] {
        for (name, one, other) in [
            ("user", &*long, &*hash),
            ("user", "bob", "bob"),
            ("remote_address", "2001:db8::1", "2001:db8::2"),
            ("path", "/login?a", "/login?b"),
        ] {
            let both: [&[_]; 2] = [&[(name, one)], &[(name, other)]];
            let ok = serve.ask(envoy("edge", &both)).await.unwrap();
            assert_eq!(ok.overall_code(), Code::Ok, "{name}");
            let left: Vec<_> = ok.statuses.iter().map(|it| it.limit_remaining).collect();
            assert_eq!(left, [1, 1], "{name}");
            let denied = serve.ask(envoy("edge", &both)).await.unwrap();
            let codes = denied.statuses.iter().map(|it| it.code());
            assert_eq!(codes.collect::<Vec<_>>(), [Code::OverLimit; 2], "{name}");
            let last = serve.ask(envoy("edge", &both[..1])).await.unwrap();
            assert_eq!(last.overall_code(), Code::Ok, "{name}");
        }
    }
}

#[tokio::test]
async fn a_rule_for_all_requests_counts_one_of_many_descriptors_once() {
    let rules = "[[rules]]\nname = \"all\"\n\
                 limit = { algorithm = \"fixed_window\", rate = \"2/1h\" }\n";
    let serve = Serve::start(rules);
    let request = envoy("edge", &[USER, &[("path", "/a")], &[("path", "/b")]]);
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        let answer = serve.ask(request.clone()).await.unwrap();
        assert_eq!(answer.overall_code(), expected);
    }
}

/// The file does not show it, because each rule applies to other values too.
#[tokio::test]
async fn a_request_to_which_too_many_rules_apply_is_denied() {
    let rule = |place| {
        format!(
            "[[rules]]\nname = \"{place}\"\nby = [\"user\"]\n\
             when = {{ user = [\"alice\", \"{place}-*\"] }}\n\
             limit = {{ algorithm = \"fixed_window\", rate = \"9/1h\" }}\n"
        )
    };
    let serve = Serve::start(&(0..33).map(rule).collect::<String>());
    is_over_limit(&serve, envoy("edge", &[USER]), "33 rules").await;
    let checked = serve.check(json!({ "user": "alice" })).await;
    assert_eq!(checked, StatusCode::TOO_MANY_REQUESTS);
    let url = format!("http://{}/v1/auth-request/edge?user=x-user", serve.http);
    let asked = serve.client.get(url).header("x-user", "alice");
    assert_eq!(asked.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(
        serve.check(json!({ "user": "1-bob" })).await,
        StatusCode::OK
    );
}

#[tokio::test]
async fn addresses_of_one_network_share_a_limit() {
    let serve = Serve::start(
        r#"
        [[rules]]
        name = "addresses"
        by = ["address"]
        limit = { algorithm = "fixed_window", rate = "6/1m" }
        "#,
    );
    let mut granted = 0;
    for host in 0..30 {
        let address = format!("2001:db8:1:2::{host:x}");
        granted += u32::from(serve.check(json!({ "address": address })).await == StatusCode::OK);
    }
    assert_eq!(granted, 6);
}

#[tokio::test]
async fn a_key_where_something_else_is_stored_is_over_the_limit() {
    let server = Server::start();
    let serve = Serve::on(&server, RULES, &[]);
    let mut redis = server.connection().await;
    let () = redis.lpush("fixed_window:users:bob", 1).await.unwrap();
    let bob: &[_] = &[("user", "bob")];
    let answer = serve
        .ask(envoy("edge", &[&[("path", "/")], bob]))
        .await
        .unwrap();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let codes: Vec<_> = answer.statuses.iter().map(|it| it.code()).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    // Nothing was charged.
    let first = serve.ask(envoy("edge", &[&[("path", "/")]])).await.unwrap();
    assert_eq!(first.overall_code(), Code::Ok);
}

#[tokio::test]
async fn no_body_in_json_is_let_in_at_a_limit() {
    let serve = used_up(RULES).await;
    let nested = format!(
        "{{\"entries\": {}1{}}}",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let long = format!("{{\"entries\": {{\"user\": \"{}\"}}}}", "a".repeat(60_000));
    let too_long = format!("{{\"entries\": {{\"user\": \"{}\"}}}}", "a".repeat(70_000));
    let mut bodies: Vec<Vec<u8>> = [
        "",
        "null",
        "[]",
        "{}",
        "{\"entries\": null}",
        &nested,
        &long,
        &too_long,
        "{\"entries\": {}}",
        "{\"entries\": {\"user\": null}}",
        "{\"entries\": {\"user\": \"\"}}",
        "{\"entries\": {\"user\": {}}}",
        "{\"entries\": {\"user\": \"bob\", \"user\": \"carol\"}}",
        "{\"entries\": {\"user\": \"\\ud800\"}}",
        "{\"entries\": {\"\\udc00\": \"a\"}}",
        "{\"entries\": {}} {\"entries\": {}}",
        "{\"entries\": {}, \"granted\": true}",
    ]
    .map(|it| it.as_bytes().to_vec())
    .to_vec();
    bodies.push(b"{\"entries\": {\"user\": \"\xff\"}}".to_vec());
    for cost in [
        "0",
        "-1",
        "0.5",
        "1.0",
        "1e3",
        "4294967296",
        "1e300",
        "1e999",
        "\"1\"",
        "null",
    ] {
        bodies.push(format!("{{\"entries\": {{}}, \"cost\": {cost}}}").into_bytes());
    }
    for body in bodies {
        for path in ["/v1/check", "/v1/peek"] {
            let request = serve.client.post(format!("http://{}{path}", serve.http));
            let request = request.header("content-type", "application/json");
            let answer = request.body(body.clone()).send().await.unwrap();
            let status = answer.status();
            assert!(
                status.is_client_error(),
                "{status}: {}",
                String::from_utf8_lossy(&body)
            );
        }
    }
    // What only a client of the service has chosen is decided, and not refused.
    for user in ["\"\\ud800\"", "\"\\u0000\"", "\"\u{202e}\"", "\"sha256-\""] {
        let request = serve.client.post(format!("http://{}/v1/check", serve.http));
        let request = request.header("content-type", "application/json");
        let body = format!("{{\"entries\": {{\"user\": {user}}}}}");
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{user}");
    }
}

#[test]
fn nginx_lets_no_header_fields_in_at_a_limit() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let serve = runtime.block_on(used_up(RULES));
    let huge = format!("x-user: {}\r\n", "a".repeat(14_000));
    let larger = format!("x-user: {}\r\n", "a".repeat(40_000));
    let many = "x-user: alice\r\n".repeat(101);
    for fields in [
        "",
        "x-user: alice\r\n",
        "x-user:\r\n",
        "x-user: alice\r\nx-user: bob\r\n",
        "x-user: \u{fffd}\r\n",
        "X-USER: alice\r\nx_user: bob\r\n",
        &huge,
        &larger,
        &many,
    ] {
        for query in [
            "",
            "?user=x-user",
            "?user=x-user&user=x-user",
            "?=&&=x",
            "?user=%ff",
        ] {
            let path = format!("/v1/auth-request/edge{query}");
            let mut stream = TcpStream::connect(&serve.http).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            let head =
                format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
            let _ = stream.write_all(head.as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let is_rejected = ["HTTP/1.1 403 ", "HTTP/1.1 431 "];
            let is_rejected = is_rejected.iter().any(|it| answer.starts_with(it));
            assert!(is_rejected, "{path} {fields:.60}: {answer}");
        }
    }
}
