//! How a service is tested without Redis: its tests pass it a client in memory, and pause tokio's
//! time. So a wait takes no real time, and tests compare it for equality.
//!
//! `cargo test -p examples --example testing_without_redis`

use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient, Result};

/// A service that may call another one twice a second.
struct Orders {
    limiter: RateLimiter,
}

impl Orders {
    async fn new(client: &RedissonClient) -> Result<Self> {
        let limiter = client.rate_limiter("orders:api");
        let rate = Rate::overall(2, Duration::from_secs(1));
        limiter.try_set_rate(rate).await?;
        Ok(Self { limiter })
    }

    /// Places an order, or returns `false` if it would have to wait.
    async fn try_place(&self) -> Result<bool> {
        self.limiter.try_acquire(1).await
    }

    /// Waits until the order may be placed.
    async fn place(&self) -> Result<()> {
        self.limiter.acquire(1).await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // In production: RedissonClient::connect("redis://127.0.0.1:6379").await?
    let orders = Orders::new(&RedissonClient::in_memory()).await?;
    while orders.try_place().await? {
        println!("placed an order");
    }
    println!("the next one has to wait");
    orders.place().await?;
    println!("placed it");
    Ok(())
}

#[cfg(test)]
mod tests {
    use redisson_rate_limiter::MemoryStore;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_third_order_waits_until_a_second_after_the_first() {
        let orders = Orders::new(&RedissonClient::in_memory()).await.unwrap();
        let start = Instant::now();
        for _ in 0..3 {
            orders.place().await.unwrap();
        }
        // Waiters ask 3 ms late, as in Redisson.
        assert_eq!(start.elapsed(), Duration::from_millis(1_003));
    }

    #[tokio::test(start_paused = true)]
    async fn two_processes_share_the_rate() {
        let store = MemoryStore::new(); // takes the place of Redis
        let client = || RedissonClient::builder().in_memory(&store);
        let one = Orders::new(&client()).await.unwrap();
        let other = Orders::new(&client()).await.unwrap();
        assert!(one.try_place().await.unwrap());
        assert!(other.try_place().await.unwrap());
        assert!(!one.try_place().await.unwrap());
    }
}
