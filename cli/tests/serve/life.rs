//! From the start to the end: rules that change, health, a store that goes away, shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::json;

use crate::http::RULES;
use crate::support::proxy::{Fate, Proxy};
use crate::support::servers::Server;
use crate::support::{Serve, command, command_at, envoy};

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
            Some(RULES.replace("\"user\"", "\"user/129\"")),
            "line 4: `by` of `per-user`: `user/129`: the bits of a network are 1 to 128",
        ),
        (
            Some(RULES.replace("monitoring =", "sha256-abc =")),
            "line 6: `keys` of `per-user`: a hash is `sha256-` and 64 hexadecimal digits",
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
        "rate_limiter_rules_reloads_total{result=\"read\"} 0",
        "rate_limiter_rules_reloads_total{result=\"refused\"} 0",
    ] {
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
    assert_eq!(
        serve.check(json!({ "user": "alice" })).await,
        StatusCode::OK
    );
    serve.write_rules(&RULES.replace("limit", "limmit"));
    // The server notices that the file has changed.
    let refused = serve.line_with("rules: kept the old ones: ");
    assert!(
        refused.contains("line 5: unknown field `limmit`"),
        "{refused}"
    );
    let status = serve.status_json().await;
    let alert = &status["alerts"][0];
    assert!(
        alert["cause"].as_str().unwrap().contains("limmit"),
        "{alert}"
    );
    // The old rules are still those that are shown, with their keys.
    let names = status["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["per-user", "orders"]);
    assert_eq!(serve.check(json!({ "user": "bob" })).await, StatusCode::OK);
    let asking = &serve.status_json().await["rules"][0]["asking"];
    assert!(asking.to_string().contains("user=bob"), "{asking}");
    let metrics = serve.metrics().await;
    assert!(metrics.contains("rate_limiter_rules_valid 0"), "{metrics}");
    assert!(
        metrics.contains("rate_limiter_rules_reloads_total{result=\"refused\"} 1"),
        "{metrics}"
    );

    serve.write_rules(&RULES.replace("2/1h", "1/1h"));
    assert_eq!(
        serve.line_with("rules: "),
        "rules: read again, 2 of them; changed: `per-user`"
    );
    // What was used counts.
    assert_eq!(
        serve.check(json!({ "user": "alice" })).await,
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(serve.status_json().await["alerts"], json!([]));
    assert!(serve.metrics().await.contains("rate_limiter_rules_valid 1"));

    serve.signal(Signal::HUP);
    assert_eq!(
        serve.line_with("rules: "),
        "rules: read again, 2 of them; nothing changed"
    );
    // The counts of a rule that was removed meanwhile are not shown.
    let (_, without) = RULES.split_once("block\"\n").unwrap();
    serve.write_rules(without);
    serve.line_with("rules: read again, 1 of them");
    serve.write_rules(RULES);
    serve.line_with("rules: read again, 2 of them");
    let total = &serve.status_json().await["rules"][0]["use"]["total"];
    assert_eq!(*total, json!({ "granted": 0, "denied": 0, "failed": 0 }));

    let used_up = RULES.replace("2/1h", "1/1h");
    serve.write_rules(&format!("shadow = true\n{used_up}"));
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
    serve.write_rules(&RULES.replace("2/1h", "1/1h"));
    // It would be an hour later if it waited for the store.
    assert_eq!(
        serve.line_with("rules: "),
        "rules: read again, 2 of them; changed: `per-user`"
    );
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
        limit = { algorithm = "fixed_window", rate = "1/5s" }
        "#,
    );
    assert_eq!(serve.check(json!({})).await, StatusCode::OK);
    let acquire = json!({ "entries": {}, "timeout_ms": 20_000 });
    let waiting = serve.post_in_background("/v1/acquire", acquire);
    while !serve
        .metrics()
        .await
        .contains("rate_limiter_requests_total{limiter=\"slow\",result=\"denied\"")
    {}
    serve.signal(Signal::TERM);
    let ended = waiting.await.unwrap();
    assert_eq!(ended.status(), StatusCode::SERVICE_UNAVAILABLE);
    let (lines, code) = serve.ended();
    assert_eq!(code, Some(0), "{lines:?}");
    assert!(lines.last().unwrap().ends_with(" rratelimiter: ended"));
}

#[tokio::test]
async fn a_shutdown_answers_those_who_wait_for_their_turn() {
    let rules = r#"
        [[rules]]
        name = "paced"
        by = ["user"]
        limit = { algorithm = "leaky_bucket", rate = "1/25s", capacity = 2 }
        "#;
    let timeouts = ["--client-timeout", "60s", "--max-wait", "60s"];
    let arguments = [&timeouts[..], &["--response-timeout", "300ms"]].concat();
    let serve = Serve::start_with(rules, &arguments, |_| {});
    let first = json!({ "user": "alice" });
    assert_eq!(serve.check(first).await, StatusCode::OK);
    let waiting: Vec<_> = [("/v1/check", None), ("/v1/acquire", Some(60_000))]
        .map(|(path, timeout)| {
            let mut asked = json!({ "entries": { "user": "alice" } });
            if let Some(timeout) = timeout {
                asked["timeout_ms"] = json!(timeout);
            }
            serve.post_in_background(path, asked)
        })
        .into();
    let look = json!({ "entries": { "user": "alice" } });
    loop {
        // Until both are in the bucket.
        let peeked = serve.post("/v1/peek", look.clone()).await;
        let peeked: serde_json::Value = peeked.json().await.unwrap();
        if peeked["granted"] == json!(false) {
            break;
        }
    }
    serve.signal(Signal::TERM);
    for waiting in waiting {
        let ended = waiting.await.unwrap();
        assert_eq!(ended.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(ended.headers().contains_key("retry-after"));
    }
    let (lines, _) = serve.ended();
    assert!(lines.last().unwrap().ends_with(" rratelimiter: ended"));
}

/// The proxy goes on while the test waits for a line.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_gives_back_what_those_who_are_gone_were_granted() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let mut serve = Serve::start_with(RULES, &[], |command| {
        command.env("REDIS_URL", proxy.url());
    });
    assert_eq!(serve.check(json!({ "user": "bob" })).await, StatusCode::OK);
    let alice = json!({ "user": "alice" });
    proxy.next("EVALSHA", Fate::Held);
    let held = tokio::select! {
        status = serve.check(alice.clone()) => panic!("{status}"),
        held = proxy.held() => held,
    };
    let is_gone = "rate_limiter_requests_total{limiter=\"per-user\",result=\"cancelled\"";
    while !serve.metrics().await.contains(is_gone) {}
    serve.signal(Signal::TERM);
    serve.line_with("ending");
    held.let_through().await;
    let (lines, _) = serve.ended();
    assert!(lines.last().unwrap().ends_with(" rratelimiter: ended"));
    let serve = Serve::on(&server, RULES, &[]);
    for _ in 0..2 {
        assert_eq!(serve.check(alice.clone()).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_request_that_began_before_a_shutdown_is_decided() {
    let mut serve = Serve::start(RULES);
    let body = json!({ "entries": { "user": "alice" } }).to_string();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(&serve.http).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..20 {
        // What was sent before is read meanwhile.
        let healthy = serve.client.get(format!("http://{}/healthz", serve.http));
        healthy.header("connection", "close").send().await.unwrap();
    }
    serve.signal(Signal::TERM);
    serve.line_with("ending");
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (lines, _) = serve.ended();
    assert!(lines.last().unwrap().ends_with(" rratelimiter: ended"));
}

/// The proxy goes on while the test waits for a line.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_cuts_off_nobody_whose_store_does_not_answer() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let arguments = ["--response-timeout", "60s", "--shutdown-timeout", "2s"];
    let serve = Serve::start_with(RULES, &arguments, |command| {
        command.env("REDIS_URL", proxy.url());
    });
    assert_eq!(serve.check(json!({ "user": "bob" })).await, StatusCode::OK);
    proxy.next("EVALSHA", Fate::Held);
    let check = json!({ "entries": { "user": "alice" } });
    let asking = serve.post_in_background("/v1/check", check);
    let _held = proxy.held().await;
    serve.signal(Signal::TERM);
    let ended = asking.await.unwrap();
    assert_eq!(ended.status(), StatusCode::SERVICE_UNAVAILABLE);
    let (lines, _) = serve.ended();
    let is_cut_off = |line: &String| line.contains("cut off");
    assert!(!lines.iter().any(is_cut_off), "{lines:?}");
}

#[tokio::test]
async fn it_is_not_ready_while_it_shuts_down() {
    let mut serve = Serve::start(RULES);
    let addresses = [serve.http.clone(), serve.admin.clone()];
    // Requests that have begun.
    let begin = |address: &String| {
        let mut stream = TcpStream::connect(address).unwrap();
        let beginning = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n";
        stream.write_all(beginning).unwrap();
        stream
    };
    let open = addresses.each_ref().map(begin);
    for address in addresses.iter().cycle().take(40) {
        // What was sent before is read meanwhile.
        let ready = serve.client.get(format!("http://{address}/readyz"));
        let ready = ready.header("connection", "close").send().await.unwrap();
        assert_eq!(ready.status(), StatusCode::OK);
    }
    serve.signal(Signal::TERM);
    serve.line_with("ending");
    for mut stream in open {
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(b"\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
}

#[tokio::test]
async fn an_acquire_does_not_wait_for_what_a_rule_blocks() {
    let rules = "[[rules]]\nname = \"banned\"\nlimit = \"block\"\n";
    let serve = Serve::start_with(rules, &["--max-wait", "3d"], |_| {});
    // Longer than the rule says that it blocks.
    let acquire = json!({ "entries": {}, "timeout_ms": 2 * 24 * 3_600_000 });
    let denied = serve.post("/v1/acquire", acquire);
    let denied = tokio::time::timeout(Duration::from_secs(120), denied).await;
    let denied = denied.expect("an answer at once");
    assert_eq!(denied.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_acquire_does_not_wait_for_a_failure_policy() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &["--failure-policy", "deny"]);
    drop(server);
    serve.line_with("breaker of ");
    let acquire = json!({ "entries": { "user": "alice" }, "timeout_ms": 20_000 });
    let denied = serve.post("/v1/acquire", acquire).await;
    assert_eq!(denied.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(denied.headers().contains_key("retry-after"));
    // It was asked once.
    let total = &serve.status_json().await["rules"][0]["use"]["total"];
    assert_eq!(total["denied"], json!(1));
}

#[tokio::test]
async fn clients_are_not_told_where_the_store_is() {
    let server = Server::start();
    let mut serve = Serve::on(&server, RULES, &[]);
    let address = format!("127.0.0.1:{}", server.port());
    drop(server);
    serve.line_with("lost the connection");
    for path in ["/v1/check", "/v1/peek", "/v1/release"] {
        let asked = json!({ "domain": "shop", "entries": { "user": "alice" } });
        let failed = serve.post(path, asked).await;
        assert_eq!(failed.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(failed.headers()["retry-after"], "1");
        let text = failed.text().await.unwrap();
        assert!(!text.contains(&address), "{text}");
        assert!(text.contains("the store is away"), "{text}");
    }
    let failed = serve.ask(envoy("shop", &[&[("user", "alice")]])).await;
    assert_eq!(failed.unwrap_err().message(), "the store is away");
}

#[test]
fn an_address_that_anyone_reaches_is_warned_of() {
    let warnings = |address: &str, token: Option<&str>| {
        let serve = Serve::start_with(RULES, &[], |command| {
            let rules = PathBuf::from(command.get_args().nth(2).unwrap());
            *command = command_at(address, &rules);
            if let Some(token) = token {
                command.env("RRATELIMITER_TOKEN", token);
            }
        });
        let said = serve.all_said().join("\n");
        let asking = "anyone who reaches it may ask: there is neither a token nor --client-ca";
        let reading = "anyone who reaches the admin address sees the keys";
        [asking, reading].map(|it| said.contains(it))
    };
    assert_eq!(warnings("127.0.0.1:0", None), [false, false]);
    assert_eq!(warnings("0.0.0.0:0", None), [true, true]);
    assert_eq!(warnings("0.0.0.0:0", Some("token")), [false, true]);
}

#[test]
fn an_address_that_is_taken_is_reported() {
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
