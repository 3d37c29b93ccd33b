//! A client of each kind on one server.

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};

use crate::{
    Server,
    age::age,
    dump::{self, Dump},
    redisson::{self, Client, Limiter, Version},
};

/// Which of the two clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Java,
    Rust,
}

impl Peer {
    pub const ALL: [Self; 2] = [Self::Java, Self::Rust];
}

/// The real Redisson and this crate, on a server of their own.
pub struct Both {
    pub version: Version,
    pub java: Client,
    pub rust: RedissonClient,
    /// Reads the keys, and corrupts them.
    pub redis: MultiplexedConnection,
    // Last, so that the clients are told to close before their server goes.
    pub server: Server,
}

impl Both {
    pub async fn start(version: Version) -> Self {
        let server = Server::start();
        let url = server.url();
        let [java] = redisson::clients(version, &url).await;
        let rust = RedissonClient::connect(&url)
            .await
            .unwrap_or_else(|e| panic!("this crate on {url}: {e}"));
        Self {
            version,
            java,
            rust,
            redis: server.connection().await,
            server,
        }
    }

    /// A test for each of some versions of Redisson, one after the other.
    pub async fn each(versions: impl IntoIterator<Item = Version>, test: impl AsyncFn(Self)) {
        for version in versions {
            println!("Redisson {version}");
            test(Self::start(version).await).await;
        }
    }

    /// The limiter of this name, as each client sees it.
    pub fn limiter(&self, name: &str) -> Pair {
        Pair {
            java: self.java.limiter(name),
            rust: self.rust.rate_limiter(name),
        }
    }

    /// All keys of a limiter; of the clients' own, Java's come first.
    pub async fn dump(&mut self, name: &str) -> Dump {
        let Self {
            java, rust, redis, ..
        } = self;
        dump::read(redis, name, &[&java.id, rust.id()]).await
    }

    /// Lets a limiter's grants grow older, for both clients alike.
    pub async fn age(&mut self, name: &str, millis: i64) {
        let Self {
            java, rust, redis, ..
        } = self;
        age(redis, name, &[&java.id, rust.id()], millis).await;
    }
}

/// One limiter as each of the two clients sees it.
pub struct Pair {
    pub java: Limiter,
    pub rust: RateLimiter,
}

impl Pair {
    pub async fn try_set_rate(&self, by: Peer, rate: Rate) -> bool {
        match by {
            Peer::Java => self
                .java
                .try_set_rate(redisson::Rate::of(&rate))
                .await
                .unwrap(),
            Peer::Rust => self.rust.try_set_rate(rate).await.unwrap(),
        }
    }

    pub async fn set_rate(&self, by: Peer, rate: Rate) {
        match by {
            Peer::Java => self.java.set_rate(redisson::Rate::of(&rate)).await.unwrap(),
            Peer::Rust => self.rust.set_rate(rate).await.unwrap(),
        }
    }

    pub async fn try_acquire(&self, by: Peer, permits: u32) -> bool {
        match by {
            Peer::Java => self.java.try_acquire(permits.into()).await.unwrap(),
            Peer::Rust => self.rust.try_acquire(permits).await.unwrap(),
        }
    }

    /// The permits left, which both must see alike.
    pub async fn available_permits(&self) -> u64 {
        let rust = self.rust.available_permits().await.unwrap();
        let java = self.java.available_permits().await.unwrap();
        assert_eq!(
            Ok(rust),
            java.try_into(),
            "available to this crate and to Redisson"
        );
        rust
    }
}
