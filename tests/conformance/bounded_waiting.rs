//! Bounds on waiting: how many callers may wait, and which are refused because their permits come
//! too late.

use std::time::Duration;

use redisson_rate_limiter::{Error, LimiterOptions, Rate, RateLimiter, Result};
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

pub async fn once_as_many_wait_as_may_the_next_one_is_refused_at_once(fixture: Fixture) {
    let limiter = used_up(&fixture)
        .await
        .with_options(LimiterOptions::new().max_waiters(2));
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

pub async fn a_waiter_that_leaves_makes_room_at_once_and_a_refused_one_takes_none(
    fixture: Fixture,
) {
    let limiter = used_up(&fixture)
        .await
        .with_options(LimiterOptions::new().max_waiters(1));
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

pub async fn a_timed_wait_is_refused_at_once_if_its_permits_come_later(fixture: Fixture) {
    let limiter = used_up(&fixture)
        .await
        .with_options(LimiterOptions::new().fail_fast(true));
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

pub async fn an_estimate_counts_those_in_front_but_not_those_who_give_up_first(fixture: Fixture) {
    let limiter = used_up(&fixture)
        .await
        .with_options(LimiterOptions::new().fail_fast(true));
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

/// The used-up limiter, whose last answer refuses a wait of a second at once.
async fn refusing(fixture: &Fixture) -> RateLimiter {
    let limiter = used_up(fixture)
        .await
        .with_options(LimiterOptions::new().fail_fast(true));
    let refused = limiter.try_acquire_timeout(1, SECOND);
    assert!(!at_once(refused).await.unwrap());
    limiter
}

pub async fn more_permits_than_the_rate_are_an_error_whatever_the_last_answer(fixture: Fixture) {
    let _stopped = fixture.stop_time();
    let limiter = refusing(&fixture).await;
    assert_eq!(limiter.estimated_wait(2), None);
    let waiter = wait(&limiter);
    run_until_stalled(&limiter).await;
    let exceeding = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_acquire_timeout(2, HOUR).await }
    });
    run_until_stalled(&limiter).await;
    fixture.let_pass(SECOND).await; // until the queue asks
    let exceeds = exceeding.await.unwrap();
    assert!(
        matches!(exceeds, Err(Error::ExceedsLimit { requested: 2, .. })),
        "{exceeds:?}"
    );
    waiter.abort();
}

pub async fn a_timed_wait_with_a_rate_of_its_own_is_refused_by_the_stored_rate(fixture: Fixture) {
    let _stopped = fixture.stop_time();
    let limiter = refusing(&fixture).await;
    let raised = limiter.clone().with_rate(Rate::overall(2, HOUR)).unwrap();
    assert_eq!(raised.estimated_wait(1), limiter.estimated_wait(1));
    let refused = raised.try_acquire_timeout(1, SECOND);
    assert!(!at_once(refused).await.unwrap());
}

pub async fn a_rate_set_by_keyed_or_joint_requests_counts_for_the_next_timed_wait(
    fixture: Fixture,
) {
    let _stopped = fixture.stop_time();
    let client = fixture.client("client").await;
    let (prefix, key) = fixture.name().split_at(fixture.name().len() - 1);
    for is_joint in [false, true] {
        let limiter = client
            .rate_limiter(fixture.name())
            .with_options(LimiterOptions::new().fail_fast(true));
        limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
        let refused = limiter.try_acquire_timeout(1, SECOND);
        assert!(!at_once(refused).await.unwrap());
        let raised = Rate::overall(3, HOUR);
        let keyed = client.keyed_rate_limiter(prefix, raised).unwrap();
        if is_joint {
            let charges = [keyed.charge(key, 1).unwrap()];
            assert!(client.check_all(charges).await.unwrap().is_granted());
        } else {
            assert!(keyed.try_acquire(key, 1).await.unwrap());
        }
        let waited = limiter.try_acquire_timeout(1, SECOND);
        assert!(at_once(waited).await.unwrap(), "{is_joint}");
    }
}

pub async fn the_interval_of_a_rate_that_was_replaced_does_not_count(fixture: Fixture) {
    let _stopped = fixture.stop_time();
    let client = fixture.client("client").await;
    let (prefix, key) = fixture.name().split_at(fixture.name().len() - 1);
    let keyed = client.keyed_rate_limiter(prefix, Rate::overall(1, HOUR));
    let keyed = keyed.unwrap();
    assert!(keyed.try_acquire_timeout(key, 1, SECOND).await.unwrap());
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(1, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let waiter = wait(&limiter);
    run_until_stalled(&limiter).await;
    assert_eq!(limiter.estimated_wait(1), Some(2 * SECOND));
    waiter.abort();
}
