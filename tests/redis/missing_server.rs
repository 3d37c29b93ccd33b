//! A server that is missing, goes down, or does not answer.

use redisson_rate_limiter::{Error, Rate, RedissonClient};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::by_hand::poll_once;
use crate::clients::patient;
use crate::fixture::{HOUR, NAME, SECOND, ms};
use crate::proxy::{Fate, Proxy};
use crate::support::{Server, ports};

/// Far more than anything here may take.
const NEVER: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn connecting_to_a_port_where_nobody_listens_fails() {
    let url = format!("redis://127.0.0.1:{}", ports::reserve());
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

/// The server that an error names. Asserts that its message has the server and the cause once each.
fn server_in(error: &Error) -> &str {
    let Error::StoreUnavailable { server, cause } = error else {
        panic!("{error:?}");
    };
    let server = server.as_deref().expect("it is known");
    let message = format!("the store ({server}) could not run the call: {cause}");
    assert_eq!(error.to_string(), message);
    assert!(std::error::Error::source(error).is_none());
    server
}

#[tokio::test]
async fn the_error_of_a_missing_server_names_it_and_the_cause_once() {
    let server = Server::start();
    let address = format!("127.0.0.1:{}", server.port());
    let builder = RedissonClient::builder().response_timeout(ms(200));
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    drop(server);
    while limiter.exists().await.is_ok() {}
    let refused = RedissonClient::connect(&format!("redis://user:secret@{address}")).await;
    let refused = refused.unwrap_err();
    assert_eq!(server_in(&refused), address);
    let expected = "could not run the call: Connection refused (os error 111)";
    assert!(refused.to_string().ends_with(expected), "{refused}");
    for result in [limiter.try_acquire(1).await, limiter.exists().await] {
        assert_eq!(server_in(&result.unwrap_err()), address);
    }
}

#[tokio::test]
async fn a_request_that_timed_out_behind_another_call_names_the_server_too() {
    let server = Server::start();
    let address = format!("127.0.0.1:{}", server.port());
    let builder = RedissonClient::builder().response_timeout(ms(200));
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    while limiter.exists().await.is_err() {}
    server.signal("KILL");
    drop(server);
    // A call of its own, the next one, and one that waits for that.
    let mut requests = [1, 2, 3].map(|permits| Box::pin(limiter.try_acquire(permits)));
    for request in &mut requests {
        assert!(poll_once(request).is_none());
        tokio::task::yield_now().await;
    }
    for request in requests {
        match request.await.unwrap_err() {
            Error::Indeterminate { .. } => {} // it was sent before the loss was noticed
            error => assert_eq!(server_in(&error), address),
        }
    }
}

#[tokio::test]
async fn connecting_to_a_server_that_accepts_and_does_not_answer_fails() {
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
async fn connecting_asks_again_over_another_connection_if_no_answer_comes() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    proxy.next("INFO", Fate::Held);
    let client = patient(&proxy.url()).await;
    let _unanswered = proxy.held().await;
    assert!(!client.rate_limiter(NAME).exists().await.unwrap());
}

#[tokio::test]
async fn every_call_finds_a_lost_server_unavailable_in_the_response_timeout() {
    let server = Server::start();
    let builder = RedissonClient::builder().response_timeout(ms(200));
    let builder = builder.wait_for_server(NEVER);
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    while limiter.exists().await.is_err() {}
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
