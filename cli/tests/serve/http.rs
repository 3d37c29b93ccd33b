//! The HTTP API.

use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

use crate::grpc::LOGS;
use crate::support::Serve;
use crate::support::servers::Server;

pub const RULES: &str = r#"
[[rules]]
name = "per-user"
by = ["user"]
limit = { algorithm = "fixed_window", rate = "2/1h" }
[rules.keys]
monitoring = "allow"
mallory = "block"

[[rules]]
name = "orders"
when = { domain = "shop" }
limiter = "orders:all"
limit = { rate = "3/1h" }
"#;

fn alice() -> Value {
    json!({ "domain": "shop", "entries": { "user": "alice", "path": "/" } })
}

fn field<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

async fn limits_are_those_of_the_file(serve: Serve) {
    let granted = serve.post("/v1/check", alice()).await;
    assert_eq!(granted.status(), StatusCode::OK);
    assert!(field(&granted, "ratelimit").starts_with("\"per-user\";r=1;t="));
    assert_eq!(
        field(&granted, "ratelimit-policy"),
        "\"per-user\";q=2;w=3600, \"orders\";q=3;w=3600"
    );
    let granted: Value = granted.json().await.unwrap();
    assert_eq!(granted["granted"], json!(true));
    assert_eq!(granted["limits"][0]["name"], json!("per-user"));
    assert_eq!(granted["limits"][1]["remaining"], json!(2));

    assert_eq!(
        serve.post("/v1/peek", alice()).await.status(),
        StatusCode::OK
    );
    assert_eq!(
        serve.post("/v1/check", alice()).await.status(),
        StatusCode::OK
    );
    for path in ["/v1/peek", "/v1/check"] {
        let denied = serve.post(path, alice()).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&denied, "content-type"), "application/problem+json");
        assert!(field(&denied, "retry-after").parse::<u32>().unwrap() <= 3_600);
        let denied: Value = denied.json().await.unwrap();
        assert_eq!(denied["violated-policies"], json!(["per-user"]));
        // The other one was not charged.
        assert_eq!(denied["limits"][1]["name"], json!("orders"));
        assert_eq!(denied["limits"][1]["remaining"], json!(1));
        assert_eq!(denied["limits"][0]["granted"], json!(false));
        assert_eq!(denied["limits"][1]["granted"], json!(true)); // it would be
    }

    assert_eq!(
        serve.check(json!({ "user": "mallory" })).await,
        StatusCode::FORBIDDEN
    );
    for _ in 0..3 {
        assert_eq!(
            serve.check(json!({ "user": "monitoring" })).await,
            StatusCode::OK
        );
        assert_eq!(
            serve.check(json!({ "tenant": "acme" })).await,
            StatusCode::OK
        );
    }
    let too_much = json!({ "entries": { "user": "bob" }, "cost": 3 });
    let too_much = serve.post("/v1/check", too_much).await;
    assert_eq!(too_much.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(too_much.headers().get("retry-after").is_none());
    assert_eq!(field(&too_much, "ratelimit-policy"), r#""per-user";q=2"#);
    assert!(too_much.headers().get("ratelimit").is_none());
    let too_much: Value = too_much.json().await.unwrap();
    assert_eq!(too_much["violated-policies"], json!(["per-user"]));
    assert_eq!(
        too_much["detail"],
        "a request of 3 can never be granted: the limit of `per-user` is 2"
    );

    let released = serve.post("/v1/release", alice()).await;
    assert_eq!(
        released.json::<Value>().await.unwrap(),
        json!({ "released": 1 })
    );
    let bob = json!({ "domain": "shop", "entries": { "user": "bob" }, "cost": 2 });
    assert_eq!(serve.post("/v1/check", bob).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_limits_are_those_of_the_file_in_memory() {
    limits_are_those_of_the_file(Serve::start(RULES)).await;
}

#[tokio::test]
async fn the_limits_are_those_of_the_file_in_redis() {
    let server = Server::start();
    limits_are_those_of_the_file(Serve::on(&server, RULES, &[])).await;
}

async fn a_cost_that_no_call_grants_at_once_is_told_as_one_above_the_limit(serve: Serve) {
    let both = json!({ "tenant": "acme", "user": "alice" });
    let alone = json!({ "tenant": "acme" });
    for (entries, cost, why) in [
        (&alone, 501, "`cost` must be at most 500"),
        (&alone, 1_001, "1000"),
        (&both, 251, "`cost` must be lower"),
        (&both, 801, "`cost` must be at most 500"),
    ] {
        for path in ["/v1/check", "/v1/acquire", "/v1/peek"] {
            let mut asked = json!({ "domain": "edge", "entries": entries, "cost": cost });
            if path == "/v1/acquire" {
                asked["timeout_ms"] = json!(60_000);
            }
            let refused = serve.post(path, asked).await;
            assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
            assert!(refused.headers().get("retry-after").is_none());
            assert_eq!(field(&refused, "content-type"), "application/problem+json");
            let refused: Value = refused.json().await.unwrap();
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains(why), "{path}, {cost}: {detail}");
        }
    }
    let granted = json!({ "domain": "edge", "entries": both, "cost": 250 });
    let granted = serve.post("/v1/check", granted).await;
    let granted: Value = granted.json().await.unwrap();
    assert_eq!(granted["limits"][0]["remaining"], json!(550));
    assert_eq!(granted["limits"][1]["remaining"], json!(750));
}

#[tokio::test]
async fn a_cost_that_no_call_grants_at_once_is_a_429_in_memory() {
    a_cost_that_no_call_grants_at_once_is_told_as_one_above_the_limit(Serve::start(LOGS)).await;
}

#[tokio::test]
async fn a_cost_that_no_call_grants_at_once_is_a_429_in_redis() {
    let server = Server::start();
    let serve = Serve::on(&server, LOGS, &[]);
    a_cost_that_no_call_grants_at_once_is_told_as_one_above_the_limit(serve).await;
}

#[tokio::test]
async fn an_acquire_waits_as_long_as_it_may() {
    let serve = Serve::start(
        r#"
        [[rules]]
        name = "short"
        by = ["user"]
        limit = { algorithm = "fixed_window", rate = "1/300ms" }
        [[rules]]
        name = "long"
        by = ["tenant"]
        limit = { algorithm = "fixed_window", rate = "1/1h" }
        "#,
    );
    let acquire = |entry: &str| json!({ "entries": { entry: "a" }, "timeout_ms": 60_000 });
    for entry in ["user", "user", "user", "tenant"] {
        let granted = serve.post("/v1/acquire", acquire(entry)).await;
        assert_eq!(granted.status(), StatusCode::OK, "{entry}");
    }
    // Its permits come later than it would wait: it does not wait at all.
    let denied = serve.post("/v1/acquire", acquire("tenant")).await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn an_acquire_waits_no_longer_than_the_server_allows() {
    let rules = r#"
        [[rules]]
        name = "window"
        by = ["user"]
        limit = { algorithm = "fixed_window", rate = "1/4s" }
        [[rules]]
        name = "bucket"
        by = ["tenant"]
        limit = { algorithm = "leaky_bucket", rate = "1/4s", capacity = 9 }
        "#;
    let serve = Serve::start_with(rules, &["--max-wait", "1s"], |_| {});
    for entry in ["user", "tenant"] {
        let acquire = json!({ "entries": { entry: "a" }, "timeout_ms": 60_000 });
        let granted = serve.post("/v1/acquire", acquire.clone()).await;
        assert_eq!(granted.status(), StatusCode::OK, "{entry}");
        // It would be granted in time otherwise.
        let denied = serve.post("/v1/acquire", acquire).await;
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS, "{entry}");
    }
}

#[tokio::test]
async fn the_time_that_an_acquire_has_waited_is_not_left_for_its_turn() {
    let rules = r#"
        [[rules]]
        name = "window"
        by = ["user"]
        limit = { algorithm = "fixed_window", rate = "1/8s" }
        [[rules]]
        name = "bucket"
        by = ["tenant"]
        limit = { algorithm = "leaky_bucket", rate = "1/1s", capacity = 99 }
        "#;
    let serve = Serve::start_with(rules, &["--client-timeout", "60s"], |_| {});
    assert_eq!(serve.check(json!({ "user": "a" })).await, StatusCode::OK);
    let acquire = json!({ "entries": { "user": "a", "tenant": "b" }, "timeout_ms": 9_000 });
    let waiting = serve.post_in_background("/v1/acquire", acquire);
    let is_denied = "rate_limiter_requests_total{limiter=\"window\",result=\"denied\"";
    while !serve.metrics().await.contains(is_denied) {}
    // The window ends in time, and the bucket has no turn then for another 7 s.
    let other = json!({ "entries": { "tenant": "b" }, "cost": 15 });
    assert_eq!(
        serve.post("/v1/check", other).await.status(),
        StatusCode::OK
    );
    let denied = waiting.await.unwrap();
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_takes_nothing() {
    let serve = Serve::start(
        r#"
        [[rules]]
        name = "orders"
        limiter = "orders"
        limit = { rate = "1/1s" }
        "#,
    );
    let acquire = json!({ "entries": {}, "timeout_ms": 20_000 });
    assert_eq!(serve.check(json!({})).await, StatusCode::OK);
    for _ in 0..20 {
        let waiting = serve.post("/v1/acquire", acquire.clone());
        // Long enough to be sent, and shorter than the wait.
        let gone = tokio::time::timeout(std::time::Duration::from_millis(20), waiting).await;
        assert!(gone.is_err());
    }
    for _ in 0..2 {
        let granted = serve.post("/v1/acquire", acquire.clone()).await;
        assert_eq!(granted.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn what_a_rule_allows_is_not_limited_and_is_counted_for_it() {
    let serve = Serve::start(
        r#"
        [[rules]]
        name = "per-user"
        by = ["user"]
        limit = { algorithm = "fixed_window", rate = "1/1h" }

        [[rules]]
        name = "office"
        when = { address = ["192.0.2.0/24", "2001:db8::/32"] }
        instead_of = ["per-user"]
        limit = "allow"
        "#,
    );
    for address in ["192.0.2.7", "::ffff:192.0.2.8", "2001:DB8::1"] {
        let entries = json!({ "user": "alice", "address": address });
        for _ in 0..2 {
            assert_eq!(serve.check(entries.clone()).await, StatusCode::OK);
        }
    }
    let elsewhere = json!({ "user": "alice", "address": "198.51.100.1" });
    assert_eq!(serve.check(elsewhere.clone()).await, StatusCode::OK);
    let denied = serve.check(elsewhere).await;
    assert_eq!(denied, StatusCode::TOO_MANY_REQUESTS);
    let rules = serve.status_json().await["rules"].take();
    assert_eq!(rules[1]["name"], "office");
    assert_eq!(rules[1]["use"]["total"]["granted"], 6, "{rules}");
    let metrics = serve.metrics().await;
    let unmatched = "rate_limiter_unmatched_requests_total 0";
    assert!(metrics.contains(unmatched), "{metrics}");
}

#[tokio::test]
async fn the_status_shows_who_denies_and_counts_no_request_twice() {
    let shadow = "\n[[rules]]\nname = \"trial\"\nshadow = true\n\
                  limit = { algorithm = \"fixed_window\", rate = \"1/1h\" }\n";
    let serve = Serve::start(&format!("{RULES}{shadow}"));
    let alice = || json!({ "domain": "shop", "entries": { "user": "alice" } });
    for _ in 0..3 {
        serve.post("/v1/check", alice()).await;
    }
    let status = serve.status_json().await;
    assert_eq!(status["recent"]["granted"], json!(2), "{status}");
    assert_eq!(status["recent"]["denied"], json!(1), "{status}");
    assert_eq!(status["rules"][1]["name"], json!("orders"));
    assert_eq!(status["rules"][1]["denied"], json!([]), "{status}");
    let metrics = serve.metrics().await;
    assert!(metrics.contains("rate_limiter_waiters 0"), "{metrics}");
}

#[tokio::test]
async fn nginx_gets_answers_that_it_understands() {
    let serve = Serve::start(RULES);
    let url = format!(
        "http://{}/v1/auth-request/shop?user=x-user&path=x-path",
        serve.http
    );
    let ask = |user: &'static str| {
        let request = serve.client.get(&url).header("x-user", user);
        async { request.send().await.unwrap() }
    };
    for _ in 0..2 {
        let passed = ask("alice").await;
        assert_eq!(passed.status(), StatusCode::NO_CONTENT);
        assert!(field(&passed, "ratelimit").contains("\"orders\";r="));
    }
    let denied = ask("alice").await;
    assert_eq!(denied.status(), StatusCode::FORBIDDEN);
    assert!(field(&denied, "retry-after").parse::<u32>().unwrap() <= 3_600);
    let blocked = ask("mallory").await;
    assert_eq!(blocked.status(), StatusCode::FORBIDDEN);
    assert!(blocked.headers().get("retry-after").is_none());
    // Without the field there is no such entry, only the rule for all.
    let anyone = serve.client.post(&url).send().await.unwrap();
    assert_eq!(anyone.status(), StatusCode::NO_CONTENT);
    // The domain is all that follows the path, whatever it looks like.
    let like = format!(
        "http://{}/v1/auth-request/v1/auth-request/shop?user=x-user",
        serve.http
    );
    let passed = serve.client.get(&like).send().await.unwrap();
    assert!(passed.headers().get("ratelimit").is_none());
    // What a client names is not an entry.
    let other = format!("http://{}/v1/auth-request/other?user=x-user", serve.http);
    let named = serve
        .client
        .get(&other)
        .header("user", "mallory")
        .header("x-entry-user", "mallory");
    assert_eq!(named.send().await.unwrap().status(), StatusCode::NO_CONTENT);
    let twice = serve
        .client
        .get(&other)
        .header("x-user", "bob")
        .header("x-user", "mallory");
    assert_eq!(twice.send().await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_cannot_be_read_is_refused() {
    let serve = Serve::start(RULES);
    for body in [
        "",
        "{",
        "[]",
        r#"{"entries": 1}"#,
        r#"{"entries": {"user": 1}}"#,
        r#"{"entries": {}, "cost": 0}"#,
        r#"{"entries": {}, "cost": -1}"#,
        r#"{"entries": {}, "cost": 1.5}"#,
        r#"{"entries": {}, "costs": 1}"#,
        r#"{"entries": {}, "timeout_ms": 1}"#,
    ] {
        let request = serve.client.post(format!("http://{}/v1/check", serve.http));
        let request = request.header("content-type", "application/json");
        let refused = request.body(body).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(field(&refused, "content-type"), "application/problem+json");
    }
    let many: serde_json::Map<_, _> = (0..65).map(|it| (it.to_string(), json!("a"))).collect();
    assert_eq!(
        serve.check(Value::Object(many)).await,
        StatusCode::BAD_REQUEST
    );
    let acquire = serve.post("/v1/acquire", json!({ "entries": {} })).await;
    assert_eq!(acquire.status(), StatusCode::BAD_REQUEST);
    let form = serve.client.post(format!("http://{}/v1/check", serve.http));
    let form = form
        .header("content-type", "text/plain")
        .body(r#"{"entries": {}}"#);
    let form = form.send().await.unwrap();
    assert_eq!(form.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let read = serve.get(&serve.http, "/v1/check").await;
    assert_eq!(read.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(field(&read, "allow"), "POST");
    let nowhere = serve.get(&serve.http, "/v2/check").await;
    assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
    // The status page is elsewhere.
    assert_eq!(
        serve.get(&serve.http, "/metrics").await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn a_key_of_another_type_and_odd_texts_are_told_apart() {
    let server = Server::start();
    let serve = Serve::on(&server, RULES, &[]);
    let mut redis = server.connection().await;
    let () = redis::cmd("LPUSH")
        .arg("fixed_window:per-user:alice")
        .arg(1)
        .query_async(&mut redis)
        .await
        .unwrap();
    let broken = serve.post("/v1/check", alice()).await;
    assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
    for user in [
        "\u{0}\r\n\u{1b}[2J",
        "{bob}",
        "\u{202e}",
        &"long".repeat(10_000),
    ] {
        for status in [
            StatusCode::OK,
            StatusCode::OK,
            StatusCode::TOO_MANY_REQUESTS,
        ] {
            assert_eq!(
                serve.check(json!({ "user": user })).await,
                status,
                "{user:?}"
            );
        }
    }
}
