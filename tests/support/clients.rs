//! Clients whose calls do not fail on a busy machine.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::time::Duration;

use redisson_rate_limiter::{RedissonClient, RedissonClientBuilder};

use crate::support::without_timeouts;

/// Far more than any answer takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The settings of a client that waits for late answers.
pub fn builder() -> RedissonClientBuilder {
    RedissonClient::builder().response_timeout(PATIENCE)
}

/// A client that waits for late answers.
pub async fn patient(urls: &str) -> RedissonClient {
    builder().connect(urls).await.unwrap()
}

/// A client that waits for late answers, over one connection, which stays however long the server
/// is silent: nothing but an acquire is sent twice.
pub async fn steady(url: &str, builder: RedissonClientBuilder) -> RedissonClient {
    let client = redis::Client::open(url).unwrap();
    let config = without_timeouts();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    builder.connection(connection.await.unwrap()).unwrap()
}
