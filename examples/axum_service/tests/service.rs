//! The service, asked by an HTTP client.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use redisson_rate_limiter::{Rate, RedissonClient};
use reqwest::{Client, Response, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[path = "../../../metrics/tests/scrape/mod.rs"]
mod scrape;
#[path = "../../../tests/support/mod.rs"]
mod servers;

use scrape::Scrape;

const RULES: &str = r#"
[[rules]]
name = "per-user"
by = ["user"]
limit = { algorithm = "fixed_window", rate = "2/1h" }
[rules.keys]
monitoring = "allow"

[[rules]]
name = "orders"
limiter = "orders:api"
limit = { rate = "5/1h" }
"#;

/// The program, and what it prints.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
    http: Client,
    folder: TempDir,
}

impl Running {
    fn start(redis_url: Option<&str>) -> Self {
        Self::by_rules(redis_url, RULES)
    }

    fn by_rules(redis_url: Option<&str>, rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        fs::write(&path, rules).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_axum-service"));
        command.arg(path).env_remove("REDIS_URL");
        if let Some(url) = redis_url {
            command.env("REDIS_URL", url);
        }
        command.env("ADDRESS", "127.0.0.1:0").stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = Self {
            child,
            lines,
            url: String::new(),
            http: Client::new(),
            folder,
        };
        let line = running.line();
        let address = line.strip_prefix("listening on ").expect(&line);
        running.url = format!("http://{address}");
        running
    }

