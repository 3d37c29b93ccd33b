//! Permits that are taken ahead, used, and given back.

use std::time::Duration;

use redisson_rate_limiter::{Decision, Error, Grant, LimiterOptions, RateLimiter};
use tokio::runtime::Builder;

use crate::clients::PATIENCE;
use crate::fixture::{Fixture, HOUR, told};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

async fn on(server: &Server, permits: u64) -> Fixture {
    Fixture::new(&server.url(), &server.url(), permits).await
}

async fn check(limiter: &RateLimiter, permits: u32) -> Grant {
    let decision = limiter.check(permits).await.unwrap();
    decision.into_grant().expect("it is granted")
}

#[tokio::test]
async fn permits_of_a_lease_are_granted_without_a_call() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut fixture = Fixture::new(&proxy.url(), &server.url(), 10_000).await;
    fixture.lease(20).await;
    let left = fixture.plain.available_permits().await.unwrap();
    proxy.take_seen();
    fixture.take(5).await;
    fixture.leased.acquire(2).await.unwrap();
    check(&fixture.leased, 1).await;
    assert!(fixture.leased.peek(1).await.unwrap().is_granted());
    assert_eq!(proxy.take_names(), Vec::<String>::new());
    assert_eq!(fixture.plain.available_permits().await.unwrap(), left);
    let all = fixture.leased.available_permits().await.unwrap();
    assert_eq!(all, 10_000 - fixture.taken - 3);
}

#[tokio::test]
async fn a_request_that_a_lease_grants_is_an_event_like_any_other() {
    let server = Server::start();
    let (told, client) = told(&server.url()).await;
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    told.take_requests();
    fixture.take(1).await;
    fixture.leased.acquire(2).await.unwrap();
    let expected = [1, 2].map(|permits| format!("*limiter {permits}: granted by store"));
    assert_eq!(told.take_requests(), expected);
}

/// Its permits are for requests to come, which do not share the call.
#[tokio::test]
async fn a_call_for_a_lease_is_reported_as_one_request() {
    let server = Server::start();
    let (told, client) = told(&server.url()).await;
    let mut fixture = Fixture::over(client, &server.url(), 10_000).await;
    fixture.lease(20).await;
    let calls = told.take_calls();
    let acquires = calls.iter().filter(|it| it.script == "acquire");
    let requests: Vec<_> = acquires.map(|it| it.requests).collect();
    assert_eq!(requests, vec![1; requests.len()]);
}

#[tokio::test]
async fn what_is_not_used_comes_back_when_the_last_handle_is_dropped() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(10).await;
    let clone = fixture.leased.clone();
    fixture.leased = fixture.plain.clone();
    assert_ne!(
        fixture.plain.available_permits().await.unwrap(),
        10_000 - fixture.taken
    );
    drop(clone);
    fixture.until_left(10_000 - fixture.taken).await;
}

#[tokio::test]
async fn a_reservation_of_a_handle_keeps_no_leases_for_it() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(20).await;
    let reserved = fixture.leased.reserve(5, Duration::ZERO).await.unwrap();
    fixture.leased = fixture.plain.clone();
    fixture.until_left(10_000 - fixture.taken - 5).await;
    assert_eq!(reserved.map(|it| it.permits()), Some(5));
}

#[tokio::test]
async fn what_is_not_used_is_back_when_the_client_is_closed() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(10).await;
    assert!(fixture.client.close(Duration::from_secs(60)).await);
    let left = fixture.plain.available_permits().await.unwrap();
    assert_eq!(left, 10_000 - fixture.taken);
    assert!(fixture.leased.try_acquire(1).await.is_err());
}

#[tokio::test]
async fn a_grant_goes_back_to_its_lease_or_to_redis_once_that_has_ended() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(20).await;
    let [first, second] = [
        check(&fixture.leased, 3).await,
        check(&fixture.leased, 2).await,
    ];
    let in_leases = fixture.in_leases().await;
    assert_eq!(fixture.leased.refund(first).await.unwrap(), 3);
    assert_eq!(fixture.in_leases().await, in_leases + 3);
    let again = second.clone();
    let same = fixture.client.rate_limiter("limiter");
    fixture.leased = same.clone();
    assert_eq!(same.refund(second).await.unwrap(), 2);
    assert_eq!(same.refund(again).await.unwrap(), 0);
    fixture.until_left(10_000 - fixture.taken).await;
}

#[tokio::test]
async fn a_release_gives_back_what_was_used_of_a_lease_and_leaves_the_rest() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(20).await;
    fixture.take(5).await;
    let used = u32::try_from(fixture.taken).unwrap();
    fixture.leased.release(used).await.unwrap();
    fixture.leased = fixture.plain.clone();
    fixture.until_left(10_000).await;
}

