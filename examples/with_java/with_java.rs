//! A Java service on Redisson and a Rust service on this crate share one limiter of five permits a
//! second.
//!
//! `cargo run -p compat-tests --example with_java`
//!
//! Starts a Redis server, a JVM with `JavaService.java` on the real Redisson 4.7.0, and two tasks
//! of its own. Prints what each caller asks for as it happens. At the end the server's own record
//! says who was granted how much, and that no window of a second held more than five permits.
//!
//! It needs `redis-server`, a JDK of at least 17 and Maven.

mod rust_service;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, error};

use compat_tests::record::{Change, Entry, Record};
use compat_tests::redisson::Version;
use compat_tests::{Peer, Server, class_path};
use redisson_rate_limiter::{Rate, RedissonClient};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;

const NAME: &str = "orders";
const PERMITS: u32 = 5;
const INTERVAL: Duration = Duration::from_secs(1);
const DURATION: Duration = Duration::from_secs(6);

/// Something that happened to a caller: `caller permits-left what`.
type Event = String;

#[tokio::main]
async fn main() -> Result<(), Box<dyn error::Error>> {
    run().await.map(drop)
}

/// What the server granted to each service.
struct Granted {
    java: u32,
    rust: u32,
    /// The most that any window held.
    fullest_window: u32,
}

async fn run() -> Result<Granted, Box<dyn error::Error>> {
    let server = Server::start();
    let client = RedissonClient::connect(&server.url()).await?;
    let limiter = client.rate_limiter(NAME);
    limiter
        .set_rate(Rate::overall(PERMITS.into(), INTERVAL))
        .await?;
    println!("{PERMITS} permits a second, for a Java service and a Rust service\n");
    println!("   time  caller  permits left  what");

    let record = Record::start(&server, &format!("{{{NAME}}}:permits")).await;
    let (events, mut happened) = mpsc::unbounded_channel::<Event>();
    let mut java = java_service(&server.url(), events.clone())?;
    // The Rust service starts with the Java service's first event: a JVM takes its time.
    let first = happened.recv().await.ok_or("the Java service has ended")?;
    let start = Instant::now();
    print(start, &first);
    let rust = tokio::spawn(rust_service::run(limiter, DURATION, events));
    while let Some(event) = happened.recv().await {
        print(start, &event);
    }
    rust.await??;
    java.wait().await?;

    let granted = summed(&record.end(&server).await);
    println!(
        "\ngranted by the server's record: {} to Java, {} to Rust; the fullest window held {} of {PERMITS}",
        granted.java, granted.rust, granted.fullest_window,
    );
    Ok(granted)
}

/// Starts the Java service; its lines are events until it ends.
fn java_service(
    url: &str,
    events: mpsc::UnboundedSender<Event>,
) -> Result<Child, Box<dyn error::Error>> {
    let java = match env::var_os("JAVA_HOME") {
        Some(home) => Path::new(&home).join("bin/java"),
        None => PathBuf::from("java"),
    };
    // The launcher compiles a single source file by itself.
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/with_java/JavaService.java");
    let mut process = Command::new(java)
        .args(["-cp", &class_path(Version::V4_7_0)])
        .arg(source)
        .args([url, NAME, &DURATION.as_millis().to_string()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = process.stdout.take().ok_or("the JVM's stdout is a pipe")?;
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if events.send(line).is_err() {
                return;
            }
        }
    });
    Ok(process)
}

fn print(start: Instant, event: &str) {
    let mut words = event.splitn(3, ' ');
    let [caller, left, what] = [(); 3].map(|()| words.next().unwrap_or_default());
    println!(
        "{:>5} ms  {caller:<6}  {left:>12}  {what}",
        start.elapsed().as_millis()
    );
}

/// Who was granted how much, and the most of any window: at each grant, those of the last second.
fn summed(record: &[Entry]) -> Granted {
    let mut granted = Granted {
        java: 0,
        rust: 0,
        fullest_window: 0,
    };
    let mut grants = Vec::new();
    for entry in record {
        let Change::Granted { to, score, permits } = entry.change else {
            continue;
        };
        match to {
            Peer::Java => granted.java += permits,
            Peer::Rust => granted.rust += permits,
        }
        grants.push((score, permits));
        let window_start = entry.at - INTERVAL.as_millis() as i64;
        let live = grants.iter().filter(|(score, _)| *score > window_start);
        let window = live.map(|(_, permits)| permits).sum();
        granted.fullest_window = granted.fullest_window.max(window);
    }
    granted
}

#[tokio::test]
async fn both_services_are_granted_permits_and_no_window_exceeds_the_rate() {
    let granted = run().await.unwrap();
    assert!(granted.java > 0 && granted.rust > 0);
    assert_eq!(granted.fullest_window, PERMITS);
}
