//! A fresh store with clients in it, and a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};

use redisson_rate_limiter::{
    Clock, Decision, Denied, Granted, Limiter, MemoryStore, Policy, RateLimiter, RedissonClient,
    RedissonClientBuilder, TimeToLive,
};

use crate::peer::Peer;
use crate::stopped_time::{StoppedTime, at_once, run_until_stalled, until};
use crate::support::{Server, has_channels};

/// What a behaviour is tested on. Its clients score grants by its own clock, which starts at 1000
/// ms.
pub struct Fixture {
    store: Store,
    name: String,
    now: Arc<AtomicI64>,
}

enum Store {
    Memory(MemoryStore),
    Redis(Server),
    /// The nodes' URLs. Other tests use the cluster too, each with names of its own.
    Cluster(String),
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A runtime with one thread, as the tests run on.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3600);

impl Fixture {
    pub fn in_memory() -> Self {
        Self::over(Store::Memory(MemoryStore::new()), "limiter")
    }

    pub fn on_redis() -> Self {
        Self::over(Store::Redis(Server::start()), "limiter")
    }

    pub fn on_cluster(urls: &str, name: &str) -> Self {
        Self::over(Store::Cluster(urls.to_owned()), name)
    }

    fn over(store: Store, name: &str) -> Self {
        Self {
            store,
            name: name.to_owned(),
            now: Arc::new(AtomicI64::new(1_000)),
        }
    }

    /// The name of the limiter that a behaviour uses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the clock.
    pub fn at(&self, millis: i64) {
        self.now.store(millis, Ordering::SeqCst);
    }

    /// Moves the clock on.
    pub fn pass(&self, time: Duration) {
        self.now
            .fetch_add(time.as_millis() as i64, Ordering::SeqCst);
    }

    pub fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    /// A client with this id.
    pub async fn client(&self, id: &str) -> RedissonClient {
        // An answer may be late on a busy machine.
        let builder = RedissonClient::builder().response_timeout(Duration::from_secs(60));
        self.build(builder.client_id(id)).await
    }

    /// A client with settings of the behaviour's own, and this fixture's clock.
    pub async fn build(&self, builder: RedissonClientBuilder) -> RedissonClient {
        let now = Arc::clone(&self.now);
        let clock = Clock::from_fn(move || now.load(Ordering::SeqCst));
        self.connect(builder.clock(clock)).await
    }

