//! A future that is polled once and then left alone does not hold up others.

use redisson_rate_limiter::Rate;
use tokio::time::{Instant, advance};

use crate::by_hand::poll_once;
use crate::clients::patient;
use crate::in_memory::{HOUR, SECOND, let_others_work, limiter, ms, wait};
use crate::support::Server;

#[tokio::test(start_paused = true)]
async fn a_waiter_keeps_its_turn_and_the_next_is_served_all_the_same() {
    let limiter = limiter(1, ms(100)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let mut left_alone = wait(&limiter, 1);
    assert!(poll_once(&mut left_alone).is_none());
    let start = Instant::now();
    limiter.acquire(1).await.unwrap();
    assert_eq!(start.elapsed(), ms(206));
    assert!(
        poll_once(&mut left_alone)
            .expect("it was granted meanwhile")
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn plain_requests_are_answered_while_a_waiter_sleeps() {
    let limiter = limiter(2, SECOND).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let mut left_alone = wait(&limiter, 2);
    assert!(poll_once(&mut left_alone).is_none());
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
    let_others_work().await;
    advance(ms(1_000)).await;
    assert!(limiter.try_acquire(1).await.is_ok());
}

#[tokio::test]
async fn a_waiter_whose_call_is_under_way_does_not_hold_up_the_calls_of_others() {
    let server = Server::start();
    let client = patient(&server.url()).await;
    let limiter = client.rate_limiter("limiter");
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let mut left_alone = Box::pin(limiter.try_acquire(1));
    assert!(poll_once(&mut left_alone).is_none());
    for _ in 0..3 {
        assert!(limiter.try_acquire(1).await.unwrap());
        limiter.acquire(1).await.unwrap();
    }
    assert!(left_alone.await.unwrap());
    assert_eq!(limiter.available_permits().await.unwrap(), 3);
}