    /// The next line that is not about an order of the worker.
    fn line(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let line = lines.find(|line| !line.starts_with("sent "));
        line.expect("one more line")
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Has it read its rules again, and returns what it says of that.
    fn reload(&mut self, rules: &str) -> String {
        fs::write(self.folder.path().join("rules.toml"), rules).unwrap();
        self.signal(Signal::HUP);
        self.line()
    }

    async fn order(&self, user: &str) -> Response {
        let request = self.http.post(format!("{}/orders", self.url));
        let request = request.header("x-user", user).body("an order");
        request.send().await.unwrap()
    }

    async fn order_items(&self, user: &str, items: &str) -> u16 {
        let request = self.http.post(format!("{}/orders", self.url));
        let request = request.header("x-user", user).header("x-items", items);
        let response = request.body("an order").send().await.unwrap();
        response.status().as_u16()
    }

    async fn status(&self, user: &str) -> u16 {
        self.order(user).await.status().as_u16()
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let response = self.http.get(format!("{}{path}", self.url)).send().await;
        let response = response.unwrap();
        (response.status(), response.text().await.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

async fn limits_are_those_of_the_file(redis_url: Option<&str>) {
    let running = Running::start(redis_url);
    for left in [1, 0] {
        let accepted = running.order("alice").await;
        assert_eq!(accepted.status(), StatusCode::ACCEPTED);
        assert!(header(&accepted, "ratelimit").contains(&format!("\"per-user\";r={left}")));
    }
    let rejected = running.order("alice").await;
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(header(&rejected, "retry-after").parse::<u32>().unwrap() <= 3_600);
    assert_eq!(
        header(&rejected, "content-type"),
        "application/problem+json"
    );
    assert_eq!(running.order("bob").await.status(), StatusCode::ACCEPTED);
    // What was rejected is charged to nobody.
    for (user, status) in [
        ("monitoring", StatusCode::ACCEPTED),
        ("monitoring", StatusCode::ACCEPTED),
        ("monitoring", StatusCode::TOO_MANY_REQUESTS),
        ("carol", StatusCode::TOO_MANY_REQUESTS),
    ] {
        assert_eq!(running.order(user).await.status(), status, "{user}");
    }

    let (status, text) = running.get("/metrics").await;
    assert_eq!(status, StatusCode::OK);
    let scrape = Scrape::of(&text);
    for (limiter, result, expected) in [("per-user", "denied", 1.0), ("orders", "denied", 2.0)] {
        let labels = format!("limiter={limiter}, mode=enforced, result={result}, source=store");
        let value = scrape.value("rate_limiter_requests_total", &labels);
        assert_eq!(value, Some(expected), "{labels}");
    }
    assert_eq!(scrape.value("rate_limiter_waiters", ""), Some(0.0));
    assert_eq!(running.get("/healthz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_limits_are_those_of_the_file_in_memory() {
    limits_are_those_of_the_file(None).await;
}

#[tokio::test]
async fn the_limits_are_those_of_the_file_in_redis() {
    let server = servers::Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    limits_are_those_of_the_file(Some(&url)).await;
}

#[tokio::test]
async fn instances_and_java_services_share_the_limits() {
    let server = servers::Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let (one, other) = (Running::start(Some(&url)), Running::start(Some(&url)));
    assert_eq!(one.status("alice").await, 202);
    assert_eq!(other.status("alice").await, 202);
    assert_eq!(one.status("alice").await, 429);
    let java = RedissonClient::connect(&url).await.unwrap();
    let orders = java.rate_limiter("orders:api");
    assert!(orders.try_acquire(3).await.unwrap());
    assert_eq!(one.status("bob").await, 429);
}

#[tokio::test]
async fn users_of_one_address_share_its_limit() {
    let rules = r#"
[[rules]]
name = "per-address"
by = ["address"]
limit = { algorithm = "fixed_window", rate = "2/1h" }
[rules.keys]
"127.0.0.1" = "local"
[rules.plans]
local = { rate = "3/1h" }
"#;
    let running = Running::by_rules(None, rules);
    for (user, status) in [("alice", 202), ("bob", 202), ("carol", 202), ("dave", 429)] {
        assert_eq!(running.status(user).await, status, "{user}");
    }
}

#[tokio::test]
async fn the_service_is_not_healthy_while_redis_is_away() {
    let server = servers::Server::start();
    let running = Running::start(Some(&format!("redis://127.0.0.1:{}", server.port())));
    assert_eq!(running.get("/healthz").await.0, StatusCode::OK);
    drop(server);
    let (status, text) = running.get("/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
}

#[tokio::test]
async fn an_idle_worker_takes_nothing_from_the_quota() {
    let server = servers::Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let other = RedissonClient::connect(&url).await.unwrap();
    let partner = other.rate_limiter("partner-api");
    let rate = Rate::overall(10, Duration::from_secs(3600));
    partner.set_rate(rate).await.unwrap();
    let mut running = Running::start(Some(&url));
    assert_eq!(running.status("alice").await, 202);
    assert_eq!(running.lines.next().unwrap().unwrap(), "sent an order");
    assert_eq!(partner.available_permits().await.unwrap(), 9);
    running.signal(Signal::TERM);
    assert_eq!(running.line(), "closed; 0 orders were not sent");
    assert!(running.child.wait().unwrap().success());
    assert_eq!(partner.available_permits().await.unwrap(), 9);
}

#[tokio::test]
async fn rules_are_read_again_and_a_mistake_keeps_the_old_ones() {
    let mut running = Running::start(None);
    assert_eq!(running.status("alice").await, 202);
    let answer = running.reload(&RULES.replace("limit = ", "limmit = "));
    assert!(answer.starts_with("kept the rules: "), "{answer}");
    assert!(
        answer.contains("line 5: unknown field `limmit`"),
        "{answer}"
    );
    let one = RULES.replace("2/1h", "1/1h");
    assert_eq!(
        running.reload(&one),
        "read the rules again: changed: `per-user`"
    );
    assert_eq!(running.status("alice").await, 429);
    let answer = running.reload(&format!("shadow = true\n{one}"));
    assert_eq!(
        answer,
        "read the rules again: changed: `per-user`, `orders`"
    );
    assert_eq!(running.status("alice").await, 202);
}

#[tokio::test]
async fn a_shutdown_says_what_was_not_sent_and_keeps_no_permit() {
    let server = servers::Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    // The partner's quota is used up, so that orders wait.
    let other = RedissonClient::connect(&url).await.unwrap();
    let rate = Rate::overall(10, Duration::from_secs(3600));
    let partner = other.rate_limiter("partner-api");
    partner.set_rate(rate).await.unwrap();
    assert!(partner.try_acquire(10).await.unwrap());
    let mut running = Running::start(Some(&url));
    for user in ["alice", "bob", "carol"] {
        assert_eq!(running.status(user).await, 202);
    }
    running.signal(Signal::TERM);
    assert_eq!(running.line(), "closed; 3 orders were not sent");
    assert!(running.child.wait().unwrap().success());
    partner.release(10).await.unwrap();
    assert_eq!(partner.available_permits().await.unwrap(), 10);
}

#[tokio::test]
async fn the_rules_of_the_example_are_right() {
    let running = Running::by_rules(None, include_str!("../rules.toml"));
    for _ in 0..3 {
        assert_eq!(running.status("monitoring").await, 202);
    }
    for (items, status) in [("50", 202), ("101", 429)] {
        assert_eq!(running.order_items("carol", items).await, status);
    }
}

#[tokio::test]
async fn a_report_waits_for_a_limiter_that_java_services_share() {
    let server = servers::Server::start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let java = RedissonClient::connect(&url).await.unwrap();
    let reports = java.rate_limiter("reports");
    reports
        .set_rate(Rate::overall(1, Duration::from_secs(1)))
        .await
        .unwrap();
    let running = Running::start(Some(&url));
    for _ in 0..2 {
        let (status, text) = running.get("/reports").await;
        assert_eq!((status, &*text), (StatusCode::OK, "a report"));
    }
    reports
        .set_rate(Rate::overall(1, Duration::from_secs(3600)))
        .await
        .unwrap();
    assert!(reports.try_acquire(1).await.unwrap());
    assert_eq!(
        running.get("/reports").await.0,
        StatusCode::TOO_MANY_REQUESTS
    );
}
