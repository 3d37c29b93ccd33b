//! Five permits a second, shared by three workers: what each asks for, when it is granted, and when
//! permits come back.
//!
//! Runs in memory, or on Redis if `REDIS_URL` is set: `REDIS_URL=redis://127.0.0.1:6379 cargo
//! run --example quickstart`

use std::time::Duration;

use redisson_rate_limiter::{Decision, Denied, Granted, Rate, RateLimiter, RedissonClient, Result};
use tokio::time::{Instant, sleep};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").ok();
    let (client, place) = match url.filter(|url| !url.is_empty()) {
        Some(url) => (RedissonClient::connect(&url).await?, "Redis at REDIS_URL"),
        None => (RedissonClient::in_memory(), "memory (REDIS_URL is not set)"),
    };
    let limiter = client
        .rate_limiter("redisson-rate-limiter:quickstart")
        .with_rate(Rate::overall(5, Duration::from_secs(1)))?;

    println!("Five permits a second, kept in {place}.\n");
    println!("   time  who     asks  answer               permits left");
    let timeline = Timeline {
        limiter,
        start: Instant::now(),
    };

    timeline.ask("anna", 1).await?;
    sleep(Duration::from_millis(100)).await;
    timeline.ask("ben", 2).await?;
    sleep(Duration::from_millis(100)).await;
    timeline.ask("carla", 3).await?;
    timeline.wait("carla", 3).await?;
    timeline.ask("anna", 1).await?;

    timeline.limiter.delete().await?;
    Ok(())
}

struct Timeline {
    limiter: RateLimiter,
    start: Instant,
}

impl Timeline {
    /// Asks once, and shows the answer.
    async fn ask(&self, who: &str, permits: u32) -> Result<()> {
        match self.limiter.check(permits).await? {
            Decision::Granted(Granted {
                remaining,
                limit,
                reset,
                ..
            }) => {
                self.show(who, permits, "granted", remaining, limit);
                println!("{:>9}  all are back in {} ms", "", reset.as_millis());
            }
            Decision::Denied(Denied {
                retry_after,
                remaining,
                limit,
                ..
            }) => {
                self.show(who, permits, "denied", remaining, limit);
                println!(
                    "{:>9}  worth asking again in {} ms",
                    "",
                    retry_after.as_millis()
                );
            }
        }
        Ok(())
    }

    /// Waits for its turn, and shows how long that took.
    async fn wait(&self, who: &str, permits: u32) -> Result<()> {
        let asked = Instant::now();
        self.limiter.acquire(permits).await?;
        let answer = format!("granted after {} ms", asked.elapsed().as_millis());
        let left = self.limiter.available_permits().await?;
        self.show(who, permits, &answer, left, 5);
        Ok(())
    }

    fn show(&self, who: &str, permits: u32, answer: &str, left: u64, limit: u64) {
        let bar: String = (0..limit)
            .map(|i| if i < left { '#' } else { '.' })
            .collect();
        let time = self.start.elapsed().as_millis();
        println!("{time:>5} ms  {who:<6}  {permits:>4}  {answer:<19}  {bar} {left}");
    }
}
