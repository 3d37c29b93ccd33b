//! From the start to the end: rules that change, health, a store that goes away, shutdown.

use std::process::Stdio;

use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use crate::http::RULES;
use crate::support::servers::Server;
use crate::support::{Serve, command};

#[test]
fn rules_that_cannot_be_read_are_an_error_of_usage() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    for (rules, error) in [
        (None, "No such file or directory"),
        (
            Some(RULES.replace("limit", "limmit")),
            "line 5: unknown field `limmit`",
        ),
        (
            Some(RULES.replace("\"user\"", "\"user=\"")),
            "`key` of `per-user`: `user=` has no value",
        ),
    ] {
        if let Some(rules) = rules {
            std::fs::write(&file, rules).unwrap();
        }
        let output = command(&file).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(error), "{text}");
    }
}

#[tokio::test]
async fn rules_are_read_again_and_a_mistake_keeps_the_old_ones() {
    let mut serve = Serve::start(RULES);
    let metrics = serve.metrics().await;
    for metric in [
        "rate_limiter_rules_valid 1",
        "rate_limiter_rules_reloads{result=\"read\"} 0",
        "rate_limiter_rules_reloads{result=\"refused\"} 0",
    ] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    assert_eq!(
        serve.check(json!({ "user": "alice" })).await,
        StatusCode::OK
    );
    serve.write_rules(&RULES.replace("limit = 2", "limmit = 2"));
    // It sees by itself that the file has changed.
    let refused = serve.line_with("rules: kept the old ones: ");
    assert!(
        refused.contains("line 5: unknown field `limmit`"),
        "{refused}"
    );
    let error = &serve.status_json().await["rules_error"];
    assert!(error.as_str().unwrap().contains("limmit"), "{error}");
    let metrics = serve.metrics().await;
    assert!(metrics.contains("rate_limiter_rules_valid 0"), "{metrics}");
    assert!(
        metrics.contains("rate_limiter_rules_reloads{result=\"refused\"} 1"),
        "{metrics}"
    );

    serve.write_rules(&RULES.replace("limit = 2", "limit = 1"));
    assert_eq!(serve.line_with("rules: "), "rules: read again, 2 of them");
    // What was used counts.
    assert_eq!(
        serve.check(json!({ "user": "alice" })).await,
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(serve.status_json().await["rules_error"], json!(null));
    assert!(serve.metrics().await.contains("rate_limiter_rules_valid 1"));

    serve.signal(Signal::HUP);
    assert_eq!(serve.line_with("rules: "), "rules: read again, 2 of them");
    serve.write_rules(&format!("shadow = true\n{RULES}"));
    serve.line_with("rules: read again");
    assert_eq!(
        serve.check(json!({ "user": "alice" })).await,
        StatusCode::OK
    );
}

#[test]
fn changed_rules_are_read_while_the_store_does_not_answer() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &["--response-timeout", "1h"]);
    server.signal("STOP");
    serve.write_rules(&RULES.replace("limit = 2", "limit = 1"));
    // It would be an hour later if it waited for the store.
    assert_eq!(serve.line_with("rules: "), "rules: read again, 2 of them");
}

#[tokio::test]
async fn it_is_ready_while_the_store_is_there_and_healthy_while_it_runs() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &[]);
    for path in ["/healthz", "/readyz"] {
        for address in [&serve.http, &serve.admin] {
            assert_eq!(serve.get(address, path).await.status(), StatusCode::OK);
        }
    }
    let probe = serve.client.head(format!("http://{}/readyz", serve.http));
    assert_eq!(probe.send().await.unwrap().status(), StatusCode::OK);
    drop(server);
    serve.line_with("lost the connection");
    while serve.get(&serve.http, "/readyz").await.status() == StatusCode::OK {}
    assert_eq!(
        serve.get(&serve.http, "/healthz").await.status(),
        StatusCode::OK
    );
    let failed = serve.check(json!({ "user": "alice" })).await;
    assert_eq!(failed, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn the_failure_policy_decides_while_the_store_is_away() {
    for (policy, status) in [
        ("allow", StatusCode::OK),
        ("deny", StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let server = Server::start();
        let mut serve = Serve::on(&server, RULES, &["--failure-policy", policy]);
        drop(server);
        serve.line_with("lost the connection");
        let decided = serve
            .post("/v1/check", json!({ "entries": { "user": "alice" } }))
            .await;
        assert_eq!(decided.status(), status, "{policy}");
        assert_eq!(
            serve.get(&serve.http, "/readyz").await.status(),
            StatusCode::OK
        );
    }
}

#[tokio::test]
async fn a_shutdown_ends_those_who_wait_and_loses_no_answer() {
    let serve = Serve::start(
        r#"
        [[rules]]
        name = "slow"
        key = "*"
        policy = { algorithm = "fixed_window", limit = 1, window_ms = 5000 }
        "#,
    );
    assert_eq!(serve.check(json!({})).await, StatusCode::OK);
    let acquire = json!({ "entries": {}, "timeout_ms": 20_000 });
    let waiting = serve
        .client
        .post(format!("http://{}/v1/acquire", serve.http));
    let waiting = tokio::spawn(waiting.json(&acquire).send());
    while !serve
        .metrics()
        .await
        .contains("rate_limiter_requests{limiter=\"slow\",result=\"denied\"")
    {}
    serve.signal(Signal::TERM);
    let ended = waiting.await.unwrap().unwrap();
    assert_eq!(ended.status(), StatusCode::SERVICE_UNAVAILABLE);
    let (lines, code) = serve.ended();
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "rratelimiter: ended");
}

#[test]
fn an_address_that_is_taken_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    std::fs::write(&file, RULES).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rratelimiter"));
    command
        .arg("serve")
        .arg("--rules")
        .arg(&file)
        .args(["--http", &taken]);
    let output = command.env_remove("REDIS_URL").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains(&format!("cannot listen at {taken}")),
        "{text}"
    );
}