#[tokio::test]
async fn a_request_beyond_the_lease_gets_what_the_lease_gives_back() {
    let server = Server::start();
    let mut fixture = on(&server, 100).await;
    fixture.lease(10).await;
    let rest = u32::try_from(100 - fixture.taken).unwrap();
    fixture.leased.acquire(rest).await.unwrap();
    assert_eq!(fixture.plain.available_permits().await.unwrap(), 0);
    assert!(!fixture.leased.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn remembered_denials_do_not_hide_the_permits_of_leases() {
    let server = Server::start();
    let options = LimiterOptions::new().remember_denials(HOUR).fail_fast(true);
    for waits in [false, true] {
        let mut fixture = on(&server, 1_000).await;
        fixture.leased = fixture.leased.with_options(options.clone());
        fixture.lease(20).await;
        let left = fixture.plain.available_permits().await.unwrap();
        let more_than_left = u32::try_from(left + 10).unwrap();
        let limiter = &fixture.leased;
        let is_granted = match waits {
            false => limiter.try_acquire(more_than_left).await,
            true => limiter.try_acquire_timeout(more_than_left, PATIENCE).await,
        };
        assert!(is_granted.unwrap());
    }
}

#[tokio::test]
async fn a_request_is_denied_only_if_redis_and_leases_lack_its_permits() {
    let server = Server::start();
    let mut fixture = on(&server, 100).await;
    fixture.lease(10).await;
    let rest = u32::try_from(100 - fixture.taken).unwrap();
    assert!(fixture.leased.try_acquire(rest).await.unwrap());
}

#[tokio::test]
async fn all_permits_can_be_taken_and_no_more() {
    let server = Server::start();
    let mut fixture = on(&server, 1_000).await;
    let mut denied = 0;
    while denied < 100 {
        match fixture.leased.try_acquire(1).await.unwrap() {
            true => fixture.taken += 1,
            false => {
                denied += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    assert_eq!(fixture.taken, 1_000);
}

#[tokio::test]
async fn a_peek_takes_nothing() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(5).await;
    let Decision::Granted(granted) = fixture.leased.peek(3).await.unwrap() else {
        panic!("there are enough");
    };
    let in_leases = fixture.in_leases().await;
    let left = fixture.leased.available_permits().await.unwrap();
    let settled = fixture.leased.settle(granted.grant.clone(), 50).await;
    settled.unwrap();
    assert_eq!(fixture.leased.available_permits().await.unwrap(), left);
    assert_eq!(fixture.leased.refund(granted.grant).await.unwrap(), 0);
    assert_eq!(fixture.in_leases().await, in_leases);
}

#[tokio::test]
async fn a_peek_for_no_permits_is_refused_beside_a_lease_too() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(5).await;
    for handle in [&fixture.leased, &fixture.plain] {
        let refused = handle.peek(0).await;
        let argument = match refused {
            Err(Error::InvalidArgument { argument, .. }) => argument,
            other => panic!("{other:?}"),
        };
        assert_eq!(argument, "permits");
    }
}

#[tokio::test]
async fn however_often_answers_are_lost_what_was_not_used_comes_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut fixture = Fixture::new(&proxy.url(), &server.url(), 100_000).await;
    for fate in [
        Fate::CutBeforeServer,
        Fate::CutBeforeAnswer,
        Fate::CutWithinAnswer,
    ] {
        for _ in 0..5 {
            proxy.next("EVALSHA", fate);
            fixture.lease(10).await;
            fixture.take(5).await;
            proxy.next("EVALSHA", fate);
            fixture.lease_anew();
        }
    }
    fixture.leased = fixture.plain.clone();
    fixture.until_left(100_000 - fixture.taken).await;
}

#[tokio::test]
async fn a_grant_of_a_lease_goes_back_however_many_leases_have_ended_since() {
    let server = Server::start();
    let mut fixture = on(&server, 100_000).await;
    fixture.lease(10).await;
    let grant = check(&fixture.leased, 2).await;
    for _ in 0..3 {
        fixture.lease_anew();
        fixture.lease(10).await;
    }
    let again = fixture.client.rate_limiter("limiter");
    fixture.leased = again.clone();
    fixture.until_left(100_000 - fixture.taken - 2).await;
    // Another process knows of no lease.
    assert_eq!(fixture.plain.refund(grant).await.unwrap(), 2);
    fixture.until_left(100_000 - fixture.taken).await;
}

#[tokio::test]
async fn what_others_release_of_a_lease_is_theirs_and_the_rest_comes_back() {
    let server = Server::start();
    let mut fixture = on(&server, 10_000).await;
    fixture.lease(20).await;
    fixture.take(5).await;
    let used = u32::try_from(fixture.taken).unwrap();
    fixture.plain.release(used).await.unwrap();
    fixture.leased = fixture.plain.clone();
    fixture.until_left(10_000).await;
}

#[test]
fn a_lease_depends_on_no_runtime_of_a_caller() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    let (callers, other) = (runtime(), runtime());
    let mut fixture = callers.block_on(on(&server, 10_000));
    callers.block_on(fixture.lease(10));
    let leased = std::mem::replace(&mut fixture.leased, fixture.plain.clone());
    drop(callers);
    // Out of the lease it is granted outside of all runtimes.
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    let granted = std::pin::pin!(leased.try_acquire(1)).poll(&mut context);
    assert!(matches!(granted, std::task::Poll::Ready(Ok(true))));
    drop(leased);
    fixture.taken += 1;
    let plain = other.block_on(crate::clients::patient(&server.url()));
    fixture.plain = plain.rate_limiter("limiter");
    other.block_on(fixture.until_left(10_000 - fixture.taken));
}
