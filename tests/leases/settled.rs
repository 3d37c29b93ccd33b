//! A lease is settled late, while others release what it granted, or again and again.

use crate::clients::patient;
use crate::fixture::Fixture;
use crate::keys;
use crate::late_settles::late_settles;
use crate::proxy::{Command, Fate, Proxy};
use crate::support::Server;

#[tokio::test]
async fn what_others_release_before_a_late_settle_is_in_no_window_twice() {
    let server = Server::start();
    let other = patient(&server.url()).await.rate_limiter("limiter");
    late_settles(&server, async |permits| {
        other.release(permits).await.unwrap()
    })
    .await;
}

/// The calls that settle leases: of the scripts with six keys, the one with eight arguments.
fn settles(seen: Vec<Command>) -> Vec<Command> {
    let is_settle = |it: &Command| it.name() == "EVALSHA" && it.0[2] == b"6" && it.0.len() == 17;
    seen.into_iter().filter(is_settle).collect()
}

#[tokio::test]
async fn a_settle_that_arrives_again_and_again_changes_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut redis = server.connection().await;
    let mut fixture = Fixture::new(&proxy.url(), &server.url(), 10_000).await;
    fixture.lease(20).await;
    fixture.take(3).await;
    proxy.take_seen();
    for _ in 0..2 {
        proxy.next("EVALSHA", Fate::Twice);
    }
    fixture.lease_anew();
    fixture.until_left(10_000 - fixture.taken).await;
    let copies = settles(proxy.take_seen());
    assert!(!copies.is_empty());
    let mut arrive_again = async || {
        let before = keys::everything(&mut redis).await;
        for copy in &copies {
            let mut again = redis::Cmd::new();
            again.arg(&copy.0);
            let back: i64 = again.query_async(&mut redis).await.unwrap();
            assert_eq!(back, 0);
        }
        assert_eq!(keys::everything(&mut redis).await, before);
    };
    arrive_again().await;
    fixture.lease(20).await; // from newer leases
    arrive_again().await;
    fixture.leased = fixture.plain.clone();
    fixture.until_left(10_000 - fixture.taken).await;
    arrive_again().await;
    fixture.plain.release(3).await.unwrap();
    arrive_again().await;
    fixture.until_left(10_003 - fixture.taken).await;
}
