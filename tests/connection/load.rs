//! Callers that continue during a fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, RateLimiter, RedissonClient};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

pub const HOUR: Duration = Duration::from_secs(3600);

/// Far more than any fault here lasts.
pub const PATIENT: Duration = Duration::from_secs(60);

const CALLERS: usize = 4;

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client whose calls outlast the fault.
pub async fn patient_client(url: &str) -> RedissonClient {
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    builder.connect(url).await.unwrap()
}

/// A limiter that never denies.
pub async fn ample(client: &RedissonClient, name: &str) -> RateLimiter {
    let limiter = client.rate_limiter(name);
    let rate = Rate::overall(1_000_000_000, HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter
}

/// Callers that acquire one permit after another, until they are ended.
pub struct Load {
    callers: JoinSet<()>,
    granted: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<Error>>>,
    end: watch::Sender<bool>,
}

impl Load {
    pub fn on(limiter: &RateLimiter) -> Self {
        let granted = Arc::<AtomicU64>::default();
        let failed = Arc::<Mutex<Vec<Error>>>::default();
        let end = watch::Sender::new(false);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (limiter, granted, failed) = (limiter.clone(), granted.clone(), failed.clone());
            let ended = end.subscribe();
            callers.spawn(async move {
                while !*ended.borrow() {
                    match limiter.try_acquire(1).await {
                        Ok(true) => {
                            granted.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(false) => panic!("an ample limiter denied"),
                        Err(error) => failed.lock().await.push(error),
                    }
                    sleep(ms(2)).await;
                }
            });
        }
        Self {
            callers,
            granted,
            failed,
            end,
        }
    }

    /// Calls on a limiter of a client of their own, once some of them are granted.
    pub async fn of_a_client(url: &str) -> Self {
        let client = patient_client(url).await;
        let load = Self::on(&ample(&client, "limiter").await);
        load.until_granted(20).await;
        load
    }

    /// Waits until so many more permits are granted.
    pub async fn until_granted(&self, more: u64) {
        let goal = self.granted.load(Ordering::SeqCst) + more;
        while self.granted.load(Ordering::SeqCst) < goal {
            sleep(ms(2)).await;
        }
    }

    /// Waits until all callers have returned, and returns how many permits they were granted. No call failed.
    pub async fn end_without_errors(mut self) -> u64 {
        self.end.send_replace(true);
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap();
        }
        let failed = self.failed.lock().await;
        assert!(failed.is_empty(), "{failed:?}");
        self.granted.load(Ordering::SeqCst)
    }
}
