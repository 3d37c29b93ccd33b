//! A timed request returns false exactly when its timeout has passed.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::in_memory::{HOUR, SECOND, limiter, ms};

#[tokio::test(start_paused = true)]
async fn false_comes_when_the_timeout_has_passed_and_not_before() {
    let limiter = limiter(1, HOUR).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    for millis in [1, 2, 99, 300, 1_000, 1_001, 2_500, 60_000] {
        let start = Instant::now();
        assert!(!limiter.try_acquire_timeout(1, ms(millis)).await.unwrap());
        assert_eq!(start.elapsed(), ms(millis));
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_many_waiters_has_its_own_timeout() {
    let limiter = limiter(1, HOUR).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let mut tasks = JoinSet::new();
    for place in 1..=50_u64 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let start = Instant::now();
            let timeout = ms(place * 37 % 1_777);
            assert!(!limiter.try_acquire_timeout(1, timeout).await.unwrap());
            assert_eq!(start.elapsed(), timeout);
        });
    }
    tasks.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_in_time_and_one_that_gave_up_before_took_nothing() {
    let limiter = limiter(2, SECOND).await;
    assert!(limiter.try_acquire(2).await.unwrap());
    let start = Instant::now();
    let (early, late) = tokio::join!(
        limiter.try_acquire_timeout(2, ms(500)),
        limiter.try_acquire_timeout(1, ms(2_000)),
    );
    assert!(!early.unwrap());
    assert!(late.unwrap());
    assert_eq!(start.elapsed(), ms(1_003));
    assert_eq!(limiter.available_permits().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_is_one_try() {
    let limiter = limiter(1, SECOND).await;
    let start = Instant::now();
    assert!(
        limiter
            .try_acquire_timeout(1, Duration::ZERO)
            .await
            .unwrap()
    );
    assert!(
        !limiter
            .try_acquire_timeout(1, Duration::ZERO)
            .await
            .unwrap()
    );
    assert_eq!(start.elapsed(), ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_beyond_the_range_of_the_clock_never_ends() {
    let limiter = limiter(1, SECOND).await;
    assert!(limiter.try_acquire_timeout(1, Duration::MAX).await.unwrap());
    let start = Instant::now();
    assert!(limiter.try_acquire_timeout(1, Duration::MAX).await.unwrap());
    assert_eq!(start.elapsed(), ms(1_003));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_timeout_ends_leaves_the_queue_to_the_others() {
    let limiter = limiter(1, SECOND).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let patient = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            sleep(ms(1)).await;
            limiter.acquire(1).await.unwrap();
            Instant::now()
        }
    });
    let start = Instant::now();
    assert!(!limiter.try_acquire_timeout(1, ms(999)).await.unwrap());
    let served = patient.await.unwrap() - start;
    assert_eq!(served, ms(1_003));
}
