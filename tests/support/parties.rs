//! Two clients that lease the permits of a limiter and another one that takes them without, under
//! load, each with what it has used.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::sync::Arc;
use std::time::Duration;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Lease, Rate, RateLimiter, RedissonClient};
use tokio::time::{sleep, timeout};

use crate::clients::{PATIENCE, patient};
use crate::keys;
use crate::load::{Load, Party};
use crate::state::State;
use crate::support::Server;
use crate::uses::Use;

pub const RATE: u64 = 100;
pub const INTERVAL: Duration = Duration::from_millis(240);
pub const LEASE: Duration = Duration::from_millis(120);

/// The longest time that a test waits for an event before it fails.
const AT_LAST: Duration = Duration::from_secs(20);

pub struct Parties {
    clients: [RedissonClient; 2],
    /// The handles that lease.
    pub leasing: [RateLimiter; 2],
    /// The handle of another client, without leases.
    pub plain: RateLimiter,
    pub all: [Arc<Party>; 3],
    load: Load,
}

impl Parties {
    /// The clients that lease reach the server by these URLs.
    pub async fn start(server: &Server, urls: [&str; 2]) -> Self {
        let plain = patient(&server.url()).await.rate_limiter("limiter");
        plain.set_rate(Rate::overall(RATE, INTERVAL)).await.unwrap();
        let clients = [patient(urls[0]).await, patient(urls[1]).await];
        let leasing = clients.each_ref().map(|client| {
            let limiter = client.rate_limiter("limiter");
            limiter.leased(Lease::up_to(LEASE))
        });
        let [first, second] = leasing.clone();
        let all = [first, second, plain.clone()].map(Party::with);
        Self {
            load: Load::start(&all, Duration::from_millis(25)),
            clients,
            leasing,
            plain,
            all,
        }
    }

    /// Lets all parties ask for more permits than there are.
    pub async fn press(&self) {
        let [first, second, plain] = &self.all;
        let times = 2 * RATE as usize;
        tokio::join!(first.take(times), second.take(times), plain.take(times));
    }

    /// Calls [`press`](Self::press) once the earlier leases are over, and again within an interval.
    pub async fn press_twice(&self) {
        sleep(LEASE).await;
        self.press().await;
        sleep(INTERVAL / 2).await;
        self.press().await;
    }

    pub fn uses(&self) -> Vec<Use> {
        self.all.iter().flat_map(|it| it.uses.all()).collect()
    }

    /// Ends the load and closes the clients that lease, so that all their leases are settled.
    /// Asserts that the permits left and those of the grants add up to the rate, and that all can
    /// be taken an interval later.
    pub async fn end_whole(self, server: &Server, rate: u64, interval: Duration) {
        self.load.end().await;
        for client in &self.clients {
            assert!(client.close(PATIENCE).await);
        }
        let mut redis = server.connection().await;
        let state = State::of("limiter", rate);
        state.used(&mut redis).await;
        state.assert_is_whole_after(interval, server).await;
        state.used(&mut redis).await;
    }
}

/// Whether permits are leased.
async fn is_leased(redis: &mut MultiplexedConnection) -> bool {
    let pools: Vec<String> = redis.keys("{limiter}:permits*").await.unwrap();
    let now = keys::time(redis).await;
    for pool in pools {
        let members = keys::members(redis, &pool).await;
        let mut ahead = members.iter().filter(|it| it.random.len() == 24);
        if ahead.any(|it| it.permits > 0 && it.score > now) {
            return true;
        }
    }
    false
}

pub async fn until_leased(redis: &mut MultiplexedConnection) {
    let leasing = async {
        while !is_leased(redis).await {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(AT_LAST, leasing).await.expect("a lease");
}
