//! Callers that continue during a fault, and whether each of their grants was taken once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Error, Rate, RateLimiter, RedissonClient};
use tokio::sync::{Mutex, OwnedRwLockWriteGuard, RwLock, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::keys;

pub const HOUR: Duration = Duration::from_secs(3600);

/// Far more than any fault here lasts.
pub const PATIENT: Duration = Duration::from_secs(60);

/// The longest time that a test waits for an event before it fails.
const AT_LAST: Duration = Duration::from_secs(120);

const CALLERS: usize = 4;

/// The permits of an ample limiter.
const AMPLE: u64 = 1_000_000_000;

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for an event that must happen.
pub async fn at_last<T>(what: &str, event: impl Future<Output = T>) -> T {
    let happened = timeout(AT_LAST, event).await;
    happened.unwrap_or_else(|_| panic!("{what}: not within {AT_LAST:?}"))
}

/// A client whose calls outlast the fault.
pub async fn patient_client(url: &str) -> RedissonClient {
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    builder.connect(url).await.unwrap()
}

/// A client whose calls end before the fault does. It connects however late the server answers.
pub async fn impatient_client(url: &str) -> RedissonClient {
    let builder = RedissonClient::builder().response_timeout(ms(500));
    builder.wait_for_server(PATIENT).connect(url).await.unwrap()
}

/// A limiter that never denies, of which one permit is taken.
pub async fn ample(client: &RedissonClient, name: &str) -> RateLimiter {
    let limiter = client.rate_limiter(name);
    let rate = Rate::overall(AMPLE, HOUR);
    limiter.try_set_rate(rate).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter
}

/// How many permits of an ample limiter are taken. The others are left.
pub async fn taken(raw: &mut MultiplexedConnection, name: &str) -> u64 {
    let tag = match name.contains('{') {
        true => name.to_owned(),
        false => format!("{{{name}}}"),
    };
    let [value, permits] = ["value", "permits"].map(|suffix| format!("{tag}:{suffix}"));
    let (left, taken) = keys::left_and_used(raw, &value, &permits).await;
    assert_eq!(left.unwrap() + taken, AMPLE as i64, "{name}");
    taken as u64
}

/// Callers of an ample limiter that acquire one permit after another, until they are ended.
pub struct Load {
    name: String,
    callers: JoinSet<()>,
    granted: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<Error>>>,
    /// Read by each call while it is made.
    calling: Arc<RwLock<()>>,
    end: watch::Sender<bool>,
}

impl Load {
    pub fn on(limiter: &RateLimiter) -> Self {
        let granted = Arc::<AtomicU64>::default();
        let failed = Arc::<Mutex<Vec<Error>>>::default();
        let calling = Arc::<RwLock<()>>::default();
        let end = watch::Sender::new(false);
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (limiter, granted, failed) = (limiter.clone(), granted.clone(), failed.clone());
            let (calling, ended) = (calling.clone(), end.subscribe());
            callers.spawn(async move {
                while !*ended.borrow() {
                    let call = calling.read().await;
                    match limiter.try_acquire(1).await {
                        Ok(true) => {
                            granted.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(false) => panic!("an ample limiter denied"),
                        Err(error) => failed.lock().await.push(error),
                    }
                    drop(call);
                    sleep(ms(2)).await;
                }
            });
        }
        Self {
            name: limiter.name().to_owned(),
            callers,
            granted,
            failed,
            calling,
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

    /// Waits until this many more permits are granted.
    pub async fn until_granted(&self, more: u64) {
        let goal = self.granted.load(Ordering::SeqCst) + more;
        let granted = async {
            while self.granted.load(Ordering::SeqCst) < goal {
                sleep(ms(2)).await;
            }
        };
        if timeout(AT_LAST, granted).await.is_err() {
            let failed = self.failed.lock().await;
            panic!("no {more} permits were granted within {AT_LAST:?}; errors: {failed:?}");
        }
    }

    /// Waits until no call is under way. None is made until the guard is dropped.
    pub async fn pause(&self) -> OwnedRwLockWriteGuard<()> {
        self.calling.clone().write_owned().await
    }

    /// Waits until all callers have returned. Asserts that no call failed and that each grant was
    /// taken once.
    pub async fn end_taken_once(mut self, raw: &mut MultiplexedConnection) {
        self.end.send_replace(true);
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap();
        }
        let failed = self.failed.lock().await;
        assert!(failed.is_empty(), "{failed:?}");
        let granted = self.granted.load(Ordering::SeqCst);
        assert_eq!(taken(raw, &self.name).await, 1 + granted);
    }
}
