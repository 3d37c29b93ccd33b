//! The server, as a process at free ports, and its clients.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use reqwest::{RequestBuilder, Response, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

#[path = "../../../tests/support/proxy.rs"]
pub mod proxy;
#[path = "../../../tests/support/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "each test binary has its own")]
pub mod servers;

#[path = "../../../serve/src/grpc/messages.rs"]
pub mod messages;

use messages::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use servers::Server;

/// The server, which ends with the test.
pub struct Serve {
    child: Child,
    lines: Receiver<String>,
    /// The lines that were read, as they are.
    said: Vec<String>,
    folder: TempDir,
    pub http: String,
    pub grpc: String,
    pub admin: String,
    pub client: reqwest::Client,
}

impl Serve {
    /// Starts a server in memory with these rules.
    pub fn start(rules: &str) -> Self {
        Self::start_with(rules, &[], |_| {})
    }

    pub fn on(server: &Server, rules: &str, arguments: &[&str]) -> Self {
        let url = format!("redis://127.0.0.1:{}", server.port());
        Self::start_with(rules, arguments, |command| {
            command.env("REDIS_URL", url);
        })
    }

    pub fn start_with(rules: &str, arguments: &[&str], set_up: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.toml"), rules).unwrap();
        let mut command = command(&folder.path().join("rules.toml"));
        command.args(arguments);
        set_up(&mut command);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (line, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            let mut all = stderr.lines().map_while(Result::ok);
            all.try_for_each(|it| line.send(it))
        });
        let mut serve = Self {
            child,
            lines,
            said: Vec::new(),
            folder,
            http: String::new(),
            grpc: String::new(),
            admin: String::new(),
            client: reqwest::Client::new(),
        };
        loop {
            let line = serve.line();
            for (beginning, address) in [
                ("HTTP at ", &mut serve.http),
                ("gRPC at ", &mut serve.grpc),
                ("admin at ", &mut serve.admin),
            ] {
                if let Some(at) = line.strip_prefix(beginning) {
                    *address = at.to_owned();
                }
            }
            if line.starts_with("ready: ") || line.starts_with("listening: ") {
                return serve;
            }
        }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub fn write_rules(&self, rules: &str) {
        fs::write(self.path("rules.toml"), rules).unwrap();
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        // Longer than anything takes on a busy machine.
        let line = self.lines.recv_timeout(Duration::from_secs(120));
        let line = line.expect("one more line");
        self.said.push(line.clone());
        if let Ok(line) = serde_json::from_str::<Value>(&line) {
            return line["message"].as_str().unwrap().to_owned();
        }
        // Before it are the time and the level.
        let text = line.split_once("rratelimiter: ");
        text.expect("each line has it").1.to_owned()
    }

    /// The next line with this beginning.
    pub fn line_with(&mut self, beginning: &str) -> String {
        loop {
            let line = self.line();
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    /// The first line that has this part, as it is.
    pub fn said(&mut self, part: &str) -> String {
        loop {
            if let Some(line) = self.said.iter().find(|it| it.contains(part)) {
                return line.clone();
            }
            self.line();
        }
    }

    /// All lines so far, as they are.
    pub fn all_said(&self) -> &[String] {
        &self.said
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// The lines that are left and the exit code, once it has ended.
    pub fn ended(mut self) -> (Vec<String>, Option<i32>) {
        let lines = self.lines.iter().collect();
        (lines, self.child.wait().unwrap().code())
    }

    pub async fn post(&self, path: &str, body: Value) -> Response {
        self.request(path, &body).send().await.unwrap()
    }

    /// Posts in a task, while the test goes on.
    pub fn post_in_background(&self, path: &str, body: Value) -> JoinHandle<Response> {
        let request = self.request(path, &body);
        tokio::spawn(async { request.send().await.unwrap() })
    }

    fn request(&self, path: &str, body: &Value) -> RequestBuilder {
        let request = self.client.post(format!("http://{}{path}", self.http));
        request.json(body)
    }

    pub async fn get(&self, address: &str, path: &str) -> Response {
        let request = self.client.get(format!("http://{address}{path}"));
        request.send().await.unwrap()
    }

    /// The status of a check of these entries.
    pub async fn check(&self, entries: Value) -> StatusCode {
        let asked = json!({ "entries": entries });
        self.post("/v1/check", asked).await.status()
    }

    pub async fn status_json(&self) -> Value {
        let status = self.get(&self.admin, "/status.json").await;
        status.json().await.unwrap()
    }

    pub async fn metrics(&self) -> String {
        let metrics = self.get(&self.admin, "/metrics").await;
        metrics.text().await.unwrap()
    }

    pub async fn channel(&self) -> Channel {
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).unwrap();
        channel.connect().await.unwrap()
    }

    pub async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        ask(self.channel().await, Request::new(request)).await
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub async fn ask(
    channel: Channel,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    try_ask(channel, request).await
}

/// Like [`ask`], but the connection may be refused.
pub async fn try_ask(
    channel: Channel,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let mut grpc = Grpc::new(channel);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let path = PathAndQuery::from_static(path);
    Ok(grpc.unary(request, path, codec).await?.into_inner())
}

/// A request of Envoy.
pub fn envoy(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let entry = |(key, value): &(&str, &str)| Entry {
        key: key.as_bytes().to_vec(),
        value: value.as_bytes().to_vec(),
    };
    let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        hits_addend: None,
        is_negative_hits: false,
    };
    RateLimitRequest {
        domain: domain.as_bytes().to_vec(),
        descriptors: descriptors.iter().map(descriptor).collect(),
        hits_addend: 0,
    }
}

/// The program, at free ports.
pub fn command(rules: &Path) -> Command {
    command_at("127.0.0.1:0", rules)
}

/// The program, at an address.
pub fn command_at(address: &str, rules: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rratelimiter"));
    let addresses = ["--http", "--grpc", "--admin"].map(|it| [it, address]);
    command.arg("serve").arg("--rules").arg(rules);
    command.args(addresses.as_flattened());
    for variable in ["REDIS_URL", "REDIS_PASSWORD_FILE", "RRATELIMITER_TOKEN"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
