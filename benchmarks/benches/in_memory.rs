//! One decision of the in-memory backend. `side_by_side` compares it with others.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};
use tokio::runtime::{Builder, Runtime};

fn decisions(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut group = criterion.benchmark_group("in memory");
    let second = Duration::from_secs(1);
    // Grants expire as others are made.
    let plenty = Rate::overall(1_000_000, second / 100);

    let granted = [limiter(&runtime, plenty)];
    group.bench_function("granted", |b| {
        b.iter_custom(|count| runtime.block_on(ask(&granted, count)));
    });
    let denied = [limiter(&runtime, Rate::overall(100, second))];
    group.bench_function("mostly denied", |b| {
        b.iter_custom(|count| runtime.block_on(ask(&denied, count)));
    });

    let client = RedissonClient::in_memory();
    let many: Vec<RateLimiter> = (0..10_000)
        .map(|i| with_rate(&runtime, &client, &format!("orders:{i}"), plenty))
        .collect();
    group.bench_function("granted by one of 10,000", |b| {
        b.iter_custom(|count| runtime.block_on(ask(&many, count)));
    });
    group.finish();
}

fn limiter(runtime: &Runtime, rate: Rate) -> RateLimiter {
    with_rate(runtime, &RedissonClient::in_memory(), "orders", rate)
}

fn with_rate(runtime: &Runtime, client: &RedissonClient, name: &str, rate: Rate) -> RateLimiter {
    let limiter = client.rate_limiter(name);
    runtime.block_on(limiter.set_rate(rate)).unwrap();
    limiter
}

/// Asks one limiter after the other.
async fn ask(limiters: &[RateLimiter], count: u64) -> Duration {
    let start = Instant::now();
    for limiter in limiters.iter().cycle().take(count as usize) {
        black_box(limiter.try_acquire(1).await.unwrap());
    }
    start.elapsed()
}

criterion_group!(benches, decisions);
criterion_main!(benches);
