//! A server that restarts on the same port is used again, without a new client.

use redisson_rate_limiter::{Error, Rate, RedissonClient};

use crate::fixture::{HOUR, NAME, ms};
use crate::support::Server;

#[tokio::test]
async fn calls_work_again_once_the_server_is_back() {
    let mut server = Server::start();
    let builder = RedissonClient::builder().response_timeout(ms(10_000));
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    let rate = Rate::overall(5, HOUR);
    for _ in 0..3 {
        assert!(limiter.try_set_rate(rate).await.unwrap());
        assert!(limiter.try_acquire(3).await.unwrap());
        assert!(!limiter.try_acquire(3).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 2);

        let port = server.port();
        drop(server);
        server = Server::start_at(port, &[]);
        // The server restarted without data.
        let answer = limiter.try_acquire(1).await;
        assert!(
            matches!(answer, Err(Error::NotInitialized { .. })),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_call_during_an_absence_of_the_server_is_answered_if_it_ends_in_time() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(ms(10_000));
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.try_set_rate(Rate::overall(5, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(3).await.unwrap());

    let port = server.port();
    drop(server);
    let asked = tokio::spawn(async move { limiter.try_acquire(1).await });
    tokio::task::yield_now().await; // it has asked
    let server = Server::start_at(port, &[]);
    let answer = asked.await.unwrap();
    assert!(
        matches!(answer, Err(Error::NotInitialized { .. })),
        "{answer:?}"
    );
    drop(server);
}
