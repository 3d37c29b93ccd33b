//! What this process holds after requests on a million keyed limiters through one client, on Redis
//! and in memory, and what is left once they have expired. Prints the table of `docs/memory.md`.
//!
//! `cargo bench -p benchmarks --bench many_limiters`. It starts a `redis-server` of its own.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use compat_tests::Server;
use redisson_rate_limiter::{KeyedRateLimiter, Rate, RedissonClient};
use tokio::{task::JoinSet, time::sleep};

const KEYS: u64 = 1_000_000;
const CALLERS: usize = 256;
const SECOND: Duration = Duration::from_secs(1);
/// Longer than the requests take, so that the store holds all limiters at once.
const KEEP_ALIVE: Duration = Duration::from_secs(120);
/// In memory, requests drop 128 expired limiters in each ms.
const SWEPT_FOR: Duration = Duration::from_secs(12);

#[tokio::main]
async fn main() {
    println!(
        "| {KEYS} keys, one request each | MB at most | MB after the requests | MB once expired | \
         MB resident at the end of the requests |\n|---|---|---|---|---|"
    );
    let server = Server::start();
    let client = RedissonClient::connect(&server.url()).await;
    // Redis expires its limiters itself: the client has nothing to drop.
    measure("Redis", &client.expect("our client"), KEEP_ALIVE).await;
    measure("in memory", &RedissonClient::in_memory(), 15 * SECOND).await;
}

async fn measure(name: &str, client: &RedissonClient, keep_alive: Duration) {
    let rate = Rate::overall(100, SECOND).keep_alive(keep_alive);
    let limiter = client.keyed_rate_limiter("user:", rate);
    let limiter = limiter.expect("a rate that can be");
    // The connection has its buffers, and the server its scripts.
    ask(&limiter, KEYS, KEYS + 1_000).await;
    let before = allocated();
    MOST.store(before, Ordering::Relaxed);
    ask(&limiter, 0, KEYS).await;
    let most = MOST.load(Ordering::Relaxed) - before;
    let after = allocated().saturating_sub(before);
    let resident = resident_kilobytes();
    if name == "in memory" {
        sleep(keep_alive).await;
        let end = tokio::time::Instant::now() + SWEPT_FOR;
        while tokio::time::Instant::now() < end {
            let _ = limiter.check("another", 1).await.expect("a decision");
            sleep(Duration::from_millis(1)).await;
        }
    } else {
        sleep(SECOND).await;
    }
    let left = allocated().saturating_sub(before);
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    println!(
        "| KeyedRateLimiter, {name} | {:.1} | {:.1} | {:.1} | {} |",
        megabytes(most),
        megabytes(after),
        megabytes(left),
        resident / 1_000
    );
}

/// One request on each key of a range, by callers side by side.
async fn ask(limiter: &KeyedRateLimiter, from: u64, to: u64) {
    let next = Arc::new(AtomicU64::new(from));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (limiter, next) = (limiter.clone(), Arc::clone(&next));
        callers.spawn(async move {
            loop {
                let key = next.fetch_add(1, Ordering::Relaxed);
                if key >= to {
                    return;
                }
                let decision = limiter.check(&key.to_string(), 1).await;
                assert!(decision.expect("a decision").is_granted());
            }
        });
    }
    callers.join_all().await;
}

/// The memory of this process that is not swapped out.
fn resident_kilobytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The system's allocator, counting.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

// SAFETY: all is the system allocator's work; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps to what `alloc` asks of it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block is one of the system allocator's, as all are.
        unsafe { System.dealloc(block, layout) }
    }
}
