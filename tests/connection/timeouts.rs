//! A call takes at most the response timeout, whatever the connection does.

use std::time::Duration;

use redisson_rate_limiter::{Error, FixedWindow, RedissonClient};

use crate::load::{HOUR, ample, impatient_client};
use crate::silent::Silent;
use crate::support::Server;

#[tokio::test(start_paused = true)]
async fn a_call_over_a_silent_supplied_connection_ends_at_its_response_timeout() {
    let timeout = Duration::from_secs(3);
    let builder = RedissonClient::builder().response_timeout(timeout);
    let client = builder.connection(Silent::altogether()).unwrap();
    let limiter = client.rate_limiter("limiter");
    let start = tokio::time::Instant::now();
    // Only the question for the time was sent.
    let error = limiter.try_acquire(1).await;
    assert!(
        matches!(error, Err(Error::StoreUnavailable { .. })),
        "{error:?}"
    );
    assert_eq!(start.elapsed(), timeout);
    let policy = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let error = policy.check("key", 1).await;
    assert!(
        matches!(error, Err(Error::StoreUnavailable { .. })),
        "{error:?}"
    );
    assert_eq!(start.elapsed(), timeout * 2);
    let error = limiter.release(1).await;
    assert!(
        matches!(error, Err(Error::Indeterminate { .. })),
        "{error:?}"
    );
    assert_eq!(start.elapsed(), timeout * 3);
    let callers: Vec<_> = (0..64)
        .map(|name| {
            let limiter = client.rate_limiter(&name.to_string());
            tokio::spawn(async move { limiter.try_acquire(1).await })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap().is_err());
    }
    assert_eq!(start.elapsed(), timeout * 4);
}

#[tokio::test]
async fn a_response_timeout_of_zero_is_refused() {
    let builder = RedissonClient::builder().response_timeout(Duration::ZERO);
    let error = builder.connection(Silent::altogether()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }));
    let builder = RedissonClient::builder().response_timeout(Duration::ZERO);
    let error = builder.connect("redis://127.0.0.1").await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }));
}

#[tokio::test]
async fn the_longest_response_timeout_is_accepted() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(Duration::MAX);
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    limiter.acquire(1).await.unwrap();
    let policy = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    assert!(policy.check("key", 1).await.unwrap().is_granted());
}

#[tokio::test]
async fn what_was_never_sent_is_unavailable_and_not_indeterminate() {
    let server = Server::start();
    let client = impatient_client(&server.url()).await;
    let limiter = client.rate_limiter("limiter");
    let policy = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    drop(server);
    assert!(limiter.exists().await.is_err()); // may have gone out before the end was known
    let errors = [
        limiter.release(1).await,
        limiter.try_acquire(1).await.map(drop),
        policy.check("key", 1).await.map(drop),
    ];
    for error in errors {
        assert!(
            matches!(error, Err(Error::StoreUnavailable { .. })),
            "{error:?}"
        );
    }
}
