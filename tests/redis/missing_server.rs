//! A server that is missing, goes down, or does not answer.

use redisson_rate_limiter::{Error, Rate, RedissonClient};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::fixture::{HOUR, NAME, SECOND, ms};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

/// Far more than anything here may take.
const NEVER: std::time::Duration = std::time::Duration::from_secs(5);

#[tokio::test]
async fn connecting_to_a_port_where_nobody_listens_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    drop(listener);
    for urls in [url.clone(), format!("{url},{url}")] {
        let builder = RedissonClient::builder().response_timeout(ms(300));
        let result = timeout(NEVER, builder.connect(&urls))
            .await
            .expect("it gives up");
        assert!(
            matches!(result, Err(Error::StoreUnavailable { .. })),
            "{urls}: {result:?}"
        );
    }
}

#[tokio::test]
async fn connecting_to_a_server_that_takes_connections_and_does_not_answer_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let builder = RedissonClient::builder().response_timeout(ms(300));
    let result = timeout(NEVER, builder.connect(&url))
        .await
        .expect("it gives up");
    assert!(
        matches!(result, Err(Error::StoreUnavailable { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn connecting_to_a_server_that_stops_answering_meanwhile_fails() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    proxy.next("INFO", Fate::Held);
    let builder = RedissonClient::builder().response_timeout(ms(300));
    let result = timeout(NEVER, builder.connect(&proxy.url())).await;
    let result = result.expect("connecting takes no longer than the response timeout");
    assert!(
        matches!(result, Err(Error::StoreUnavailable { .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_server_that_went_away_is_unavailable_to_every_call_within_the_response_timeout() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(ms(200));
    let limiter = builder
        .connect(&server.url())
        .await
        .unwrap()
        .rate_limiter(NAME);
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    drop(server);
    // The first call may notice it while it is in flight.
    let first = limiter.try_acquire(1).await;
    assert!(
        matches!(
            first,
            Err(Error::StoreUnavailable { .. } | Error::Indeterminate { .. })
        ),
        "{first:?}"
    );
    for _ in 0..2 {
        let error = limiter.try_acquire(1).await;
        assert!(
            matches!(error, Err(Error::StoreUnavailable { .. })),
            "{error:?}"
        );
    }
    let errors = [
        limiter.acquire(1).await,
        limiter.try_acquire_timeout(1, SECOND).await.map(|_| ()),
        limiter.release(1).await,
        limiter.available_permits().await.map(|_| ()),
        limiter.config().await.map(|_| ()),
        limiter.set_rate(Rate::overall(5, HOUR)).await,
        limiter.delete().await.map(|_| ()),
    ];
    for error in errors {
        assert!(
            matches!(error, Err(Error::StoreUnavailable { .. })),
            "{error:?}"
        );
    }
}
