//! One call to the server serves all waiters that fit.

use redisson_rate_limiter::Rate;
use tokio::task::JoinSet;

use crate::clients::{builder, steady};
use crate::in_memory::{HOUR, ms};
use crate::keys;
use crate::support::Server;

#[tokio::test]
async fn a_thousand_waiters_at_a_hundred_a_window_take_no_more_than_forty_calls() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = steady(&server.url(), builder()).await;
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(100, ms(300))).await.unwrap();
    let before = keys::calls(&mut raw, "evalsha").await;
    let mut waiters = JoinSet::new();
    for _ in 0..1_000 {
        let limiter = limiter.clone();
        waiters.spawn(async move { limiter.acquire(1).await.unwrap() });
    }
    waiters.join_all().await;
    let calls = keys::calls(&mut raw, "evalsha").await - before;
    assert!(calls <= 40, "{calls} calls");
    let left_and_used = keys::left_and_used(&mut raw, "{limiter}:value", "{limiter}:permits").await;
    assert_eq!(left_and_used.0.unwrap() + left_and_used.1, 100);
}

#[tokio::test]
async fn two_hundred_waiters_keep_value_and_grants_at_the_rate() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = steady(&server.url(), builder()).await;
    let limiter = client.rate_limiter("limiter");
    limiter
        .set_rate(Rate::overall(1_000, ms(200)))
        .await
        .unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..200 {
        let limiter = limiter.clone();
        waiters.spawn(async move {
            for _ in 0..20 {
                limiter.acquire(1).await.unwrap();
            }
        });
    }
    while waiters.join_next().await.is_some() {
        let (value, used) =
            keys::left_and_used(&mut raw, "{limiter}:value", "{limiter}:permits").await;
        assert_eq!(value.unwrap() + used, 1_000);
    }
}

#[tokio::test]
async fn requests_that_arrive_while_a_call_is_under_way_share_the_next_one() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let client = steady(&server.url(), builder()).await;
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(1_000, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let before = keys::calls(&mut raw, "evalsha").await;
    let mut requests = JoinSet::new();
    for _ in 0..500 {
        let limiter = limiter.clone();
        requests.spawn(async move { assert!(limiter.try_acquire(1).await.unwrap()) });
    }
    requests.join_all().await;
    // One call for the first waiter, and one for the others.
    assert_eq!(keys::calls(&mut raw, "evalsha").await - before, 2);
    assert_eq!(limiter.available_permits().await.unwrap(), 499);
}
