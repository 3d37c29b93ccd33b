//! A limiter with leases, and another client that sees what is left in Redis.

use std::time::Duration;

use redisson_rate_limiter::{Lease, Rate, RateLimiter, RedissonClient};
use tokio::time::{sleep, timeout};

use crate::clients::{builder, patient};
use crate::keys;
use crate::support::Server;
use crate::told::Told;

pub const HOUR: Duration = Duration::from_secs(3600);

/// The longest time that a test waits for an event before it fails.
const AT_LAST: Duration = Duration::from_secs(20);

pub struct Fixture {
    pub client: RedissonClient,
    pub leased: RateLimiter,
    /// The handle of another client, without leases.
    pub plain: RateLimiter,
    /// How many permits the handle was granted.
    pub taken: u64,
}

/// A client, and what it tells.
pub async fn told(url: &str) -> (Told, RedissonClient) {
    let told = Told::default();
    let client = told.by(builder()).connect(url).await.unwrap();
    (told, client)
}

impl Fixture {
    /// A limiter of this many permits an hour, and leases of a minute. The client reaches the
    /// server by the first URL.
    pub async fn new(client_url: &str, url: &str, permits: u64) -> Self {
        let client = patient(client_url).await;
        Self::over(client, url, permits).await
    }

    pub async fn over(client: RedissonClient, url: &str, permits: u64) -> Self {
        let plain = patient(url).await.rate_limiter("limiter");
        plain.set_rate(Rate::overall(permits, HOUR)).await.unwrap();
        Self {
            leased: leased(&client),
            client,
            plain,
            taken: 0,
        }
    }

    /// Drops the handle, so that its leases end, and makes another one.
    pub fn lease_anew(&mut self) {
        self.leased = self.plain.clone();
        self.leased = leased(&self.client);
    }

    pub async fn take(&mut self, times: u64) {
        for _ in 0..times {
            assert!(self.leased.try_acquire(1).await.unwrap());
            self.taken += 1;
        }
    }

    /// The permits left in leases.
    pub async fn in_leases(&self) -> u64 {
        // In this order a lease whose answer is on its way counts as none.
        let left = self.plain.available_permits().await.unwrap();
        let all = self.leased.available_permits().await.unwrap();
        all.saturating_sub(left)
    }

    /// Takes permits until this many are left in leases.
    pub async fn lease(&mut self, permits: u64) {
        let leasing = async {
            while self.in_leases().await < permits {
                self.take(1).await;
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(AT_LAST, leasing).await.expect("a lease");
    }

    /// The permits left, and those of all grants.
    pub async fn state(&self, server: &Server) -> (i64, i64) {
        let mut raw = server.connection().await;
        let both = keys::left_and_used(&mut raw, "{limiter}:value", "{limiter}:permits");
        let (left, used) = both.await;
        (left.expect("a value"), used)
    }

    /// Waits until this many permits are left in Redis.
    pub async fn until_left(&self, permits: u64) {
        let (mut left, plain) = (0, &self.plain);
        let waiting = async {
            loop {
                left = plain.available_permits().await.unwrap();
                if left == permits {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(AT_LAST, waiting).await.is_err() {
            panic!("{left} left, not {permits}");
        }
    }
}

/// Takes all permits, and returns how many.
pub async fn all(limiter: &RateLimiter) -> u64 {
    let (mut taken, mut denied) = (0, 0);
    while denied < 50 {
        match limiter.try_acquire(1).await.unwrap() {
            true => taken += 1,
            false => {
                denied += 1;
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
    taken
}

fn leased(client: &RedissonClient) -> RateLimiter {
    let lease = Lease::up_to(Duration::from_secs(60));
    client.rate_limiter("limiter").leased(lease)
}
