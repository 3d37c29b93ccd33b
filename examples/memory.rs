//! What limiters in memory cost: resident memory for each idle key, and what is left of it once the keys have expired.
//!
//! `cargo run --release --example memory` writes the table of `docs/memory.md`. On Linux: it reads `/proc/self/statm`.
//! Each row is a process of its own, so that none uses what another one gave back.

use std::time::Duration;
use std::{env, error, fs, process};

use redisson_rate_limiter::{
    FixedWindow, LeakyBucket, Limiter, MemoryStore, PenaltyTokenBucket, QuotaBucket, Rate,
    RedissonClient, SlidingLog, SlidingWindow, TokenBucket,
};
use tokio::time::{advance, pause};

type Result<T> = std::result::Result<T, Box<dyn error::Error>>;

const KEYS: usize = 200_000;
const PAGE: usize = 4096;
const MINUTE: Duration = Duration::from_secs(60);

const KINDS: [&str; 8] = [
    "KeyedRateLimiter",
    "FixedWindow",
    "SlidingLog",
    "SlidingWindow",
    "TokenBucket",
    "QuotaBucket",
    "LeakyBucket",
    "PenaltyTokenBucket",
];

fn limiter(client: &RedissonClient, kind: &str) -> Result<Box<dyn Limiter>> {
    Ok(match kind {
        "KeyedRateLimiter" => Box::new(client.keyed_rate_limiter("", Rate::overall(100, MINUTE))?),
        "FixedWindow" => Box::new(client.limiter(FixedWindow::new(100, MINUTE))?),
        "SlidingLog" => Box::new(client.limiter(SlidingLog::new(100, MINUTE))?),
        "SlidingWindow" => Box::new(client.limiter(SlidingWindow::new(100, MINUTE, MINUTE / 6))?),
        "TokenBucket" => Box::new(client.limiter(TokenBucket::new(100, 2))?),
        "QuotaBucket" => Box::new(client.limiter(QuotaBucket::new(100, 100, MINUTE))?),
        "LeakyBucket" => Box::new(client.limiter(LeakyBucket::new(99, 1, MINUTE / 100))?),
        "PenaltyTokenBucket" => {
            Box::new(client.limiter(PenaltyTokenBucket::new(100, 1, MINUTE / 100))?)
        }
        other => return Err(format!("no kind of limiter: {other}").into()),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    if let Some(kind) = env::args().nth(1) {
        return row(&kind).await;
    }
    println!("| {KEYS} keys, one request each | bytes a key | MB | MB once expired |");
    println!("|---|---|---|---|");
    for kind in KINDS {
        let row = process::Command::new(env::current_exe()?)
            .arg(kind)
            .output()?;
        print!("{}", String::from_utf8(row.stdout)?);
    }
    Ok(())
}

async fn row(kind: &str) -> Result<()> {
    pause(); // so that nothing expires until time is moved
    let store = MemoryStore::new();
    let client = RedissonClient::builder().in_memory(&store);
    let limiter = limiter(&client, kind)?;
    limiter.decide("user:0", 1).await?;
    let before = resident()?;
    for key in 0..KEYS {
        limiter.decide(&format!("user:{key}"), 1).await?;
    }
    let used = resident()? - before;
    advance(10 * MINUTE).await;
    // Other requests, one a millisecond, for as long as a round of sweeping takes.
    for _ in 0..2_000 {
        limiter.decide("another", 1).await?;
        advance(Duration::from_millis(1)).await;
    }
    let left = resident()?.saturating_sub(before);
    let (each, used, left) = (used / KEYS, used / 1_000_000, left / 1_000_000);
    println!("| {kind} | {each} | {used} | {left} |");
    Ok(())
}

/// Bytes.
fn resident() -> Result<usize> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_whitespace().nth(1).ok_or("no figure")?;
    Ok(pages.parse::<usize>()? * PAGE)
}
