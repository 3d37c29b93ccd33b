//! Reservations through an outage, through lost answers, on several runtimes and on a cluster.

use std::time::Duration;

use redisson_rate_limiter::{
    Error, Grant, PermitsInUse, Rate, RateLimiter, RedissonClient, Reservation, Result,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::clients::patient;
use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND};
use crate::keys;
use crate::proxy::{Fate, Proxy};
use crate::stopped_time::until;
use crate::support::cluster::Cluster;
use crate::support::{KEEPS_DATA, Server};

/// A limiter of ten permits an hour, of which five are reserved.
async fn reserved(client: &RedissonClient) -> (RateLimiter, Reservation) {
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let reservation = limiter.reserve(5, Duration::ZERO).await.unwrap();
    (limiter, reservation.expect("there are ten"))
}

/// Waits until the permits count from their use. Until then they count from an hour later.
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
async fn a_reservation_is_used_even_if_the_server_has_lost_it() {
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

/// Five permits of ten a minute are reserved, which eight in use hold back for a minute. Between
/// the first attempt, whose answer is lost, and the next one, another client does something.
async fn answered_late(
    fixture: &Fixture,
    proxy: &mut Proxy,
    between: impl AsyncFnOnce(RateLimiter),
) -> (RateLimiter, Instant, Result<Option<Reservation>>) {
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    let rate = Rate::overall(10, 60 * SECOND);
    limiter.set_rate(rate).await.unwrap();
    assert!(limiter.try_acquire(8).await.unwrap());
    let peer = fixture.limiter().await;
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    proxy.next("EVALSHA", Fate::Held);
    let start = Instant::now();
    let (reserved, ()) = tokio::join!(limiter.reserve(5, HOUR), async {
        let retry = proxy.held().await;
        between(peer).await;
        retry.let_through().await;
    });
    (limiter, start, reserved)
}

#[tokio::test]
async fn a_reservation_keeps_its_time_if_the_rate_changes_before_the_answer() {
    for (permits, seconds) in [(10, 90), (10, 30), (3, 60)] {
        let fixture = Fixture::start().await;
        let rate = Rate::overall(permits, seconds * SECOND);
        let change = async |peer: RateLimiter| {
            assert!(peer.update_rate(rate, PermitsInUse::Keep).await.unwrap());
        };
        let mut proxy = Proxy::to(fixture.server.port()).await;
        let (_limiter, start, reserved) = answered_late(&fixture, &mut proxy, change).await;
        let reservation = reserved.unwrap().expect("in a minute");
        let (usable_at, expires_at) = (reservation.usable_at(), reservation.expires_at());
        assert!(usable_at >= start + 60 * SECOND, "{permits}, {seconds}");
        assert!(expires_at <= Instant::now() + 120 * SECOND);
        assert!(expires_at > usable_at, "{permits}, {seconds}");
        assert_eq!(reservation.cancel().await.unwrap(), 5);
    }
}

#[tokio::test]
async fn a_reservation_whose_time_is_lost_goes_back_and_is_made_anew() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let release = async |peer: RateLimiter| peer.release(9).await.unwrap();
    let (limiter, _start, reserved) = answered_late(&fixture, &mut proxy, release).await;
    let reservation = reserved.unwrap().expect("it is released");
    until("the first one is given back", async || {
        limiter.available_permits().await.unwrap() == 5
    })
    .await;
    assert_eq!(reservation.cancel().await.unwrap(), 5);
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn a_shrink_that_arrives_after_the_settlement_gives_nothing_back() {
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
    let client = fixture.client().await;
    let (_limiter, reservation) = reserved(&client).await;
    assert_eq!(reservation.cancel().await.unwrap(), 5);
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn a_cancel_that_finds_no_server_or_is_dropped_gives_back_later() {
    let mut server = Server::start_with(&KEEPS_DATA);
    let client = RedissonClient::builder().response_timeout(2 * SECOND);
    let client = client.connect(&server.url()).await.unwrap();
    let (limiter, reservation) = reserved(&client).await;
    let is_back = async || limiter.available_permits().await.ok() == Some(10);

    server.signal("KILL");
    let _lost_with_its_connection = client.ping().await.unwrap_err();
    let error = reservation.cancel().await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
    server.start_again();
    until("it is given back after the outage", is_back).await;

    let reservation = limiter.reserve(5, Duration::ZERO).await.unwrap().unwrap();
    server.signal("STOP");
    tokio::select! {
        biased;
        cancelled = reservation.cancel() => panic!("{cancelled:?}"),
        () = yield_now() => {}
    }
    server.signal("CONT");
    until("it is given back though nobody waits for it", is_back).await;
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

#[tokio::test]
async fn a_reservation_under_an_interval_of_0_expires_at_once() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture.with(Rate::overall(10, HOUR)).await;
    fixture.run(&["HSET", NAME, "interval", "0"]).await;
    let reservation = limiter.reserve(3, Duration::ZERO).await.unwrap();
    let ended = reservation.expect("there are ten").ready().await;
    assert!(matches!(ended, Err(Error::ReservationExpired { .. })));
}
