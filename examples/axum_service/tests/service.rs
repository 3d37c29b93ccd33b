//! The service, asked by an HTTP client.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use axum_service::Service;
use redisson_rate_limiter::{Rate, RedissonClient};
use reqwest::{Client, Response, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[path = "../../../tests/support/mod.rs"]
mod servers;

const RULES: &str = r#"
[[rules]]
name = "per-user"
key = "user"
policy = { algorithm = "fixed_window", limit = 2, window_ms = 3600000 }
[rules.keys]
monitoring = "allow"

[[rules]]
name = "orders"
key = "all"
prefix = "orders:"
policy = { algorithm = "shared_rate", permits = 5, interval_ms = 3600000 }
"#;

struct Running {
    url: String,
    http: Client,
    service: Service,
    folder: TempDir,
    stop: oneshot::Sender<()>,
    served: JoinHandle<usize>,
}

impl Running {
    async fn start(redis_url: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.toml");
        fs::write(&file, RULES).unwrap();
        let service = Service::start(redis_url, file).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = service.clone();
        let served = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            running.run(listener, shutdown).await.unwrap()
        });
        Self {
            url,
            http: Client::new(),
            service,
            folder,
            stop,
            served,
        }
    }

    async fn order(&self, user: &str) -> Response {
        let request = self.http.post(format!("{}/orders", self.url));
        let request = request.header("x-user", user).body("an order");
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let response = self
            .http
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .unwrap();
        (response.status(), response.text().await.unwrap())
    }

    fn write_rules(&self, text: &str) {
        fs::write(self.folder.path().join("rules.toml"), text).unwrap();
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers()[name].to_str().unwrap()
}

async fn limits_are_those_of_the_file(redis_url: Option<&str>) {
    let running = Running::start(redis_url).await;
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
    let denied = r#"rate_limiter_requests{limiter="per-user",result="denied""#;
    assert!(text.contains(denied), "{text}");
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
    let (one, other) = (
        Running::start(Some(&url)).await,
        Running::start(Some(&url)).await,
    );
    assert_eq!(one.order("alice").await.status(), StatusCode::ACCEPTED);
    assert_eq!(other.order("alice").await.status(), StatusCode::ACCEPTED);
    assert_eq!(
        one.order("alice").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    let java = RedissonClient::connect(&url).await.unwrap();
    assert!(
        java.rate_limiter("orders:all")
            .try_acquire(3)
            .await
            .unwrap()
    );
    assert_eq!(
        one.order("bob").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test]
async fn rules_are_read_again_and_a_mistake_keeps_the_old_ones() {
    let running = Running::start(None).await;
    assert_eq!(running.order("alice").await.status(), StatusCode::ACCEPTED);
    running.write_rules(&RULES.replace("limit = 2", "limmit = 2"));
    let error = running.service.reload().unwrap_err().to_string();
    assert!(
        error.contains("limmit") && error.contains("line 5"),
        "{error}"
    );
    running.write_rules(&RULES.replace("key = \"user\"", "key = \"usr\""));
    let error = running.service.reload().unwrap_err().to_string();
    assert_eq!(error, "per-user: no key `usr`");

    running.write_rules(&RULES.replace("limit = 2", "limit = 1"));
    running.service.reload().unwrap();
    assert_eq!(
        running.order("alice").await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    running.write_rules(&format!(
        "shadow = true\n{}",
        RULES.replace("limit = 2", "limit = 1")
    ));
    running.service.reload().unwrap();
    assert_eq!(running.order("alice").await.status(), StatusCode::ACCEPTED);
}

#[tokio::test]
async fn a_shutdown_answers_what_is_in_flight_and_says_what_was_not_sent() {
    let running = Running::start(None).await;
    // The partner's quota is used up, so that orders wait.
    let client = running.service.client();
    let rate = Rate::overall(10, Duration::from_secs(1));
    let partner = client.rate_limiter("partner-api").with_rate(rate).unwrap();
    assert!(partner.try_acquire(9).await.unwrap()); // the worker has one, before or after
    for user in ["alice", "bob", "carol"] {
        assert_eq!(running.order(user).await.status(), StatusCode::ACCEPTED);
    }
    running.stop.send(()).unwrap();
    let left = tokio::time::timeout(Duration::from_secs(60), running.served);
    assert!(left.await.unwrap().unwrap() <= 2);
    assert!(client.is_closed());
}

/// The program, and its output.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(rules: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_axum-service"))
            .arg(rules)
            .env_remove("REDIS_URL")
            .env("ADDRESS", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("one more line").unwrap()
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_program_reads_its_rules_at_sighup_and_ends_at_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, RULES).unwrap();
    let mut program = Program::start(&rules);
    assert!(program.line().starts_with("listening on 127.0.0.1:"));
    program.signal(Signal::HUP);
    assert_eq!(program.line(), "read the rules again");
    fs::write(&rules, "rules = 3").unwrap();
    program.signal(Signal::HUP);
    assert!(
        program
            .line()
            .starts_with("kept the rules: TOML parse error at line 1")
    );
    program.signal(Signal::TERM);
    // The text of an error has several lines.
    while program.line() != "closed; 0 orders were not sent" {}
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn the_rules_of_the_example_are_right() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.toml");
    let mut program = Program::start(rules.as_ref());
    assert!(program.line().starts_with("listening on 127.0.0.1:"));
}
