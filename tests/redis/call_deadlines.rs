//! A call that reaches the server after its deadline does nothing.

use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, RateLimiter, RedissonClient, Result};

use crate::clients::{PATIENCE, patient};
use crate::fixture::{Fixture, HOUR, NAME, ms};
use crate::keys;
use crate::proxy::{Fate, Held, Proxy};
use crate::stopped_time::StoppedTime;

/// A limiter of 10 behind a proxy; one is taken.
async fn behind(proxy: &Proxy, response_timeout: Duration) -> RateLimiter {
    let limiter = patient(&proxy.url()).await.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let builder = RedissonClient::builder().response_timeout(response_timeout);
    let builder = builder.wait_for_server(PATIENCE);
    let client = builder.connect(&proxy.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    while limiter.exists().await.is_err() {}
    limiter
}

/// Holds the call up until its caller gives up. There is no other way to the server meanwhile.
async fn held_up<T: std::fmt::Debug>(
    proxy: &mut Proxy,
    call: impl Future<Output = Result<T>>,
) -> Held {
    proxy.next("EVALSHA", Fate::Held);
    proxy.refuse_new(true);
    // The time of the call passes from here on, however long the machine takes to send it.
    let time = StoppedTime::stop();
    let (error, held) = tokio::join!(call, async {
        let held = proxy.held().await;
        time.resume();
        held
    });
    assert!(
        matches!(error, Err(Error::Indeterminate { .. })),
        "{error:?}"
    );
    held
}

#[tokio::test]
async fn an_acquire_held_up_too_long_is_indeterminate_and_takes_nothing() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, ms(150)).await;
    let before = fixture.everything().await;

    let held = held_up(&mut proxy, limiter.try_acquire(3)).await;
    keys::deadline_passed(&mut fixture.raw).await;
    held.let_through().await;
    assert_eq!(fixture.everything().await, before);
    let limiter = patient(&fixture.server.url()).await.rate_limiter(NAME);
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    assert!(limiter.try_acquire(9).await.unwrap());
}

#[tokio::test]
async fn the_deadline_of_a_call_is_before_its_caller_gives_up() {
    let mut fixture = Fixture::start().await;
    for _ in 0..5 {
        // Each round has a proxy of its own: the client before still gives back what its call may
        // have taken.
        let mut proxy = Proxy::to(fixture.server.port()).await;
        let limiter = behind(&proxy, ms(150)).await;
        let held = held_up(&mut proxy, limiter.try_acquire(3)).await;
        let given_up = keys::time(&mut fixture.raw).await;
        let deadline: i64 = std::str::from_utf8(held.command.script_argument(1))
            .unwrap()
            .parse()
            .unwrap();
        assert!(deadline <= given_up, "{deadline} is after {given_up}");
        held.let_through().await;
    }
}

#[tokio::test]
async fn a_wait_whose_call_is_held_up_too_long_takes_nothing_either() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, ms(150)).await;
    let before = fixture.everything().await;
    let held = held_up(&mut proxy, limiter.acquire(3)).await;
    keys::deadline_passed(&mut fixture.raw).await;
    held.let_through().await;
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_server_whose_clock_is_moved_on_is_asked_again_and_not_taken_for_late() {
    // The client believes that the server's clock stands where it stood: each deadline it sends is
    // long past. That is what a moved clock looks like, and here the deadlines are moved instead.
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, ms(10_000)).await;
    proxy.take_seen();
    proxy.next("EVALSHA", Fate::Held);
    let (answer, ()) = tokio::join!(limiter.try_acquire(3), async {
        let mut held = proxy.held().await;
        held.command.set_script_argument(1, b"1000");
        held.let_through().await;
    });
    assert!(answer.unwrap());
    assert_eq!(proxy.take_names(), ["EVALSHA", "EVALSHA"]);
    assert_eq!(fixture.value().await.as_deref(), Some("6"));
}

#[tokio::test]
async fn a_late_call_whose_copy_came_in_time_takes_nothing_more() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, ms(10_000)).await;
    let before = fixture.value().await.unwrap().parse::<i64>().unwrap();
    proxy.next("EVALSHA", Fate::Held);
    let (answer, ()) = tokio::join!(limiter.try_acquire(3), async {
        let mut held = proxy.held().await;
        fixture.deliver(&held.command).await;
        held.command.set_script_argument(1, b"1000");
        held.let_through().await;
    });
    assert!(answer.unwrap());
    assert_eq!(fixture.value().await, Some((before - 3).to_string()));
}
