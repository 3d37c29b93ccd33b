//! A server out of memory refuses what writes, and the books stay in balance.

use std::error::Error as _;

use redisson_rate_limiter::{Error, RRateLimiter, Rate};

use crate::stage::{HOUR, SECOND, Stage};

#[tokio::test]
async fn a_full_server_refuses_grants_and_changes_nothing() {
    let mut stage = Stage::set().await;
    let limiter = stage.with(Rate::overall(10, SECOND).keep_alive(HOUR)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    stage.at(1_500);
    assert!(limiter.try_acquire(2).await.unwrap());
    let before = stage.everything().await;
    for (now, available) in [(1_500, 4), (2_000, 8)] {
        stage.at(now); // at 2000 there is something to clean up as well
        stage.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let error = limiter.try_acquire(3).await.unwrap_err();
        assert_eq!(limiter.available_permits().await.unwrap(), available);
        stage.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
        let Error::Redis { source } = &error else {
            panic!("{error:?}");
        };
        assert!(source.to_string().contains("OOM"), "{source}");
        assert!(error.source().is_some());
        assert_eq!(stage.everything().await, before, "at {now}");
    }
    assert!(limiter.try_acquire(8).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}