    /// A client with settings of the behaviour's own, and the store's clock unless the settings
    /// name another.
    pub async fn connect(&self, builder: RedissonClientBuilder) -> RedissonClient {
        match &self.store {
            Store::Memory(store) => builder.in_memory(store),
            Store::Redis(server) => builder.connect(&server.url()).await.unwrap(),
            Store::Cluster(urls) => builder.connect(urls).await.unwrap(),
        }
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    /// While the result lives, tokio's time moves only with [`let_pass`](Self::let_pass). So what
    /// happens without it needs no time, however busy the machine is.
    pub fn stop_time(&self) -> StoppedTime {
        if !self.is_in_memory() {
            tokio::time::pause();
        }
        StoppedTime::begin()
    }

    /// Moves the clock and tokio's time on. Tokio's timers may be late by a millisecond, which has
    /// passed then too.
    pub async fn let_pass(&self, time: Duration) {
        self.pass(time);
        tokio::time::advance(time + ms(1)).await;
    }

    /// Waits until waiters on `other`'s limiter are subscribed to messages about what it frees.
    /// Earlier messages are lost to them.
    pub async fn until_told(&self, other: &RateLimiter) {
        let urls = match &self.store {
            Store::Redis(server) if has_channels() => server.url(),
            Store::Cluster(urls) if has_channels() => urls.clone(),
            _ => return run_until_stalled(other).await,
        };
        let name = other.name();
        let channel = match name.contains('{') {
            true => format!("{name}:freed"),
            false => format!("{{{name}}}:freed"),
        };
        let mut nodes = Vec::new();
        for url in urls.split(',') {
            let client = redis::Client::open(url).unwrap();
            nodes.push(client.get_multiplexed_async_connection().await.unwrap());
        }
        until("somebody has subscribed", async || {
            let mut subscribers = 0;
            for node in &nodes {
                let mut command = redis::cmd("PUBSUB");
                command.arg("SHARDNUMSUB").arg(&channel);
                let told: (String, u64) = command.query_async(&mut node.clone()).await.unwrap();
                subscribers += told.1;
            }
            if subscribers != 1 {
                // An attempt to connect that has failed is made again after a pause.
                run_until_stalled(other).await;
                tokio::time::advance(ms(1)).await;
            }
            subscribers == 1
        })
        .await;
        run_until_stalled(other).await;
    }

    /// The answer of a waiter for permits that another client has just freed. It comes at once, or
    /// after pauses if older messages made the waiter ask in vain, or, on a server without
    /// channels, when the waiter asks again. Otherwise time stands still.
    pub async fn served<T>(&self, waiting: JoinHandle<T>, other: &RateLimiter) -> T {
        if !self.is_in_memory() {
            let longest = if has_channels() { ms(400) } else { SECOND };
            let start = tokio::time::Instant::now();
            while !waiting.is_finished() && start.elapsed() < longest {
                run_until_stalled(other).await;
                tokio::time::advance(ms(10)).await;
            }
        }
        at_once(waiting).await.unwrap()
    }

    /// Another program on the keys of this store.
    pub async fn peer(&self) -> Peer {
        match &self.store {
            Store::Memory(_) => panic!("there are no keys in memory"),
            Store::Redis(server) => Peer::OnRedis(server.connection().await),
            Store::Cluster(urls) => {
                let nodes: Vec<&str> = urls.split(',').collect();
                let client = redis::cluster::ClusterClient::new(nodes).unwrap();
                Peer::OnCluster(client.get_async_connection().await.unwrap())
            }
        }
    }

    /// The limiter as the client with this id sees it.
    pub async fn limiter_of(&self, id: &str) -> RateLimiter {
        self.client(id).await.rate_limiter(&self.name)
    }

    /// The limiter, as any client sees it.
    pub async fn limiter(&self) -> RateLimiter {
        self.limiter_of("client").await
    }
}

/// Asks `times` times for one permit, and returns how often it was granted.
pub async fn granted(limiter: &RateLimiter, times: usize) -> usize {
    let mut granted = 0;
    for _ in 0..times {
        granted += usize::from(limiter.try_acquire(1).await.unwrap());
    }
    granted
}

/// A decision without its grant: whether it was granted, what is left, the retry after a denial,
/// the reset; the last two in ms.
pub fn fields(decision: &Decision) -> (bool, u64, Option<u128>, u128) {
    match decision {
        Decision::Granted(Granted {
            remaining, reset, ..
        }) => (true, *remaining, None, reset.as_millis()),
        Decision::Denied(Denied {
            retry_after,
            remaining,
            reset,
            ..
        }) => (
            false,
            *remaining,
            Some(retry_after.as_millis()),
            reset.as_millis(),
        ),
    }
}

/// Asserts that the limiter's time to live was set to `time` after `since`, and to no more.
pub async fn assert_lives_for(limiter: &RateLimiter, time: Duration, since: Instant) {
    let TimeToLive::Remaining(left) = limiter.remain_time_to_live().await.unwrap() else {
        panic!("it has no time to live");
    };
    assert!(left <= time, "{left:?}");
    // The store counts whole milliseconds.
    assert!(left + since.elapsed() + ms(1) >= time, "{left:?}");
}

/// Asks a limiter with a policy, and returns whether it granted.
pub async fn passed(limiter: &impl Limiter, key: &str, cost: u32) -> bool {
    limiter.check(key, cost).await.unwrap().is_granted()
}

/// How many of a hundred requests that four clients make at once are granted.
pub async fn granted_to_many_clients<P: Policy>(fixture: &Fixture, policy: P) -> usize {
    let mut asked = JoinSet::new();
    for id in ["a", "b", "c", "d"] {
        let limiter = fixture
            .client(id)
            .await
            .policy_limiter(policy.clone())
            .unwrap();
        for _ in 0..25 {
            let (limiter, key) = (limiter.clone(), fixture.name().to_owned());
            asked.spawn(async move { passed(&limiter, &key, 1).await });
        }
    }
    let granted = asked.join_all().await.into_iter().filter(|&passed| passed);
    granted.count()
}

/// Makes a request that has to be denied, and returns what remains and the retry time.
pub async fn denied(limiter: &impl Limiter, key: &str, cost: u32) -> (u64, Duration) {
    match limiter.check(key, cost).await.unwrap() {
        Decision::Denied(Denied {
            remaining,
            retry_after,
            ..
        }) => (remaining, retry_after),
        granted @ Decision::Granted(_) => panic!("{granted:?}"),
    }
}
