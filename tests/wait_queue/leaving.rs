//! A waiter that has left holds up nobody: the time to ask belongs to the next one.

use redisson_rate_limiter::{RRateLimiter, RateLimiter};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::by_hand::poll_once;
use crate::in_memory::{HOUR, SECOND, let_others_work, limiter, ms, wait};

#[tokio::test(start_paused = true)]
async fn after_a_waiter_gave_up_the_next_call_is_decided_at_once() {
    let limiter = limiter(5, HOUR).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    assert!(!limiter.try_acquire_timeout(5, ms(100)).await.unwrap());
    let start = Instant::now();
    assert!(limiter.try_acquire_timeout(1, ms(500)).await.unwrap());
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_permits_are_there_is_served_when_the_one_before_it_gives_up() {
    let limiter = limiter(5, HOUR).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let start = Instant::now();
    let behind = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            sleep(ms(1)).await;
            assert!(limiter.try_acquire_timeout(1, ms(600)).await.unwrap());
            Instant::now()
        }
    });
    assert!(!limiter.try_acquire_timeout(5, ms(50)).await.unwrap());
    assert_eq!(behind.await.unwrap() - start, ms(50));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_permits_are_there_is_served_when_all_before_it_leave_in_any_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let limiter = limiter(5, HOUR).await;
        assert!(limiter.try_acquire(3).await.unwrap());
        let mut large: Vec<_> = (0..3).map(|_| Some(wait(&limiter, 4))).collect();
        for waiter in large.iter_mut().flatten() {
            assert!(poll_once(waiter).is_none());
        }
        let mut small = wait(&limiter, 2);
        assert!(poll_once(&mut small).is_none());
        let_others_work().await;
        for place in order {
            assert!(poll_once(&mut small).is_none());
            large[place] = None;
            let_others_work().await;
        }
        let served = poll_once(&mut small).expect("its permits are there");
        served.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn behind_one_that_is_served_by_a_grant_handed_on_the_next_is_served_at_once() {
    let limiter = limiter(4, SECOND).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    let mut parked = wait(&limiter, 3);
    let mut head = wait(&limiter, 2);
    let mut behind = wait(&limiter, 1);
    let mut last = wait(&limiter, 1);
    for waiter in [&mut parked, &mut head, &mut behind, &mut last] {
        assert!(poll_once(waiter).is_none());
    }
    let_others_work().await;
    advance(ms(1_003)).await;
    let_others_work().await;
    // One permit is left beside the three that were granted to the first: too few for the head.
    assert!(poll_once(&mut head).is_none());
    drop(parked);
    let_others_work().await;
    for waiter in [&mut head, &mut behind, &mut last] {
        poll_once(waiter).expect("its permits are there").unwrap();
    }
}

/// Fills the second, has so many waiters be granted without looking, and drops them.
async fn dropped_unreceived(limiter: &RateLimiter, count: usize) {
    let mut parked: Vec<_> = (0..count).map(|_| wait(limiter, 1)).collect();
    for waiter in &mut parked {
        assert!(poll_once(waiter).is_none());
    }
    for _ in 0..count {
        let_others_work().await;
        advance(ms(1_003)).await;
    }
    let_others_work().await;
}

#[tokio::test(start_paused = true)]
async fn grants_that_dropped_waiters_never_received_let_nobody_exceed_the_rate() {
    let limiter = limiter(1, SECOND).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    dropped_unreceived(&limiter, 30).await;
    sleep(SECOND).await;
    let mut granted = 0;
    let end = Instant::now() + ms(999);
    while let Ok(Ok(())) = timeout(end - Instant::now(), limiter.acquire(1)).await {
        granted += 1;
    }
    assert_eq!(granted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_waiters_that_leave_hold_up_nobody() {
    let limiter = limiter(2, HOUR).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let mut waiters: Vec<_> = (0..100_000).map(|_| Some(wait(&limiter, 2))).collect();
    for waiter in waiters.iter_mut().flatten() {
        assert!(poll_once(waiter).is_none());
    }
    let mut last = wait(&limiter, 1);
    assert!(poll_once(&mut last).is_none());
    let_others_work().await;
    // From the back, so that none of them is at the head.
    for waiter in waiters.iter_mut().rev() {
        assert!(poll_once(&mut last).is_none());
        *waiter = None;
    }
    let_others_work().await;
    poll_once(&mut last).expect("its permit is there").unwrap();
}
