//! The log: lines with time and level, as text or as JSON.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::RULES;
use crate::support::servers::Server;
use crate::support::{Serve, command};

#[tokio::test]
async fn each_line_has_its_time_and_level() {
    let mut serve = Serve::start(RULES);
    serve.write_rules("rules = 1");
    let (read, refused) = (serve.said("HTTP at"), serve.said("kept the old"));
    for (line, level) in [(read, "INFO"), (refused, "WARN")] {
        let (time, rest) = line.split_once("Z ").unwrap();
        let shape = time.replace(|it: char| it.is_ascii_digit(), "0");
        assert_eq!(shape, "0000-00-00T00:00:00.000000", "{line}");
        let rest = rest.trim_start();
        assert!(
            rest.starts_with(&format!("{level} rratelimiter: ")),
            "{line}"
        );
    }
}

#[tokio::test]
async fn with_log_json_each_line_is_an_object() {
    let mut serve = Serve::start_with(RULES, &["--log", "json"], |_| {});
    serve.write_rules("rules = 1");
    let line: Value = serde_json::from_str(&serve.said("kept the old")).unwrap();
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["target"], "rratelimiter");
    let message = line["message"].as_str().unwrap();
    assert!(message.starts_with("rules: kept the old ones: "), "{line}");
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
}

#[tokio::test]
async fn it_is_not_said_to_be_ready_while_the_store_is_away() {
    let server = Server::start();
    let port = server.port();
    drop(server);
    let url = format!("redis://127.0.0.1:{port}");
    let mut serve = Serve::start_with(RULES, &[], |command| {
        command.env("REDIS_URL", url);
    });
    serve.said("not ready: the store is away: ");
    let _server = Server::start_at(port, &[]);
    serve.line_with("ready: the store answers again");
    let lines = serve.all_said();
    let with = |part: &str| lines.iter().filter(|it| it.contains(part)).count();
    assert_eq!(with("not ready: the store is away: "), 1, "{lines:?}");
    assert_eq!(with("rratelimiter: ready: "), 1, "{lines:?}");
}

#[tokio::test]
async fn it_goes_on_when_nobody_reads_its_log_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, RULES).unwrap();
    let mut ended = Ended(command(&rules).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(ended.0.stderr.take().unwrap()).lines();
    let mut admin = String::new();
    for line in lines.by_ref().map_while(Result::ok) {
        if let Some((_, address)) = line.split_once("admin at ") {
            admin = address.to_owned();
        }
        if line.contains(": ready: ") {
            break;
        }
    }
    drop(lines);
    let alerts = async || -> Value {
        let status = reqwest::get(format!("http://{admin}/status.json"));
        let status: Value = status.await.unwrap().json().await.unwrap();
        status["alerts"].clone()
    };
    // Each file causes a line of the log, and the task that writes the first line reads the second
    // file.
    for (text, alerted) in [("rules = 1", 1), (RULES, 0)] {
        fs::write(&rules, text).unwrap();
        let start = Instant::now();
        loop {
            let alerts = alerts().await;
            if alerts.as_array().map(Vec::len) == Some(alerted) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(120), "{alerts}");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(alerts().await, json!([]));
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
