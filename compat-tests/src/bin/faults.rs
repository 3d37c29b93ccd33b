//! Prints what callers of this crate and of Redisson 4.7.0 see of a fault: how long nobody is
//! granted anything, how many calls fail, and how many more permits are gone than were granted.
//!
//! ```text
//! cargo run -p compat-tests --bin faults -- [FAULT…]
//! ```
//!
//! Each fault has a server of its own for each kind of client: this crate, Redisson with the few
//! connections of `compat-tests`, and Redisson with its default settings. The calls of four callers
//! come every 20 ms; all clients have their default timeouts.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use compat_tests::Server;
use compat_tests::redisson::{self, Redisson, Servers, Version};
use proxy::{Fate, Proxy};
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;
use tokio::time::sleep;

#[path = "../../../tests/support/proxy.rs"]
mod proxy;

const CALLERS: usize = 4;
const PERMITS: u64 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3600);
/// How long a fault lasts that ends by itself.
const OUTAGE: Duration = Duration::from_secs(1);
/// How long the callers go on after it.
const AFTERWARDS: Duration = Duration::from_secs(8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    FrozenConnection,
    ConnectionsClosed,
    KilledAndRestarted,
    Stopped,
    Paused,
    PasswordChanged,
    ClientsFull,
    BusyScript,
    RequestsLost,
    AnswersLost,
    AnswersLostOften,
    ScriptsFlushed,
    Demoted,
    PermitsLeftLost,
    GrantsLost,
}

const FAULTS: [Fault; 16] = [
    Fault::None,
    Fault::FrozenConnection,
    Fault::ConnectionsClosed,
    Fault::KilledAndRestarted,
    Fault::Stopped,
    Fault::Paused,
    Fault::PasswordChanged,
    Fault::ClientsFull,
    Fault::BusyScript,
    Fault::RequestsLost,
    Fault::AnswersLost,
    Fault::AnswersLostOften,
    Fault::ScriptsFlushed,
    Fault::Demoted,
    Fault::PermitsLeftLost,
    Fault::GrantsLost,
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    ThisCrate,
    Redisson,
    RedissonByDefault,
}

const KINDS: [Kind; 3] = [Kind::ThisCrate, Kind::Redisson, Kind::RedissonByDefault];

#[derive(Clone)]
enum Limiter {
    Rust(RateLimiter),
    Java(redisson::Limiter),
}

impl Limiter {
    async fn try_acquire(&self) -> Result<bool, String> {
        match self {
            Self::Rust(limiter) => limiter.try_acquire(1).await.map_err(|e| format!("{e:?}")),
            Self::Java(limiter) => limiter.try_acquire(1).await.map_err(|e| e.class),
        }
    }
}

#[tokio::main]
async fn main() {
    let chosen: Vec<String> = env::args().skip(1).collect();
    for fault in FAULTS {
        if !chosen.is_empty() && !chosen.contains(&format!("{fault:?}")) {
            continue;
        }
        for kind in KINDS {
            let seen = measure(fault, kind).await;
            let name = match kind {
                Kind::ThisCrate => "this crate",
                Kind::Redisson => "Redisson",
                Kind::RedissonByDefault => "Redisson, default settings",
            };
            println!("{fault:?}, {name}: {seen}");
        }
    }
}

/// What the callers of one kind see of one fault.
async fn measure(fault: Fault, kind: Kind) -> String {
    let folder = tempfile::tempdir().expect("a folder for the server");
    let dir = folder.path().to_str().expect("a path in UTF-8").to_owned();
    let arguments = [
        "--dir",
        &dir,
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ];
    let mut server = Server::start_with(&arguments);
    let port = server.port();
    let mut proxy = Proxy::to(port).await;
    let direct = RedissonClient::connect(&server.url())
        .await
        .expect("a server");
    let shared = direct.rate_limiter("limiter");
    let rate = Rate::overall(PERMITS, HOUR);
    shared.set_rate(rate).await.expect("a rate");
    let url = proxy.url();
    let limiter = match kind {
        Kind::ThisCrate => {
            let client = RedissonClient::connect(&url).await;
            Limiter::Rust(client.expect("a server").rate_limiter("limiter"))
        }
        Kind::Redisson => java_limiter(Servers::Single(&url)).await,
        Kind::RedissonByDefault => java_limiter(Servers::SingleByDefault(&url)).await,
    };
    for _ in 0..50 {
        assert_eq!(limiter.try_acquire().await, Ok(true));
    }

    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(call(limiter.clone(), Arc::clone(&is_over)));
    }
    sleep(Duration::from_secs(1)).await;
    let mut raw = server.connection().await;
    let start = Instant::now();
    if fault == Fault::KilledAndRestarted {
        server.signal("KILL");
        drop(server);
        sleep(OUTAGE).await;
        server = Server::start_at(port, &arguments);
        raw = server.connection().await;
    } else {
        make(fault, &server, &mut raw, &mut proxy).await;
    }
    sleep(AFTERWARDS).await;
    let end = Instant::now();
    is_over.store(true, Ordering::Relaxed);
    let (mut granted, mut moments, mut failed) = (50, vec![start, end], Vec::new());
    while let Some(done) = callers.join_next().await {
        let calls = done.expect("a caller");
        granted += calls.granted.len();
        moments.extend(calls.granted.iter().filter(|at| **at >= start));
        failed.extend(calls.failed);
    }
    moments.sort_unstable();
    let gaps = moments.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.max().unwrap_or(start.elapsed());
    let used: Option<i64> = redis::cmd("GET")
        .arg("{limiter}:value")
        .query_async(&mut raw)
        .await
        .expect("the permits left");
    let gone = used.map_or(0, |left| PERMITS as i64 - left);
    let errors = failed.len();
    failed.sort();
    failed.dedup();
    format!(
        "{longest:?} without a grant, {} granted, {gone} gone, {errors} errors {failed:?}",
        granted
    )
}

