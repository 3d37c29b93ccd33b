//! The Rust service: two tasks ask a limiter for one permit after the other.

use std::time::Duration;

use redisson_rate_limiter::{RateLimiter, Result};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub async fn run(
    limiter: RateLimiter,
    duration: Duration,
    events: UnboundedSender<String>,
) -> Result<()> {
    let end = Instant::now() + duration;
    let mut callers = JoinSet::new();
    for number in 1..=2 {
        let (limiter, events) = (limiter.clone(), events.clone());
        callers.spawn(async move {
            let caller = Caller {
                name: format!("rust-{number}"),
                limiter,
                events,
            };
            caller.ask_until(end).await
        });
    }
    callers.join_all().await.into_iter().collect()
}

struct Caller {
    name: String,
    limiter: RateLimiter,
    events: UnboundedSender<String>,
}

impl Caller {
    async fn ask_until(&self, end: Instant) -> Result<()> {
        while Instant::now() < end {
            if self.limiter.try_acquire(1).await? {
                self.print("granted at once").await?;
            } else {
                self.print("denied, waits").await?;
                self.limiter.acquire(1).await?;
                self.print("granted after waiting").await?;
            }
            sleep(Duration::from_millis(150)).await;
        }
        Ok(())
    }

    async fn print(&self, what: &str) -> Result<()> {
        let left = self.limiter.available_permits().await?;
        // Where nobody reads the events, they are of no use.
        let _ = self.events.send(format!("{} {left} {what}", self.name));
        Ok(())
    }
}
