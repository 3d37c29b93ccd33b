//! Bounds on waiting: how many callers may wait, and which are refused because their permits come too late.

use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, RateLimiter, Result};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::stopped_time::{at_once, run_until_stalled};

/// The limiter with one permit in an hour, which is in use.
async fn used_up(fixture: &Fixture) -> RateLimiter {
    let limiter = fixture.limiter().await;
    let rate = Rate::overall(1, HOUR);
    assert!(limiter.try_set_rate(rate).await.unwrap());
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter
}

fn wait(limiter: &RateLimiter) -> JoinHandle<Result<()>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(1).await })
}

fn is_full(refused: &Result<bool>, expected: usize) -> bool {
    matches!(refused, Err(Error::QueueFull { waiters, .. }) if *waiters == expected)
}

pub async fn where_as_many_wait_as_may_the_next_one_is_refused_at_once(fixture: Fixture) {
    let limiter = used_up(&fixture).await.with_max_waiters(2);
    let _stopped = fixture.stop_time();
    let callers = [(); 5].map(|()| wait(&limiter));
    run_until_stalled(&limiter).await;
    let (waiting, refused): (Vec<_>, Vec<_>) = callers
        .into_iter()
        .partition(|caller| !caller.is_finished());
    assert_eq!((waiting.len(), refused.len()), (2, 3));
    assert_eq!(limiter.waiters(), 2);
    for caller in refused {
        assert!(is_full(&caller.await.unwrap().map(|()| true), 2));
    }
    let timed = at_once(limiter.try_acquire_timeout(1, SECOND)).await;
    assert!(is_full(&timed, 2));
    assert!(!limiter.try_acquire(1).await.unwrap()); // it does not wait
    for caller in waiting {
        caller.abort();
    }
}

pub async fn who_leaves_makes_room_at_once_and_who_was_refused_took_none(fixture: Fixture) {
    let limiter = used_up(&fixture).await.with_max_waiters(1);
    let _stopped = fixture.stop_time();
    let first = wait(&limiter);
    run_until_stalled(&limiter).await;
    assert!(is_full(
        &at_once(limiter.acquire(1)).await.map(|()| true),
        1
    ));
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(limiter.waiters(), 0);
    let second = wait(&limiter);
    run_until_stalled(&limiter).await;
    assert_eq!(limiter.waiters(), 1);
    second.abort();
}

pub async fn a_timed_wait_is_refused_at_once_where_its_permits_come_later(fixture: Fixture) {
    let limiter = used_up(&fixture).await.with_fail_fast(true);
    let _stopped = fixture.stop_time();
    let hopeless = limiter.try_acquire_timeout(1, HOUR - SECOND);
    assert!(!at_once(hopeless).await.unwrap());
    let waiter = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire_timeout(1, HOUR + SECOND).await }
    });
    run_until_stalled(&limiter).await;
    assert!(!waiter.is_finished());
    waiter.abort();
}

pub async fn those_who_stay_in_front_count_for_the_estimate_and_those_who_give_up_before_do_not(
    fixture: Fixture,
) {
    let limiter = used_up(&fixture).await.with_fail_fast(true);
    let _stopped = fixture.stop_time();
    let until = |timeout: Duration| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.try_acquire_timeout(1, timeout).await })
    };
    let first = until(HOUR + ms(500));
    run_until_stalled(&limiter).await;
    // The first waiter may give up before this one, which then gets the permit.
    let second = until(HOUR + SECOND);
    run_until_stalled(&limiter).await;
    assert!(!second.is_finished());
    let stays = wait(&limiter);
    run_until_stalled(&limiter).await;
    let refused = limiter.try_acquire_timeout(1, HOUR + 2 * SECOND);
    assert!(!at_once(refused).await.unwrap());
    let estimate = limiter.estimated_wait(1).unwrap();
    assert!(estimate > 3 * HOUR && estimate <= 4 * HOUR, "{estimate:?}");
    first.abort();
    second.abort();
    stays.abort();
}
