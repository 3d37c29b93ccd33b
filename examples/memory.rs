//! What limiters in memory cost: bytes allocated for each idle key, and what is left of them after
//! the keys have expired and other requests have come.
//!
//! `cargo run --release --example memory` prints the table of `docs/memory.md`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redisson_rate_limiter::{AnyPolicy, MemoryStore, RedissonClient};
use tokio::time::advance;

type Result<T> = std::result::Result<T, Box<dyn error::Error>>;

/// Some 660 for each of the store's 128 tables, which have room for 448 or 896: the hash differs in
/// each run, but no table gets so many or so few that it has another size.
const KEYS: usize = 84_000;
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<()> {
    print!("{}", table().await?);
    Ok(())
}

async fn table() -> Result<String> {
    let mut table = format!(
        "| {},000 keys, one request each | bytes a key | MB | MB once expired |\n|---|---|---|---|\n",
        KEYS / 1_000
    );
    for policy in AnyPolicy::examples(100, MINUTE) {
        table += &row(policy).await?;
    }
    Ok(table)
}

async fn row(policy: AnyPolicy) -> Result<String> {
    let store = MemoryStore::new();
    let client = RedissonClient::builder().in_memory(&store);
    let limiter = client.policy_limiter(policy.clone())?;
    let before = allocated();
    for key in 0..KEYS {
        assert!(limiter.check(&format!("user:{key}"), 1).await?.is_granted());
    }
    let used = allocated() - before;
    advance(10 * MINUTE).await;
    // Other requests, one a millisecond, for as long as a round of sweeping takes.
    for _ in 0..2_000 {
        let _ = limiter.check_without_waiting("another", 1).await?;
        advance(Duration::from_millis(1)).await;
    }
    let left = allocated() - before;
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    let each = (used + KEYS / 2) / KEYS;
    let (used, left) = (megabytes(used), megabytes(left));
    Ok(format!("| {policy} | {each} | {used:.1} | {left:.1} |\n"))
}

/// The system's allocator, counting.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

// SAFETY: all is the system allocator's work; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps to what `alloc` asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block is one of the system allocator's, as all are.
        unsafe { System.dealloc(block, layout) }
    }
}

#[tokio::test(start_paused = true)]
async fn the_figures_in_docs_are_those_that_it_prints() {
    let table = table().await.unwrap();
    let docs = include_str!("../docs/memory.md");
    assert!(docs.contains(&table), "docs/memory.md should have\n{table}");
}
