//! This crate compared with the real Redisson and others: one run, one server, one table.
//!
//! `cargo bench -p benchmarks --bench side_by_side` prints the table and writes it, with a picture,
//! to `docs/`. With `-- --quick` it takes a minute, proves only that it works, and leaves `docs/`
//! alone.
//!
//! Contenders take turns, round after round, and the result of each is the median of its rounds, so
//! that a machine that is slower for a while is so for all of them. Nothing is asserted: a goal
//! that is missed is reported as missed.

mod callers;
mod contender;
mod goals;
mod in_memory;
mod machine;
mod memory_use;
mod numbers;
mod page;
mod picture;
mod plan;
mod recorded_call;
mod redisson;
mod rust_callers;
mod sample;
mod scripts_alone;
mod setup;
mod users;
mod waiting;
mod workload;

use std::{env, fs, path::Path, time::Instant};

use plan::Plan;
use setup::Setup;

#[tokio::main]
async fn main() {
    let quick = env::args().any(|argument| argument == "--quick");
    let plan = if quick { Plan::quick() } else { Plan::full() };
    let start = Instant::now();

    let mut setup = Setup::start().await;
    progress("the JVM warms up");
    setup.warm_up(&plan).await;
    let mut sampled = Vec::new();
    for workload in workload::all() {
        progress(&workload.to_string());
        sampled.push(setup.sample(&workload, &plan).await);
    }
    progress("the scripts alone");
    let scripts_alone = scripts_alone::measure(&mut setup, &plan).await;
    progress("1,000 waiters");
    let waiting = waiting::measure(&mut setup, &plan).await;
    progress("memory of Redis");
    let memory = memory_use::measure(&mut setup, &plan).await;
    let machine = machine::describe(&mut setup).await;
    drop(setup);
    progress("in memory");
    let in_memory = in_memory::measure(&plan);
    let users = users::measure(&plan);

    let results = goals::Results {
        sampled,
        scripts_alone,
        waiting,
        memory,
        in_memory,
        users,
    };
    let page = page::write(&results, &machine, &plan, start.elapsed());
    let directory = if quick {
        Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned()
    } else {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    };
    fs::create_dir_all(&directory).expect("the directory for the page");
    let file = directory.join("benchmarks.md");
    let page = page::with_peers(&page, &fs::read_to_string(&file).unwrap_or_default());
    fs::write(file, &page).expect("the page");
    for (name, picture) in [
        ("benchmarks.svg", picture::draw(&results.sampled)),
        ("benchmarks-memory.svg", users::picture(&results.users)),
    ] {
        fs::write(directory.join(name), picture).expect("a picture");
    }
    println!("{page}");
    progress(&format!("written to {}", directory.display()));
}

/// To stderr, so that stdout is the page alone.
fn progress(what: &str) {
    eprintln!("side by side: {what}");
}
