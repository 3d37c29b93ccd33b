//! Reservations through an outage, beside clocks that stand or are set back, on several runtimes and on a cluster.

use std::time::Duration;

use redisson_rate_limiter::{Error, Grant, Rate, RateLimiter, RedissonClient, Reservation};
use tokio::runtime::{Builder, Runtime};

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND};
use crate::keys;
use crate::proxy::{Fate, Proxy};
use crate::stopped_time::until;
use crate::support::Server;
use crate::support::cluster::Cluster;

/// A limiter of ten permits an hour, of which five are reserved.
async fn reserved(client: &RedissonClient) -> (RateLimiter, Reservation) {
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let reservation = limiter.reserve(5, Duration::ZERO).await.unwrap();
    (limiter, reservation.expect("there are ten"))
}

/// Waits until the permits count from their use. Before, they count from an hour later.
async fn until_settled(server: &Server, grant: &Grant) {
    until("the use is told", async || {
        let mut raw = server.connection().await;
        let (grants, now) = (
            keys::grants(&mut raw, PERMITS).await,
            keys::time(&mut raw).await,
        );
        let [(score, permits)] = grants[..] else {
            return false; // the fence is there
        };
        assert_eq!(permits, grant.permits());
        score <= now
    })
    .await;
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test]
async fn a_reservation_is_used_while_the_server_stands_still() {
    let server = Server::start();
    let (limiter, reservation) = reserved(&patient(&server.url()).await).await;
    server.signal("STOP");
    let grant = reservation.ready().await.unwrap();
    server.signal("CONT");
    assert_eq!(grant.permits(), 5);
    until_settled(&server, &grant).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
}

#[tokio::test]
async fn a_reservation_is_used_though_the_server_has_lost_it() {
    let mut server = Server::start();
    let port = server.port();
    let (limiter, reservation) = reserved(&patient(&server.url()).await).await;
    drop(server);
    assert_eq!(reservation.ready().await.unwrap().permits(), 5);
    server = Server::start_at(port, &[]);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    // What the server does not know is not given back either.
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    let mut raw = server.connection().await;
    assert_eq!(keys::grants(&mut raw, PERMITS).await, []);
}

/// Ten permits a minute, all of which are reserved at 1,000 ms.
async fn reserved_by_clock(fixture: &Fixture) -> (RateLimiter, Reservation) {
    let limiter = fixture.with(Rate::overall(10, 60 * SECOND)).await;
    let reserved = limiter.reserve(10, Duration::ZERO).await.unwrap();
    (limiter, reserved.expect("there are ten"))
}

#[tokio::test]
async fn a_reservation_counts_from_its_use_though_the_machine_was_suspended() {
    let fixture = Fixture::start().await;
    let (limiter, reservation) = reserved_by_clock(&fixture).await;
    fixture.at(41_000); // the monotonic clock has stood
    assert_eq!(reservation.ready().await.unwrap().permits(), 10);
    until("the use is told", async || {
        let mut raw = fixture.server.connection().await;
        keys::grants(&mut raw, PERMITS).await == [(41_001, 10)]
    })
    .await;
    fixture.at(101_000);
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test]
async fn a_reservation_ends_when_the_clock_is_set_back() {
    let fixture = Fixture::start().await;
    let (limiter, reservation) = reserved_by_clock(&fixture).await;
    fixture.at(999);
    let ended = reservation.ready().await;
    assert!(matches!(ended, Err(Error::ReservationExpired { .. })));
    until("it is given back", async || {
        limiter.available_permits().await.unwrap() == 10
    })
    .await;
}

#[tokio::test]
async fn a_shrink_that_arrives_when_the_use_is_told_gives_nothing_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let (limiter, mut reservation) = reserved(&patient(&proxy.url()).await).await;
    let other = limiter.check(1).await.unwrap().into_grant();
    limiter.refund(other.expect("there is one")).await.unwrap(); // the server knows the script
    proxy.take_seen();
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    assert!(reservation.shrink(3).await.is_err());
    let seen = proxy.take_seen();
    let late = seen.iter().find(|command| command.name() == "EVALSHA");
    let grant = reservation.ready().await.unwrap();
    until_settled(&server, &grant).await;
    let mut again = redis::Cmd::new();
    again.arg(&late.expect("it was sent").0);
    let mut raw = server.connection().await;
    let back: i64 = again.query_async(&mut raw).await.unwrap();
    assert_eq!((grant.permits(), back), (3, 0));
    assert_eq!(limiter.available_permits().await.unwrap(), 7);
}

#[tokio::test]
async fn a_reservation_that_is_cancelled_leaves_nothing() {
    let mut fixture = Fixture::start().await;
    let (_limiter, reservation) = reserved_by_clock(&fixture).await;
    assert_eq!(reservation.cancel().await.unwrap(), 10);
    assert_eq!(fixture.grants().await, []);
}

#[test]
fn a_reservation_outlives_its_runtime_and_is_used_on_another_one() {
    let server = Server::start();
    let first = runtime();
    let (limiter, reservation) =
        first.block_on(async { reserved(&patient(&server.url()).await).await });
    drop(first);
    let second = runtime();
    let grant = second.block_on(reservation.ready()).unwrap();
    drop(second); // the use is told in the background, on no caller's runtime
    runtime().block_on(async {
        until_settled(&server, &grant).await;
        assert_eq!(limiter.refund(grant).await.unwrap(), 5);
        assert_eq!(limiter.available_permits().await.unwrap(), 10);
    });
}

#[test]
fn a_reservation_that_is_dropped_outside_of_a_runtime_goes_back() {
    let server = Server::start();
    let first = runtime();
    let (limiter, reservation) =
        first.block_on(async { reserved(&patient(&server.url()).await).await });
    drop(first);
    drop(reservation);
    runtime().block_on(until("it is given back", async || {
        limiter.available_permits().await.unwrap() == 10
    }));
}

#[tokio::test]
async fn on_a_cluster_reservations_are_used_shrunk_and_cancelled() {
    let cluster = Cluster::start();
    let client = patient(&cluster.urls().join(",")).await;
    for node in 0..3 {
        let limiter = client.rate_limiter(&format!("limiter:{node}"));
        limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
        let reserve = async |permits| {
            let reserved = limiter.reserve(permits, Duration::ZERO).await.unwrap();
            reserved.expect("there are enough")
        };
        let available = async |permits| {
            assert_eq!(limiter.available_permits().await.unwrap(), permits);
        };
        let mut reservation = reserve(8).await;
        available(2).await;
        assert_eq!(reservation.shrink(3).await.unwrap(), 5);
        available(7).await;
        assert_eq!(reserve(7).await.cancel().await.unwrap(), 7);
        available(7).await;
        assert_eq!(reservation.ready().await.unwrap().permits(), 3);
        available(7).await;
    }
}
