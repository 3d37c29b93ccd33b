//! Arguments out of range are refused before anything is sent, with the error that the method
//! documents.

use std::time::Duration;

use redisson_rate_limiter::{Error, PermitsInUse, Rate, RateLimiter, RedissonClient, Result};

use crate::fixture::{Fixture, HOUR, NAME, SECOND, ms};
use crate::proxy::Proxy;

fn argument<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        other => panic!("{other:?}"),
    }
}

/// A limiter of 5 behind a proxy that has seen nothing since; 2 are taken.
async fn in_use(fixture: &Fixture, proxy: &Proxy) -> RateLimiter {
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(2).await.unwrap());
    proxy.take_seen();
    limiter
}

#[tokio::test]
async fn zero_permits_are_refused_and_nothing_is_sent() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = in_use(&fixture, &proxy).await;
    let before = fixture.everything().await;
    assert_eq!(argument(limiter.try_acquire(0).await), "permits");
    assert_eq!(
        argument(limiter.try_acquire_timeout(0, SECOND).await),
        "permits"
    );
    assert_eq!(
        argument(limiter.try_acquire_timeout(0, Duration::ZERO).await),
        "permits"
    );
    assert_eq!(argument(limiter.acquire(0).await), "permits");
    assert_eq!(argument(limiter.check(0).await), "permits");
    assert_eq!(argument(limiter.release(0).await), "permits");
    assert_eq!(proxy.take_names(), Vec::<String>::new());
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn rates_that_cannot_be_stored_are_refused_and_nothing_is_sent() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = in_use(&fixture, &proxy).await;
    let before = fixture.everything().await;
    for (rate, bad) in [
        (Rate::overall(0, SECOND), "permits"),
        (Rate::per_client(0, SECOND), "permits"),
        (Rate::overall((1 << 53) + 1, SECOND), "permits"),
        (Rate::overall(u64::MAX, SECOND), "permits"),
        (Rate::overall(5, Duration::ZERO), "interval"),
        (Rate::overall(5, Duration::from_micros(999)), "interval"),
        (Rate::overall(5, Duration::from_micros(1_500)), "interval"),
        (Rate::overall(5, Duration::MAX), "interval"),
        (Rate::overall(5, SECOND).keep_alive(ms(999)), "keep_alive"),
        (
            Rate::overall(5, SECOND).keep_alive(Duration::ZERO),
            "keep_alive",
        ),
        (
            Rate::overall(5, SECOND).keep_alive(Duration::MAX),
            "keep_alive",
        ),
    ] {
        assert_eq!(argument(limiter.try_set_rate(rate).await), bad, "{rate:?}");
        assert_eq!(argument(limiter.set_rate(rate).await), bad, "{rate:?}");
        for state in [PermitsInUse::Keep, PermitsInUse::Reset] {
            assert_eq!(
                argument(limiter.set_rate_with(rate, state).await),
                bad,
                "{rate:?}"
            );
            assert_eq!(
                argument(limiter.update_rate(rate, state).await),
                bad,
                "{rate:?}"
            );
        }
    }
    assert_eq!(proxy.take_names(), Vec::<String>::new());
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn the_empty_name_is_refused_by_every_method_and_nothing_is_sent() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    proxy.take_seen();
    for error in crate::every_method::errors(&client.rate_limiter("")).await {
        assert!(
            matches!(&error, Error::InvalidName { name, .. } if name.is_empty()),
            "{error:?}"
        );
    }
    assert_eq!(proxy.take_names(), Vec::<String>::new());
    assert!(fixture.everything().await.is_empty());
}

#[tokio::test]
async fn permits_above_the_rate_and_a_missing_rate_change_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.limiter().await;
    assert!(matches!(
        limiter.try_acquire(1).await,
        Err(Error::NotInitialized { .. })
    ));
    assert!(matches!(
        limiter.acquire(1).await,
        Err(Error::NotInitialized { .. })
    ));
    assert!(matches!(
        limiter.release(1).await,
        Err(Error::NotInitialized { .. })
    ));
    assert!(matches!(
        limiter.available_permits().await,
        Err(Error::NotInitialized { .. })
    ));
    assert_eq!(limiter.config().await.unwrap(), None);
    assert!(
        !limiter
            .update_rate(Rate::overall(5, SECOND), PermitsInUse::Keep)
            .await
            .unwrap()
    );
    assert!(fixture.everything().await.is_empty());

    limiter
        .set_rate(Rate::overall(5, SECOND).keep_alive(HOUR))
        .await
        .unwrap();
    assert!(limiter.try_acquire(2).await.unwrap());
    let before = fixture.everything().await;
    fixture.at(2_000); // also where there would be something to clean up
    for permits in [6, u32::MAX] {
        let error = limiter.try_acquire(permits).await;
        assert!(
            matches!(error, Err(Error::ExceedsLimit { limit: 5, .. })),
            "{error:?}"
        );
        let error = limiter.acquire(permits).await;
        assert!(
            matches!(error, Err(Error::ExceedsLimit { limit: 5, .. })),
            "{error:?}"
        );
    }
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_response_timeout_of_zero_and_a_malformed_url_are_refused() {
    let server = crate::support::Server::start();
    let builder = RedissonClient::builder().response_timeout(Duration::ZERO);
    assert_eq!(
        argument(builder.connect(&server.url()).await),
        "response_timeout"
    );
    for url in [
        "",
        "nonsense",
        "http://127.0.0.1:1",
        "redis://",
        "redis://127.0.0.1:port",
        "redis://127.0.0.1:1,",
        &format!("{}/16", server.url()), // databases are 0 to 15
    ] {
        let result = RedissonClient::connect(url).await;
        assert!(
            matches!(
                result,
                Err(Error::InvalidArgument {
                    argument: "url",
                    ..
                })
            ),
            "{url:?}: {result:?}"
        );
    }
}
