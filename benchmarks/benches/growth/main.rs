//! What an operation costs the server as a limiter's grants grow in number: the longest call, ours
//! and Redisson's in one run.
//!
//! `cargo bench -p benchmarks --bench growth` writes `docs/growth.md` and its picture; with
//! `-- --quick` it takes fewer grants and leaves the page in the target directory. With a part of
//! an operation's name it measures that one and writes no page, with `largest` the largest calls.

mod fixture;
mod largest;
mod operation;
mod page;
mod picture;
mod together;

use std::{env, fs, path::Path};

use fixture::Fixture;
use operation::OPERATIONS;

#[tokio::main]
async fn main() {
    let quick = env::args().any(|argument| argument == "--quick");
    let sizes: &[u32] = if quick {
        &[10, 1_000, 10_000]
    } else {
        &[10, 1_000, 100_000, 1_000_000]
    };
    let mut fixture = Fixture::start().await;
    let mut rows = Vec::new();
    let only = env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    for operation in OPERATIONS {
        if !only
            .as_ref()
            .is_none_or(|only| operation.name.contains(only))
        {
            continue;
        }
        eprintln!("growth: {}", operation.name);
        let mut costs = Vec::new();
        for &grants in sizes {
            costs.push(fixture.measure(&operation, grants).await);
        }
        rows.push((operation.name, costs));
    }
    if only.as_deref() == Some("largest") {
        let largest = fixture.largest().await;
        print!(
            "{}",
            page::largest(&largest, &fixture.expiry(1_000_000).await)
        );
        return;
    }
    if only.is_some() {
        print!("{}", page::table(sizes, &rows));
        return;
    }
    let mut memory = Vec::new();
    for &grants in sizes {
        memory.push(fixture.memory(grants).await);
    }
    eprintln!("growth: twenty clients");
    let audits = fixture.audits(20, sizes[sizes.len() - 2].max(1_000)).await;
    eprintln!("growth: the largest calls");
    let largest = fixture.largest().await;
    let expiry = fixture.expiry(sizes[sizes.len() - 1]).await;
    let largest = page::largest(&largest, &expiry);
    let page = page::write(sizes, &rows, &memory, &audits, &largest);
    let directory = if quick {
        Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned()
    } else {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    };
    fs::write(directory.join("growth.md"), &page).expect("the page");
    fs::write(directory.join("growth.svg"), picture::draw(sizes, &rows)).expect("the picture");
    println!("{page}");
}
