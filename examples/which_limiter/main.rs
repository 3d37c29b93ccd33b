//! The same requests through each limiter, drawn as the pictures of `docs/which-limiter.md`.
//!
//! Runs in memory with a clock that jumps from step to step, so that the pictures are the same each
//! time. If `REDIS_URL` is set, runs on Redis in real time and writes the pictures to the directory
//! for temporary files.
//!
//! `cargo run --example which_limiter`

mod limiters;
mod picture;
mod run;
mod traffic;

use std::path::{Path, PathBuf};
use std::{env, error, fs};

use redisson_rate_limiter::{MemoryStore, Result};

use crate::run::{Run, Start};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn error::Error>> {
    let url = env::var("REDIS_URL").ok();
    let (runs, directory) = match url.filter(|url| !url.is_empty()) {
        Some(url) => {
            tokio::time::resume();
            let start = Start::now();
            let client = start.client().connect(&url).await?;
            (start.run(client).await?, env::temp_dir())
        }
        None => (in_memory().await?, docs()),
    };
    let directory = directory.join("which-limiter");
    fs::create_dir_all(&directory)?;
    for run in &runs {
        fs::write(directory.join(file(run)), picture::draw(run))?;
        let granted = run.requests.iter().filter(|r| r.is_granted).count();
        let asked = run.requests.len();
        println!("{:<20} {granted:>2} of {asked} granted", run.shown.name);
    }
    println!("drawn in {}", directory.display());
    Ok(())
}

async fn in_memory() -> Result<Vec<Run>> {
    let start = Start::now();
    let client = start.client().in_memory(&MemoryStore::new());
    start.run(client).await
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn file(run: &Run) -> String {
    format!("{}.svg", run.shown.file)
}

#[tokio::test(start_paused = true)]
async fn the_pictures_in_docs_are_those_that_it_draws() {
    for run in in_memory().await.unwrap() {
        let file = docs().join("which-limiter").join(file(&run));
        let committed = fs::read_to_string(file).unwrap_or_default();
        let name = &run.shown.name;
        assert!(
            picture::draw(&run) == committed,
            "{name}'s picture is out of date: run `cargo run --example which_limiter`"
        );
    }
}
