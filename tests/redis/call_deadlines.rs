//! A call that reaches the server after its deadline does nothing.

use redisson_rate_limiter::{Error, Rate, RateLimiter, RedissonClient};

use crate::keys;
use crate::proxy::{Fate, Proxy};
use crate::stage::{HOUR, NAME, Stage, ms};

async fn behind(proxy: &Proxy) -> RateLimiter {
    let builder = RedissonClient::builder().response_timeout(ms(150));
    let limiter = builder
        .connect(&proxy.url())
        .await
        .unwrap()
        .rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter
}

#[tokio::test]
async fn an_acquire_held_up_beyond_the_response_timeout_is_indeterminate_and_takes_nothing() {
    let mut stage = Stage::set().await;
    let mut proxy = Proxy::to(stage.server.port()).await;
    let limiter = behind(&proxy).await;
    let before = stage.everything().await;

    proxy.next("EVALSHA", Fate::Held);
    proxy.refuse_new(true); // there is no other way to the server
    let (error, held) = tokio::join!(limiter.try_acquire(3), proxy.held());
    assert!(
        matches!(error, Err(Error::Indeterminate { .. })),
        "{error:?}"
    );
    held.let_through().await;
    assert_eq!(stage.everything().await, before);
    proxy.refuse_new(false);
    while limiter.exists().await.is_err() {}
    assert_eq!(limiter.available_permits().await.unwrap(), 9);
    assert!(limiter.try_acquire(9).await.unwrap());
}

#[tokio::test]
async fn the_deadline_that_a_call_carries_lies_before_the_time_at_which_its_caller_gives_up() {
    let mut stage = Stage::set().await;
    let mut proxy = Proxy::to(stage.server.port()).await;
    let limiter = behind(&proxy).await;
    for _ in 0..5 {
        proxy.next("EVALSHA", Fate::Held);
        proxy.refuse_new(true); // there is no other way to the server
        let (error, held) = tokio::join!(limiter.try_acquire(3), proxy.held());
        assert!(
            matches!(error, Err(Error::Indeterminate { .. })),
            "{error:?}"
        );
        let given_up = keys::time(&mut stage.raw).await;
        let deadline: i64 = std::str::from_utf8(held.command.script_argument(1))
            .unwrap()
            .parse()
            .unwrap();
        assert!(deadline <= given_up, "{deadline} is after {given_up}");
        held.let_through().await;
        proxy.refuse_new(false);
        while limiter.exists().await.is_err() {}
    }
}

#[tokio::test]
async fn a_wait_whose_call_is_held_up_beyond_the_response_timeout_takes_nothing_either() {
    let mut stage = Stage::set().await;
    let mut proxy = Proxy::to(stage.server.port()).await;
    let limiter = behind(&proxy).await;
    let before = stage.everything().await;
    proxy.next("EVALSHA", Fate::Held);
    proxy.refuse_new(true); // there is no other way to the server
    let (error, held) = tokio::join!(limiter.acquire(3), proxy.held());
    assert!(
        matches!(error, Err(Error::Indeterminate { .. })),
        "{error:?}"
    );
    held.let_through().await;
    assert_eq!(stage.everything().await, before);
}

#[tokio::test]
async fn a_server_whose_clock_is_moved_on_is_asked_again_and_not_taken_for_late() {
    // The client believes that the server's clock stands where it stood: each deadline it sends is long past. That
    // is what a moved clock looks like, and here the deadlines are moved instead.
    let mut stage = Stage::set().await;
    let mut proxy = Proxy::to(stage.server.port()).await;
    let builder = RedissonClient::builder().response_timeout(ms(10_000));
    let limiter = builder
        .connect(&proxy.url())
        .await
        .unwrap()
        .rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    proxy.take_seen();
    proxy.next("EVALSHA", Fate::Held);
    let (answer, ()) = tokio::join!(limiter.try_acquire(3), async {
        let mut held = proxy.held().await;
        held.command.set_script_argument(1, b"1000");
        held.let_through().await;
    });
    assert!(answer.unwrap());
    assert_eq!(proxy.take_names(), ["EVALSHA", "EVALSHA"]);
    assert_eq!(stage.value().await.as_deref(), Some("6"));
}

#[tokio::test]
async fn a_call_whose_copy_came_in_time_takes_nothing_more_where_it_comes_late_itself() {
    let mut stage = Stage::set().await;
    let mut proxy = Proxy::to(stage.server.port()).await;
    let limiter = behind(&proxy).await;
    let before = stage.value().await.unwrap().parse::<i64>().unwrap();
    proxy.next("EVALSHA", Fate::Held);
    let (answer, ()) = tokio::join!(limiter.try_acquire(3), async {
        let mut held = proxy.held().await;
        let copy: Vec<&[u8]> = held.command.0.iter().map(Vec::as_slice).collect();
        stage.run_bytes(&copy).await;
        held.command.set_script_argument(1, b"1000");
        held.let_through().await;
    });
    assert!(answer.unwrap());
    assert_eq!(stage.value().await, Some((before - 3).to_string()));
}
