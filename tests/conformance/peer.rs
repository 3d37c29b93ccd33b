//! Another program on a store's keys, with its own connection.

use std::time::{Duration, Instant};

use redis::FromRedisValue;
use redis::aio::MultiplexedConnection;
use redis::cluster_async::ClusterConnection;

pub enum Peer {
    OnRedis(MultiplexedConnection),
    OnCluster(ClusterConnection),
}

impl Peer {
    /// Runs a command, and returns its answer.
    pub async fn run<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> T {
        match self {
            Self::OnRedis(connection) => command.query_async(connection).await,
            Self::OnCluster(connection) => command.query_async(connection).await,
        }
        .unwrap()
    }

    /// Runs a command of words for its effect.
    pub async fn tell(&mut self, words: &[&str]) {
        let _: redis::Value = self.ask(words).await;
    }

    /// Runs a command of words, and returns its answer.
    pub async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        self.run(&command).await
    }

    /// What each key holds, and whether it expires, to be compared.
    pub async fn everything(&mut self, keys: &[&str]) -> Vec<(Option<Vec<u8>>, bool)> {
        let mut everything = Vec::new();
        for key in keys {
            let content = self.ask(&["DUMP", key]).await;
            let left: i64 = self.ask(&["PTTL", key]).await;
            everything.push((content, left >= 0));
        }
        everything
    }

    /// Runs a step that sets the key's time to live, and asserts that it is `time`.
    pub async fn assert_lives_for(&mut self, key: &str, time: Duration, step: impl AsyncFnOnce()) {
        let since = Instant::now();
        step().await;
        let left: i64 = self.ask(&["PTTL", key]).await;
        let (left, time) = (left.max(0) as u128, time.as_millis());
        assert!(left <= time, "{key}: {left}");
        assert!(
            left + since.elapsed().as_millis() + 1 >= time,
            "{key}: {left}"
        );
    }
}
