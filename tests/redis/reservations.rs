//! Reservations through an outage, on several runtimes and on a cluster.

use std::time::Duration;

use redisson_rate_limiter::{Grant, Rate, RateLimiter, RedissonClient, Reservation};
use tokio::runtime::{Builder, Runtime};

use crate::clients::patient;
use crate::fixture::{HOUR, NAME, PERMITS};
use crate::keys;
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
            panic!("{grants:?}");
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
