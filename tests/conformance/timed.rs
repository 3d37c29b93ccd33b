//! Waiting in memory, where paused time makes it exact.

use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient, TimeToLive};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::fixture::{HOUR, SECOND, ms};

fn limiter() -> RateLimiter {
    RedissonClient::in_memory().rate_limiter("limiter")
}

async fn with(rate: Rate) -> RateLimiter {
    let limiter = limiter();
    assert!(limiter.try_set_rate(rate).await.unwrap());
    limiter
}

async fn life(limiter: &RateLimiter) -> TimeToLive {
    limiter.remain_time_to_live().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_limiter_with_a_keep_alive_of_a_second_is_gone_after_it() {
    let limiter = with(Rate::overall(10, ms(500)).keep_alive(SECOND)).await;
    limiter.acquire(1).await.unwrap();
    sleep(SECOND).await;
    assert!(limiter.exists().await.unwrap());
    sleep(ms(1)).await;
    assert!(!limiter.exists().await.unwrap());
    sleep(ms(99)).await;
    assert_eq!(life(&limiter).await, TimeToLive::Missing);
    assert!(!limiter.delete().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn grants_denials_and_releases_but_no_reads_renew_a_keep_alive() {
    let limiter = with(Rate::overall(2, SECOND).keep_alive(ms(3_000))).await;
    sleep(ms(2_000)).await;
    assert_eq!(life(&limiter).await, TimeToLive::Remaining(ms(1_000)));
    assert!(limiter.try_acquire(2).await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Remaining(ms(3_000)));
    sleep(ms(900)).await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Remaining(ms(3_000)));
    sleep(ms(2_000)).await;
    limiter.release(1).await.unwrap();
    assert_eq!(life(&limiter).await, TimeToLive::Remaining(ms(3_000)));
    sleep(ms(2_000)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 2);
    assert!(limiter.config().await.unwrap().is_some());
    assert!(limiter.exists().await.unwrap());
    assert_eq!(life(&limiter).await, TimeToLive::Remaining(ms(1_000)));
    sleep(ms(1_001)).await;
    assert!(!limiter.exists().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn grants_from_before_and_after_expire_are_gone_when_the_limiter_expires() {
    for acquired_before in [true, false] {
        let limiter = with(Rate::overall(10, HOUR)).await;
        if acquired_before {
            assert!(limiter.try_acquire(4).await.unwrap());
        }
        assert!(limiter.expire(SECOND).await.unwrap());
        if !acquired_before {
            assert!(limiter.try_acquire(4).await.unwrap());
        }
        sleep(ms(1_001)).await;
        assert!(!limiter.exists().await.unwrap());
        assert!(!limiter.delete().await.unwrap());
        assert!(limiter.try_set_rate(Rate::overall(10, HOUR)).await.unwrap());
        assert_eq!(limiter.available_permits().await.unwrap(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_waiters_never_use_more_than_ten_thousand_in_ten_seconds() {
    let limiter = with(Rate::overall(10_000, ms(10_000))).await;
    let start = Instant::now();
    let mut waiters = JoinSet::new();
    for _ in 0..200 {
        let limiter = limiter.clone();
        waiters.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..150 {
                limiter.acquire(1).await.unwrap();
                times.push(start.elapsed());
            }
            times
        });
    }
    let mut times: Vec<Duration> = waiters.join_all().await.into_iter().flatten().collect();
    times.sort();
    assert_eq!(times.len(), 30_000);
    // As many as the rate at once, the next 3 ms after these have come back, and so on.
    for (place, time) in times.iter().enumerate() {
        assert_eq!(*time, ms(10_003) * (place as u32 / 10_000), "grant {place}");
    }
    assert_eq!(limiter.available_permits().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_second_at_one_in_five_seconds_is_false_after_a_second() {
    let limiter = with(Rate::overall(1, ms(5_000))).await;
    assert!(limiter.try_acquire_timeout(1, SECOND).await.unwrap());
    for _ in 0..3 {
        let start = Instant::now();
        assert!(!limiter.try_acquire_timeout(1, SECOND).await.unwrap());
        assert_eq!(start.elapsed(), SECOND);
    }
    let start = Instant::now();
    assert!(limiter.try_acquire_timeout(1, ms(2_500)).await.unwrap());
    assert_eq!(start.elapsed(), ms(2_003));
}

#[tokio::test(start_paused = true)]
async fn ten_acquires_at_one_in_five_seconds_take_45_seconds() {
    let limiter = with(Rate::overall(1, ms(5_000))).await;
    let start = Instant::now();
    for _ in 0..10 {
        limiter.acquire(1).await.unwrap();
    }
    assert_eq!(start.elapsed(), ms(9 * 5_003));
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_waits_in_eight_tasks_no_second_holds_more_than_eighteen() {
    let limiter = with(Rate::overall(18, SECOND)).await;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..125 {
                limiter.acquire(1).await.unwrap();
                times.push(start.elapsed());
            }
            times
        });
    }
    let mut times: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
    times.sort();
    for (first, nineteenth) in times.iter().zip(&times[18..]) {
        assert!(
            *nineteenth - *first >= SECOND,
            "{first:?} to {nineteenth:?}"
        );
    }
}
