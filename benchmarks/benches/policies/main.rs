//! What each policy costs compared with the least that keeps the same promise: a minimal script by
//! hand on the same state, bare calls of it, and in memory governor's keyed limiter. Prints a table
//! of each.
//!
//! `cargo bench -p benchmarks --bench policies`. It starts a `redis-server` of its own, unless it
//! gets `-- --in-memory`; with the name of a policy it measures that one.

mod callers;
mod compared;
mod in_memory;
mod scripts;
mod subject;

use std::time::Duration;

use benchmarks::thousands;
use compat_tests::Server;
use redisson_rate_limiter::RedissonClient;

/// A busy machine may keep the server waiting.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    let only = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    in_memory::print_table(only.as_deref()).await;
    if !std::env::args().any(|argument| argument == "--in-memory") {
        in_redis(only.as_deref()).await;
    }
}

async fn in_redis(only: Option<&str>) {
    let server = Server::start();
    let mut redis = server.connection().await;
    let client = RedissonClient::builder()
        .response_timeout(PATIENCE)
        .connect(&server.url())
        .await
        .expect("a client");
    println!(
        "| limiter | server, granted | by hand | times | server, denied | by hand | times | {} callers | bare calls | times |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        callers::CALLERS,
    );
    for subject in subject::all() {
        if only.is_some_and(|only| !subject.name.contains(only)) {
            continue;
        }
        let script = subject.script();
        let loaded = script.prepare_invoke().load_async(&mut redis).await;
        loaded.expect("the script by hand on the server");
        let scripts::Scripts { granted, denied } =
            scripts::measure(&mut redis, &client, &subject).await;
        let callers = callers::measure(&redis, &client, &subject).await;
        println!(
            "| {} | {:.1} µs | {:.1} µs | {:.2} | {:.1} µs | {:.1} µs | {:.2} | {}/s | {}/s | {:.1} |",
            subject.name,
            granted.ours,
            granted.other,
            granted.times,
            denied.ours,
            denied.other,
            denied.times,
            thousands(callers.ours.round() as u64),
            thousands(callers.other.round() as u64),
            callers.times,
        );
    }
}