async fn java_limiter(servers: Servers<'_>) -> Limiter {
    let client = Redisson::shared(Version::V4_7_0).open(servers, &[]).await;
    Limiter::Java(client.expect("a server").limiter("limiter"))
}

#[derive(Default)]
struct Calls {
    granted: Vec<Instant>,
    failed: Vec<String>,
}

async fn call(limiter: Limiter, is_over: Arc<AtomicBool>) -> Calls {
    let mut calls = Calls::default();
    while !is_over.load(Ordering::Relaxed) {
        match limiter.try_acquire().await {
            Ok(true) => calls.granted.push(Instant::now()),
            Ok(false) => calls.failed.push("denied".to_owned()),
            Err(error) => calls.failed.push(error.chars().take(60).collect()),
        }
        sleep(Duration::from_millis(20)).await;
    }
    calls
}

async fn make(fault: Fault, server: &Server, raw: &mut MultiplexedConnection, proxy: &mut Proxy) {
    match fault {
        Fault::None | Fault::KilledAndRestarted => {}
        Fault::FrozenConnection => proxy.freeze(),
        Fault::ConnectionsClosed => close_others(raw).await,
        Fault::Stopped => {
            server.signal("STOP");
            sleep(OUTAGE).await;
            server.signal("CONT");
        }
        Fault::Paused => {
            let pause = OUTAGE.as_millis().to_string();
            run(raw, &["CLIENT", "PAUSE", &pause]).await;
        }
        Fault::ClientsFull => {
            run(raw, &["CONFIG", "SET", "maxclients", "1"]).await;
            close_others(raw).await;
            sleep(OUTAGE).await;
            run(raw, &["CONFIG", "SET", "maxclients", "10000"]).await;
        }
        Fault::PasswordChanged => {
            run(raw, &["CONFIG", "SET", "requirepass", "other"]).await;
            close_others(raw).await;
            sleep(OUTAGE).await;
            run(raw, &["CONFIG", "SET", "requirepass", ""]).await;
        }
        Fault::BusyScript => {
            run(raw, &["CONFIG", "SET", "busy-reply-threshold", "50"]).await;
            let mut other = server.connection().await;
            let endless = tokio::spawn(async move {
                let mut script = redis::cmd("EVAL");
                script.arg("while true do end").arg(0);
                let _: redis::RedisResult<()> = script.query_async(&mut other).await; // it is killed
            });
            sleep(OUTAGE).await;
            run(raw, &["SCRIPT", "KILL"]).await;
            endless.await.expect("the script's caller");
        }
        Fault::RequestsLost => {
            lose(proxy, Fate::CutBeforeServer, 6, Duration::from_millis(500)).await;
        }
        Fault::AnswersLost => {
            lose(proxy, Fate::CutBeforeAnswer, 6, Duration::from_millis(500)).await;
        }
        Fault::AnswersLostOften => {
            lose(proxy, Fate::CutBeforeAnswer, 20, Duration::from_millis(100)).await;
        }
        Fault::ScriptsFlushed => run(raw, &["SCRIPT", "FLUSH"]).await,
        Fault::Demoted => {
            run(raw, &["REPLICAOF", "127.0.0.1", "1"]).await;
            sleep(OUTAGE).await;
            run(raw, &["REPLICAOF", "NO", "ONE"]).await;
        }
        Fault::PermitsLeftLost => run(raw, &["DEL", "{limiter}:value"]).await,
        Fault::GrantsLost => run(raw, &["DEL", "{limiter}:permits"]).await,
    }
}

/// Lets so many calls lose their request or their answer, and each the connection with it.
async fn lose(proxy: &mut Proxy, fate: Fate, calls: usize, apart: Duration) {
    for _ in 0..calls {
        proxy.next("EVALSHA", fate);
        proxy.next("EVAL", fate);
        sleep(apart).await;
    }
}

async fn close_others(raw: &mut MultiplexedConnection) {
    run(raw, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
}

async fn run(raw: &mut MultiplexedConnection, command: &[&str]) {
    let mut all = redis::cmd(command[0]);
    let _: redis::Value = all
        .arg(&command[1..])
        .query_async(raw)
        .await
        .expect("a command");
}
