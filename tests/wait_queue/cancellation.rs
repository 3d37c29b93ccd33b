//! Whenever a future is dropped, its permits go to the next waiter or back.

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::by_hand::{Pending, poll_once};
use crate::clients::patient;
use crate::in_memory::{HOUR, SECOND, let_others_work, limiter, ms, wait};
use crate::keys;
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

#[tokio::test(start_paused = true)]
async fn a_request_that_was_never_polled_took_nothing() {
    let limiter = limiter(1, HOUR).await;
    drop(limiter.acquire(1));
    drop(limiter.try_acquire(1));
    drop(limiter.try_acquire_timeout(1, SECOND));
    let_others_work().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_the_queue_to_those_behind_it() {
    let limiter = limiter(2, SECOND).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let start = Instant::now();
    let mut first = wait(&limiter, 2);
    assert!(poll_once(&mut first).is_none());
    let mut second = wait(&limiter, 1);
    assert!(poll_once(&mut second).is_none());
    let_others_work().await;
    drop(first);
    second.await.unwrap();
    assert_eq!(start.elapsed(), ms(1_003));
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_whose_waiters_have_all_left_takes_nothing() {
    let limiter = limiter(5, SECOND).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    let mut waits: Vec<Pending<'_, _>> = (0..5).map(|_| wait(&limiter, 1)).collect();
    for wait in &mut waits {
        assert!(poll_once(wait).is_none());
    }
    let_others_work().await;
    drop(waits);
    sleep(ms(5_000)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_unread_grant_passes_to_the_next_waiter_at_once() {
    let limiter = limiter(3, SECOND).await;
    assert!(limiter.try_acquire(3).await.unwrap());
    let mut first = wait(&limiter, 3);
    let mut second = wait(&limiter, 2);
    assert!(poll_once(&mut first).is_none());
    assert!(poll_once(&mut second).is_none());
    let_others_work().await;
    advance(ms(1_003)).await;
    let_others_work().await; // the first is granted all there is
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    let start = Instant::now();
    drop(first);
    let_others_work().await;
    assert!(poll_once(&mut second).expect("it has the permits").is_ok());
    assert_eq!(start.elapsed(), ms(0));
    // What the second did not use has come back.
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unread_grant_is_given_back_if_the_next_waiter_asks_for_more() {
    let limiter = limiter(3, SECOND).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    advance(ms(500)).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let mut first = wait(&limiter, 1);
    let mut second = wait(&limiter, 3);
    assert!(poll_once(&mut first).is_none());
    assert!(poll_once(&mut second).is_none());
    let_others_work().await;
    advance(ms(510)).await;
    let_others_work().await; // the first is granted the one that is back
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
    drop(first);
    let_others_work().await;
    assert!(poll_once(&mut second).is_none());
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
    second.await.unwrap();
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_branch_of_select_that_lost_keeps_nothing() {
    let limiter = limiter(1, SECOND).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    for _ in 0..5 {
        tokio::select! {
            biased;
            () = sleep(ms(150)) => {}
            _ = limiter.acquire(1) => panic!("the sleep is shorter"),
        }
    }
    sleep(ms(250)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
    assert!(timeout(ms(1), limiter.acquire(1)).await.is_ok());
    assert!(timeout(ms(500), limiter.acquire(1)).await.is_err());
    sleep(ms(500)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

/// A limiter on a server, of which nothing is in use, and whose scripts the server knows.
async fn behind(proxy: &Proxy, rate: u64) -> RateLimiter {
    let builder = RedissonClient::builder().response_timeout(ms(10_000));
    let client = builder.connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
    let redisson_rate_limiter::Decision::Granted(redisson_rate_limiter::Granted { grant, .. }) =
        limiter.check(1).await.unwrap()
    else {
        panic!("it was denied");
    };
    limiter.refund(grant).await.unwrap();
    proxy.take_seen();
    limiter
}

const VALUE: &str = "{limiter}:value";
const PERMITS: &str = "{limiter}:permits";

#[tokio::test]
async fn a_request_dropped_during_its_call_gives_back_what_it_is_granted() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let mut proxy = Proxy::to(server.port()).await;
    let limiter = behind(&proxy, 5).await;
    for _ in 0..3 {
        proxy.next("EVALSHA", Fate::Held); // the acquire
        proxy.next("EVALSHA", Fate::Held); // its refund
        let mut request = Box::pin(limiter.try_acquire(3));
        assert!(poll_once(&mut request).is_none());
        let acquire = proxy.held().await;
        drop(request);
        acquire.let_through().await;
        let refund = proxy.held().await;
        assert_eq!(
            keys::left_and_used(&mut raw, VALUE, PERMITS).await,
            (Some(2), 3)
        );
        refund.let_through().await;
        assert_eq!(
            keys::left_and_used(&mut raw, VALUE, PERMITS).await,
            (Some(5), 0)
        );
    }
}

#[tokio::test]
async fn a_caller_that_leaves_a_shared_call_gives_back_its_own_part_alone() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let mut proxy = Proxy::to(server.port()).await;
    let limiter = behind(&proxy, 10).await;
    proxy.next("EVALSHA", Fate::Held); // a call of the first's own
    proxy.next("EVALSHA", Fate::Held); // one for the others
    proxy.next("EVALSHA", Fate::Held); // the refund
    let mut requests: Vec<_> = [1, 2, 3, 4]
        .into_iter()
        .map(|permits| Box::pin(limiter.try_acquire(permits)))
        .collect();
    for request in &mut requests {
        assert!(poll_once(request).is_none());
    }
    proxy.held().await.let_through().await;
    let together = proxy.held().await;
    drop(requests.remove(2)); // the 3
    together.let_through().await;
    let refund = proxy.held().await;
    assert_eq!(
        keys::left_and_used(&mut raw, VALUE, PERMITS).await,
        (Some(0), 10)
    );
    refund.let_through().await;
    assert_eq!(
        keys::left_and_used(&mut raw, VALUE, PERMITS).await,
        (Some(3), 7)
    );
    for request in requests {
        assert!(request.await.unwrap());
    }
    assert_eq!(
        keys::left_and_used(&mut raw, VALUE, PERMITS).await,
        (Some(3), 7)
    );
}

#[tokio::test]
async fn a_waiter_gets_what_a_dropped_call_was_granted() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let mut proxy = Proxy::to(server.port()).await;
    let limiter = behind(&proxy, 5).await;
    assert!(limiter.try_acquire(3).await.unwrap());
    proxy.next("EVALSHA", Fate::Held);
    let mut dropped = Box::pin(limiter.try_acquire(2));
    assert!(poll_once(&mut dropped).is_none());
    let acquire = proxy.held().await;
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(2).await }
    });
    tokio::task::yield_now().await; // it is in the queue
    drop(dropped);
    acquire.let_through().await;
    let served = timeout(60 * SECOND, waiter).await;
    served
        .expect("it need not wait for an hour")
        .unwrap()
        .unwrap();
    assert_eq!(
        keys::left_and_used(&mut raw, VALUE, PERMITS).await,
        (Some(0), 5)
    );
}

#[tokio::test]
async fn a_delivered_but_unread_grant_is_scored_anew_for_the_next_waiter() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = patient(&server.url()).await;
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(2).await.unwrap());
    let mut first = wait(&limiter, 1);
    assert!(poll_once(&mut first).is_none());
    limiter.exists().await.unwrap(); // answered after the first's own call
    assert!(poll_once(&mut first).is_none()); // denied, so it is in the queue
    let second = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    tokio::task::yield_now().await; // behind it
    limiter.release(1).await.unwrap();
    while keys::left_and_used(&mut raw, VALUE, PERMITS).await != (Some(0), 2) {
        // The queue sends a call, and the first waiter is granted what was released.
        sleep(ms(1)).await;
    }
    let delivered = newest_score(&mut raw).await;
    drop(first);
    let served = timeout(60 * SECOND, second).await;
    served.expect("it is served").unwrap().unwrap();
    // The permit is taken now, and counts in the window from now on.
    assert!(newest_score(&mut raw).await > delivered);
    assert_eq!(
        keys::left_and_used(&mut raw, VALUE, PERMITS).await,
        (Some(0), 2)
    );
}

async fn newest_score(raw: &mut redis::aio::MultiplexedConnection) -> f64 {
    let mut command = redis::cmd("ZRANGE");
    command.arg(PERMITS).arg(-1).arg(-1).arg("WITHSCORES");
    let newest: Vec<(Vec<u8>, f64)> = command.query_async(raw).await.unwrap();
    newest[0].1
}
