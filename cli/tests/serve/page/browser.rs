//! A browser that reports what a person sees of the status page.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::Serve;

const PROBE: &str = include_str!("probe.html");
/// Longer than anything takes on a busy machine.
const AT_MOST: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub width: u32,
    pub is_dark: bool,
    /// A selector: what is there before the page is looked at.
    pub until: &'a str,
    /// How many answers the page gets before the server is silent.
    pub answers: u32,
}

#[derive(Debug, Deserialize)]
pub struct Report {
    /// The text while long keys are cut.
    pub cut: String,
    pub text: String,
    /// How many pixels are reached by scrolling sideways only.
    pub sideways: u32,
    pub elements: Vec<String>,
    /// What axe finds against the rules of accessibility.
    pub violations: Vec<String>,
}

/// A command of Chromium that leaves nothing behind, once the folder is dropped.
pub fn chromium(profile: &TempDir) -> Command {
    let mut command = Command::new("chromium");
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// What a person sees of the status page of this server.
pub async fn see(serve: &Serve, view: View<'_>) -> Report {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (reported, mut reports) = mpsc::channel(1);
    let stage = Arc::new(Stage {
        client: serve.client.clone(),
        admin: serve.admin.clone(),
        answers: AtomicU32::new(view.answers),
        reported,
    });
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(Arc::clone(&stage).answer(stream));
        }
    });

    let profile = tempfile::tempdir().unwrap();
    let mut command = chromium(&profile);
    if view.is_dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let query = format!("width={}&until={}", view.width, encoded(view.until));
    let url = format!("http://{address}/probe?{query}");
    command.args(["--remote-debugging-port=0", "--window-size=1400,2200", &url]);
    let mut browser: Child = command
        .spawn()
        .expect("chromium is installed: see scripts/tools");
    let report = timeout(AT_MOST, reports.recv()).await;
    browser.kill().await.unwrap();
    serving.abort();
    report.expect("the page is as it was waited for").unwrap()
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Serves the page of the server with the probe beside it.
struct Stage {
    client: reqwest::Client,
    admin: String,
    answers: AtomicU32,
    reported: mpsc::Sender<Report>,
}

impl Stage {
    async fn answer(self: Arc<Self>, mut stream: TcpStream) {
        // Browsers also open connections to have one at hand.
        let Some((target, body)) = read(&mut stream).await else {
            return;
        };
        let path = target.split('?').next().unwrap_or_default();
        let (kind, content) = match path {
            "/probe" => ("text/html".to_owned(), PROBE.as_bytes().to_vec()),
            "/axe.min.js" => ("text/javascript".to_owned(), axe()),
            "/report" => {
                let report = serde_json::from_slice(&body).unwrap();
                self.reported.send(report).await.unwrap();
                ("text/plain".to_owned(), Vec::new())
            }
            "/status.json" if !self.has_answer() => std::future::pending().await,
            path => self.page(path).await,
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            content.len()
        );
        // The browser may have been ended.
        let _ = stream
            .write_all(&[head.as_bytes(), &content].concat())
            .await;
    }

    fn has_answer(&self) -> bool {
        let left = |answers: u32| answers.checked_sub(1);
        let order = Ordering::Relaxed;
        self.answers.fetch_update(order, order, left).is_ok()
    }

    async fn page(&self, path: &str) -> (String, Vec<u8>) {
        let url = format!("http://{}{path}", self.admin);
        let answer = self.client.get(url).send().await.unwrap();
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        (kind, answer.bytes().await.unwrap().to_vec())
    }
}

/// The target and the body of a request, if one comes.
async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return None;
        }
        let Some(end) = request.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse::<usize>().unwrap());
        if request.len() < end + 4 + length {
            continue;
        }
        let first = String::from_utf8_lossy(&request[..end]).into_owned();
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        return Some((target, request[end + 4..].to_vec()));
    }
}

/// The checker of accessibility, as scripts/tools has unpacked it.
fn axe() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/axe");
    let file = folder.join("axe_playwright_python/axe.min.js");
    fs::read(&file).unwrap_or_else(|_| panic!("{}: scripts/tools brings it", file.display()))
}
