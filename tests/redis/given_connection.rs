//! A connection of redis-rs that the application supplies.

use redis::aio::{ConnectionLike, ConnectionManager};
use redisson_rate_limiter::{Rate, RedissonClient};

use crate::keys;
use crate::stage::{HOUR, NAME, PERMITS, Stage, VALUE};

async fn works_over<C>(connection: C, stage: &mut Stage)
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    let client = RedissonClient::builder()
        .client_id("own")
        .connection(connection)
        .unwrap();
    assert_eq!(client.id(), "own");
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(4).await.unwrap());
    limiter.acquire(5).await.unwrap();
    assert!(!limiter.try_acquire(2).await.unwrap());
    limiter.release(1).await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
    assert_eq!(
        keys::left_and_used(&mut stage.raw, VALUE, PERMITS).await,
        (Some(2), 8)
    );
}

#[tokio::test]
async fn a_multiplexed_connection() {
    let mut stage = Stage::set().await;
    let connection = stage.server.connection().await;
    works_over(connection, &mut stage).await;
}

#[tokio::test]
async fn a_connection_manager() {
    let mut stage = Stage::set().await;
    let client = redis::Client::open(stage.server.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    works_over(connection, &mut stage).await;
}

#[tokio::test]
async fn a_connection_that_speaks_resp3() {
    let mut stage = Stage::set().await;
    let client = redis::Client::open(format!("{}/?protocol=resp3", stage.server.url())).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    works_over(connection, &mut stage).await;
}

#[tokio::test]
async fn a_url_that_asks_for_resp3_and_another_database() {
    let mut stage = Stage::set().await;
    let url = format!("{}/3?protocol=resp3", stage.server.url());
    let client = RedissonClient::connect(&url).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(4).await.unwrap());
    assert!(limiter.config().await.unwrap().is_some());
    assert_eq!(keys::names(&mut stage.raw).await, Vec::<String>::new());
    stage.run(&["SELECT", "3"]).await;
    assert_eq!(
        keys::left_and_used(&mut stage.raw, VALUE, PERMITS).await,
        (Some(6), 4)
    );
}
