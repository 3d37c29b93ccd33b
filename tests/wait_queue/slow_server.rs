//! What happens in the queue while a call is in flight.

use redisson_rate_limiter::{Clock, Rate, RateLimiter};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::mpsc;

use crate::clients::builder;
use crate::in_memory::{HOUR, ms};
use crate::proxy::{Fate, Proxy};
use crate::support::Server;

async fn behind(proxy: &Proxy, clock: Clock, rate: Rate) -> RateLimiter {
    let builder = builder().clock(clock);
    let client = builder.connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(rate).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter
}

#[tokio::test]
async fn the_first_to_ask_is_served_before_one_that_came_during_its_call() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let now = Arc::new(AtomicI64::new(0));
    let clock = Clock::from_fn({
        let now = Arc::clone(&now);
        move || now.load(Ordering::SeqCst)
    });
    let limiter = behind(&proxy, clock, Rate::overall(1, ms(100))).await;
    let (served, mut order) = mpsc::unbounded_channel();
    let ask = |who: &'static str| {
        let (limiter, served) = (limiter.clone(), served.clone());
        tokio::spawn(async move {
            limiter.acquire(1).await.unwrap();
            served.send(who).unwrap();
        })
    };
    proxy.next("EVALSHA", Fate::Held); // the first's call, and its denial
    proxy.next("EVALSHA", Fate::Held); // the call of the queue
    let first = ask("first");
    let call = proxy.held().await;
    let second = ask("second");
    tokio::task::yield_now().await; // it is in the queue
    call.let_through().await;
    proxy.held().await.let_through().await;
    // One permit comes back, and then another one.
    now.store(100, Ordering::SeqCst);
    assert_eq!(order.recv().await, Some("first"));
    now.store(200, Ordering::SeqCst);
    assert_eq!(order.recv().await, Some("second"));
    first.await.unwrap();
    second.await.unwrap();
}

#[tokio::test]
async fn a_timeout_passes_also_while_the_call_is_under_way_and_nothing_is_kept() {
    let server = Server::start();
    let mut proxy = Proxy::to(server.port()).await;
    let limiter = behind(&proxy, Clock::server(), Rate::overall(10, HOUR)).await;
    proxy.next("EVALSHA", Fate::Held);
    let (answer, held) = tokio::join!(limiter.try_acquire_timeout(3, ms(50)), proxy.held());
    assert!(!answer.expect("false, and no error"));
    proxy.next("EVAL", Fate::Held); // its refund
    held.let_through().await;
    proxy.held().await.let_through().await;
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
}
