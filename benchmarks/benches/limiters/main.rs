//! What a decision of each limiter costs, and what a target takes in Redis: a table, printed and
//! written into `docs/which-limiter.md`.
//!
//! `cargo bench -p benchmarks --bench limiters`. It starts a `redis-server` of its own. With
//! `-- --goal` it only prints how a keyed limiter does beside an RRateLimiter.

mod goal;
mod measure;
mod page;
mod subject;

use crate::subject::Subject;
use compat_tests::Server;

#[tokio::main]
async fn main() {
    let server = Server::start();
    goal::print(&server).await;
    if std::env::args().any(|argument| argument == "--goal") {
        return;
    }
    let mut rows = Vec::new();
    for subject in Subject::all() {
        eprintln!("limiters: {}", subject.name);
        rows.push((subject, measure::measure(&server, subject).await));
    }
    let table = page::table(&rows, &page::machine(&server).await);
    println!("{table}");
    page::write(&table);
}
