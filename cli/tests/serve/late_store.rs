//! A server that starts before its store.

use reqwest::StatusCode;
use serde_json::json;
use tonic::Code::{Internal, Unavailable};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::http::RULES;
use crate::support::messages::Code;
use crate::support::servers::cluster::Cluster;
use crate::support::servers::{Server, ports};
use crate::support::{Serve, command, envoy};

/// The status of the health service.
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

fn before_its_store(url: &str, rules: &str, arguments: &[&str]) -> Serve {
    Serve::start_with(rules, arguments, |command| {
        command.env("REDIS_URL", url);
    })
}

fn at(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

async fn grpc_health(serve: &Serve) -> i32 {
    let mut client = HealthClient::new(serve.channel().await);
    let service = String::new();
    let health = client.check(HealthCheckRequest { service }).await.unwrap();
    health.into_inner().status
}

async fn is_ready(serve: &Serve) -> bool {
    let mut is_ready = true;
    for address in [&serve.http, &serve.admin] {
        is_ready &= serve.get(address, "/readyz").await.status() == StatusCode::OK;
    }
    is_ready
}

/// Asserts that Redis decides: two requests in an hour.
async fn is_exact(serve: &Serve) {
    let statuses = [
        StatusCode::OK,
        StatusCode::OK,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    for status in statuses {
        assert_eq!(serve.check(json!({ "user": "exact" })).await, status);
    }
}

#[tokio::test]
async fn it_is_healthy_at_once_and_ready_when_the_store_has_started() {
    let port = ports::reserve();
    let serve = before_its_store(&at(port), RULES, &[]);
    for address in [&serve.http, &serve.admin] {
        let healthz = serve.get(address, "/healthz").await.status();
        assert_eq!(healthz, StatusCode::OK);
    }
    assert!(!is_ready(&serve).await);
    assert_eq!(grpc_health(&serve).await, NOT_SERVING);
    let status = serve.status_json().await;
    assert_eq!(status["is_ready"], json!(false));
    let cause = status["servers"][0]["last_cause"].as_str().unwrap();
    assert!(cause.contains("refused"), "{cause}");
    let failed = serve.check(json!({ "user": "alice" })).await;
    assert_eq!(failed, StatusCode::SERVICE_UNAVAILABLE);
    let failed = serve.ask(envoy("shop", &[&[("user", "alice")]])).await;
    assert_eq!(failed.unwrap_err().code(), Unavailable);

    let _server = Server::start_at(port, &[]);
    while !is_ready(&serve).await {}
    while grpc_health(&serve).await != SERVING {}
    is_exact(&serve).await;
    let allowed = serve.ask(envoy("edge", &[&[("user", "alice")]])).await;
    assert_eq!(allowed.unwrap().overall_code(), Code::Ok);
}

#[tokio::test]
async fn the_failure_policy_decides_until_the_store_has_started() {
    for (policy, status, code) in [
        ("allow", StatusCode::OK, Code::Ok),
        ("local:1", StatusCode::OK, Code::Ok),
        ("deny", StatusCode::SERVICE_UNAVAILABLE, Code::OverLimit),
    ] {
        let port = ports::reserve();
        let mut serve = before_its_store(&at(port), RULES, &["--failure-policy", policy]);
        assert!(is_ready(&serve).await, "requests are decided");
        assert_eq!(grpc_health(&serve).await, SERVING);
        assert_eq!(serve.check(json!({ "user": "alice" })).await, status);
        let asked = envoy("shop", &[&[("user", "bob")]]);
        let answer = serve.ask(asked).await.unwrap();
        assert_eq!(answer.overall_code(), code, "{policy}");

        let _server = Server::start_at(port, &[]);
        serve.line_with("connected to ");
        let by_policy = async || {
            let asked = json!({ "entries": { "user": "monitoring" }, "domain": "shop" });
            let answer = serve.post("/v1/check", asked).await;
            let is_away = answer.status() == StatusCode::SERVICE_UNAVAILABLE;
            let body: serde_json::Value = answer.json().await.unwrap();
            is_away || body["by_failure_policy"] == json!(true)
        };
        while by_policy().await {}
        is_exact(&serve).await;
    }
}

#[tokio::test]
async fn a_mistake_is_still_refused_at_the_start() {
    let nobody = at(ports::reserve());
    let server = Server::start_with(&["--requirepass", "right"]);
    let wrong_password = format!("redis://:wrong@127.0.0.1:{}", server.port());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let wrong_rules = RULES.replace("limit", "limmit");
    for (url, rules, code, error) in [
        ("http://127.0.0.1", RULES, 2, "must begin with redis://"),
        (&nobody, &wrong_rules, 2, "unknown field `limmit`"),
        (&wrong_password, RULES, 3, "refused the credentials"),
    ] {
        std::fs::write(&file, rules).unwrap();
        let mut command = command(&file);
        let output = command.env("REDIS_URL", url).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(error), "{text}");
    }
}

#[tokio::test]
async fn a_later_store_that_lacks_the_database_is_no_fault_of_requests() {
    let port = ports::reserve();
    let url = format!("{}/99", at(port));
    let mut serve = before_its_store(&url, RULES, &[]);
    let _server = Server::start_at(port, &[]);
    let asked = json!({ "user": "alice" });
    // Until its refusal is known.
    while serve.check(asked.clone()).await == StatusCode::SERVICE_UNAVAILABLE {}
    assert_eq!(serve.check(asked).await, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!is_ready(&serve).await);
    serve.signal(rustix::process::Signal::TERM);
    serve.line_with("ended");
}

#[tokio::test]
async fn a_later_cluster_that_refuses_a_name_is_no_fault_of_requests() {
    let ports = [(); 3].map(|()| ports::reserve_for_node());
    let rules = RULES.replace("orders:all", "{}orders");
    let serve = before_its_store(&at(ports[0]), &rules, &[]);
    let _cluster = Cluster::start_at(ports);
    let check = async || {
        let asked = json!({ "domain": "shop", "entries": {} });
        serve.post("/v1/check", asked).await.status()
    };
    // Until it is known to be a cluster.
    while check().await == StatusCode::SERVICE_UNAVAILABLE {}
    assert_eq!(check().await, StatusCode::INTERNAL_SERVER_ERROR);
    let failed = serve.ask(envoy("shop", &[&[("user", "alice")]])).await;
    assert_eq!(failed.unwrap_err().code(), Internal);
}
