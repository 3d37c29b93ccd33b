//! A server that is out of memory, or whose disk is full, refuses writes, and the invariant holds.

use std::error::Error as _;

use redis::InfoDict;
use redisson_rate_limiter::{Error, Rate};
use tokio::time::sleep;

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, SECOND, ms};
use crate::keys;
use crate::support::Server;

#[tokio::test]
async fn a_full_server_refuses_grants_and_changes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .with(Rate::overall(10, SECOND).keep_alive(HOUR))
        .await;
    assert!(limiter.try_acquire(4).await.unwrap());
    fixture.at(1_500);
    assert!(limiter.try_acquire(2).await.unwrap());
    let before = fixture.everything().await;
    for (now, available) in [(1_500, 4), (2_000, 8)] {
        fixture.at(now); // at 2000 there is something to clean up as well
        fixture.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
        let error = limiter.try_acquire(3).await.unwrap_err();
        assert_eq!(limiter.available_permits().await.unwrap(), available);
        fixture.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
        let Error::Redis { source } = &error else {
            panic!("{error:?}");
        };
        assert!(source.to_string().contains("OOM"), "{source}");
        assert!(error.source().is_some());
        assert_eq!(fixture.everything().await, before, "at {now}");
    }
    assert!(limiter.try_acquire(8).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_grants_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kept = ["--dir", folder.path().to_str().unwrap()];
    let server = Server::start_with(&[&kept[..], &["--save", "3600", "1"]].concat());
    let mut raw = server.connection().await;
    let client = patient(&server.url()).await;
    let limiter = client.rate_limiter(NAME);
    limiter.try_set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(4).await.unwrap());
    let before = keys::everything(&mut raw).await;

    folder.close().unwrap(); // nothing can be written there, as on a full disk
    redis::cmd("BGSAVE").exec_async(&mut raw).await.unwrap();
    let has_failed = async |raw: &mut redis::aio::MultiplexedConnection| {
        let info = redis::cmd("INFO").arg("persistence").query_async(raw).await;
        let info: InfoDict = info.unwrap();
        let status: Option<String> = info.get("rdb_last_bgsave_status");
        status.as_deref() == Some("err")
    };
    while !has_failed(&mut raw).await {
        sleep(ms(5)).await;
    }
    let error = limiter.try_acquire(3).await.unwrap_err();
    let Error::Redis { source } = &error else {
        panic!("{error:?}");
    };
    assert!(source.to_string().contains("MISCONF"), "{source}");
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
    assert_eq!(keys::everything(&mut raw).await, before);

    let mut writes_again = redis::cmd("CONFIG");
    writes_again.arg("SET").arg("stop-writes-on-bgsave-error");
    writes_again.arg("no").exec_async(&mut raw).await.unwrap();
    assert!(limiter.try_acquire(6).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}
