//! A connection of redis-rs that the application supplies.

use redis::aio::{ConnectionLike, ConnectionManager};
use redisson_rate_limiter::{Rate, RedissonClient};

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, VALUE};
use crate::keys;

async fn works_over<C>(connection: C, fixture: &mut Fixture)
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
        keys::left_and_used(&mut fixture.raw, VALUE, PERMITS).await,
        (Some(2), 8)
    );
}

#[tokio::test]
async fn a_limiter_works_over_a_multiplexed_connection() {
    let mut fixture = Fixture::start().await;
    let connection = fixture.server.connection().await;
    works_over(connection, &mut fixture).await;
}

#[tokio::test]
async fn a_limiter_works_over_a_connection_manager() {
    let mut fixture = Fixture::start().await;
    let client = redis::Client::open(fixture.server.url()).unwrap();
    let connection = ConnectionManager::new(client).await.unwrap();
    works_over(connection, &mut fixture).await;
}

#[tokio::test]
async fn a_limiter_works_over_a_connection_that_speaks_resp3() {
    let mut fixture = Fixture::start().await;
    let client = redis::Client::open(format!("{}/?protocol=resp3", fixture.server.url())).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    works_over(connection, &mut fixture).await;
}

#[tokio::test]
async fn a_limiter_works_over_a_url_with_resp3_and_another_database() {
    let mut fixture = Fixture::start().await;
    let url = format!("{}/3?protocol=resp3", fixture.server.url());
    let client = patient(&url).await;
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(4).await.unwrap());
    assert!(limiter.config().await.unwrap().is_some());
    assert_eq!(keys::names(&mut fixture.raw).await, Vec::<String>::new());
    fixture.run(&["SELECT", "3"]).await;
    assert_eq!(
        keys::left_and_used(&mut fixture.raw, VALUE, PERMITS).await,
        (Some(6), 4)
    );
}
