//! Waiters are served in order, each as soon as its permits are available, whichever waiter before
//! it has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redisson_rate_limiter::{Rate, RateLimiter, Result};
use tokio::task::{JoinHandle, JoinSet};

use crate::by_hand::poll_once;
use crate::fixture::{Fixture, HOUR, SECOND, ms};
use crate::stopped_time::{at_once, run_until_stalled, until};

/// The longest time for which permits are left to other processes, with its jitter. It is much
/// shorter than the time after which a queue asks again whatever it knows.
const HOLD: Duration = ms(150);

/// The limiter with this rate, of which this many permits are in use.
async fn used(fixture: &Fixture, rate: Rate, permits: u32) -> RateLimiter {
    let limiter = fixture.limiter().await;
    assert!(limiter.try_set_rate(rate).await.unwrap());
    assert!(limiter.try_acquire(permits).await.unwrap());
    limiter
}

/// Spawns a task that waits for permits.
fn wait(limiter: &RateLimiter, permits: u32) -> JoinHandle<Result<()>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.acquire(permits).await })
}

/// Spawns a task that waits for permits for this long at most.
fn wait_for(limiter: &RateLimiter, permits: u32, timeout: Duration) -> JoinHandle<Result<bool>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.try_acquire_timeout(permits, timeout).await })
}

async fn until_left(limiter: &RateLimiter, permits: u64) {
    until("so many permits are left", async || {
        limiter.available_permits().await.unwrap() == permits
    })
    .await;
}

pub async fn after_a_waiter_gave_up_the_next_call_is_decided_at_once(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(5, HOUR), 2).await;
    let _stopped = fixture.stop_time();
    let large = wait_for(&limiter, 5, ms(100));
    run_until_stalled(&limiter).await;
    fixture.let_pass(ms(100)).await;
    assert!(!at_once(large).await.unwrap().unwrap());
    let small = limiter.try_acquire_timeout(1, ms(500));
    assert!(at_once(small).await.unwrap());
}

pub async fn a_waiter_that_fits_is_served_when_the_one_before_it_gives_up(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(5, HOUR), 2).await;
    let _stopped = fixture.stop_time();
    let large = wait_for(&limiter, 5, ms(50));
    run_until_stalled(&limiter).await;
    let small = wait_for(&limiter, 1, ms(600));
    run_until_stalled(&limiter).await;
    assert!(!small.is_finished());
    fixture.let_pass(ms(50)).await;
    assert!(!at_once(large).await.unwrap().unwrap());
    assert!(at_once(small).await.unwrap().unwrap());
}

pub async fn a_waiter_that_fits_is_served_when_all_before_it_leave_in_any_order(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(5, HOUR), 2).await;
    let _stopped = fixture.stop_time();
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let mut large = Vec::new();
        for _ in 0..3 {
            large.push(wait(&limiter, 4));
            run_until_stalled(&limiter).await;
        }
        let small = wait(&limiter, 2);
        run_until_stalled(&limiter).await;
        for place in order {
            assert!(!small.is_finished());
            large[place].abort();
            run_until_stalled(&limiter).await;
        }
        at_once(small).await.unwrap().unwrap();
        limiter.release(2).await.unwrap();
    }
}

pub async fn the_next_one_is_asked_for_after_a_grant_was_handed_on_to_the_head(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(5, SECOND), 5).await;
    let _stopped = fixture.stop_time();
    let mut parked = Box::pin(limiter.acquire(3));
    assert!(poll_once(&mut parked).is_none());
    run_until_stalled(&limiter).await;
    let _ = poll_once(&mut parked); // it is in the queue, also on a server
    let head = wait(&limiter, 3);
    run_until_stalled(&limiter).await;
    let behind = wait(&limiter, 1);
    run_until_stalled(&limiter).await;
    // Two permits are left besides the three that were granted to the first: too few for the head.
    fixture.let_pass(ms(1_003)).await;
    until_left(&limiter, 2).await;
    run_until_stalled(&limiter).await;
    assert!(!head.is_finished());
    drop(parked);
    at_once(head).await.unwrap().unwrap();
    if !fixture.is_in_memory() {
        run_until_stalled(&limiter).await;
        fixture.let_pass(HOLD).await; // until then permits are left to other processes
    }
    at_once(behind).await.unwrap().unwrap();
}

pub async fn a_waiter_not_polled_for_long_neither_waits_longer_nor_holds_up_others(
    fixture: Fixture,
) {
    let limiter = used(&fixture, Rate::overall(5, SECOND), 5).await;
    let _stopped = fixture.stop_time();
    let mut late = Box::pin(limiter.acquire(1));
    assert!(poll_once(&mut late).is_none());
    run_until_stalled(&limiter).await; // its answer is there, and it has not read it
    fixture.let_pass(ms(1_003)).await;
    let (late, other) = at_once(async { tokio::join!(late, limiter.acquire(1)) }).await;
    late.unwrap();
    other.unwrap();
}

pub async fn permits_released_during_a_waiters_first_call_are_not_forgotten(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(5, HOUR), 5).await;
    let _stopped = fixture.stop_time();
    for turns in 0..20 {
        // Its first call, the release, and a plain request that is denied: at the same time, in any
        // order.
        let mut waiter = Box::pin(limiter.acquire(1));
        if poll_once(&mut waiter).is_none() {
            let yield_then = async |turns: usize| {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            };
            let released = async {
                yield_then(turns % 5).await;
                limiter.release(2).await
            };
            let plain = async {
                yield_then(turns % 3).await;
                limiter.try_acquire(5).await
            };
            let (released, plain) = tokio::join!(released, plain);
            released.unwrap();
            assert!(!plain.unwrap());
            at_once(waiter).await.unwrap();
            assert!(limiter.try_acquire(1).await.unwrap());
        }
        assert_eq!(limiter.available_permits().await.unwrap(), 0);
    }
}

pub async fn grants_that_dropped_waiters_never_received_let_nobody_exceed_the_rate(
    fixture: Fixture,
) {
    let limiter = used(&fixture, Rate::overall(2, SECOND), 2).await;
    let _stopped = fixture.stop_time();
    let mut parked = Vec::new();
    for _ in 0..10 {
        let mut waiter = Box::pin(limiter.acquire(2));
        assert!(poll_once(&mut waiter).is_none());
        run_until_stalled(&limiter).await;
        let _ = poll_once(&mut waiter); // it is in the queue, also on a server
        parked.push(waiter);
    }
    for _ in &parked {
        run_until_stalled(&limiter).await;
        fixture.let_pass(ms(1_003)).await;
        run_until_stalled(&limiter).await;
        fixture.let_pass(HOLD).await;
        until_left(&limiter, 0).await;
    }
    run_until_stalled(&limiter).await;
    fixture.let_pass(SECOND).await;
    let served = Arc::new(AtomicUsize::new(0));
    let mut waiters = JoinSet::new();
    for _ in 0..20 {
        let (limiter, served) = (limiter.clone(), Arc::clone(&served));
        waiters.spawn(async move {
            limiter.acquire(1).await.unwrap();
            served.fetch_add(1, Ordering::SeqCst);
        });
    }
    run_until_stalled(&limiter).await;
    drop(parked);
    for _ in 0..6 {
        run_until_stalled(&limiter).await;
        fixture.let_pass(HOLD).await;
    }
    until("two are served", async || {
        served.load(Ordering::SeqCst) >= 2
    })
    .await;
    run_until_stalled(&limiter).await;
    assert_eq!(served.load(Ordering::SeqCst), 2);
}

pub async fn a_queue_with_a_backlog_leaves_permits_to_another_client(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(10, SECOND), 10).await;
    let other = fixture.limiter_of("other").await;
    let _stopped = fixture.stop_time();
    // In memory, a queue notices another client by its waiters.
    let others_waiter = wait(&other, 10);
    run_until_stalled(&other).await;
    let mut waiters = JoinSet::new();
    for _ in 0..30 {
        let limiter = limiter.clone();
        waiters.spawn(async move { limiter.acquire(1).await });
    }
    run_until_stalled(&limiter).await;
    fixture.let_pass(ms(1_003)).await;
    until("some are served", async || {
        limiter.available_permits().await.unwrap() < 10
    })
    .await;
    run_until_stalled(&limiter).await;
    run_until_stalled(&other).await;
    assert!(other.try_acquire(1).await.unwrap());
    others_waiter.abort();
}

pub async fn a_timeout_ends_with_false_when_it_has_passed_and_not_before(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(1, HOUR), 1).await;
    let _stopped = fixture.stop_time();
    for millis in [1, 99, 300, 1_000, 2_500] {
        let waiter = wait_for(&limiter, 1, ms(millis));
        run_until_stalled(&limiter).await;
        tokio::time::advance(ms(millis - 1)).await;
        run_until_stalled(&limiter).await;
        assert!(!waiter.is_finished(), "{millis}");
        fixture.let_pass(ms(1)).await;
        assert!(!at_once(waiter).await.unwrap().unwrap());
    }
    let none = limiter.try_acquire_timeout(1, Duration::ZERO);
    assert!(!at_once(none).await.unwrap());
}

pub async fn a_timeout_beyond_the_range_of_the_clock_never_ends(fixture: Fixture) {
    let limiter = used(&fixture, Rate::overall(5, SECOND), 4).await;
    let _stopped = fixture.stop_time();
    let free = limiter.try_acquire_timeout(1, Duration::MAX);
    assert!(at_once(free).await.unwrap());
    let waiter = wait_for(&limiter, 1, Duration::MAX);
    run_until_stalled(&limiter).await;
    fixture.let_pass(ms(1_003)).await;
    assert!(at_once(waiter).await.unwrap().unwrap());
}

pub async fn the_longest_response_timeout_is_accepted(fixture: Fixture) {
    let builder = redisson_rate_limiter::RedissonClient::builder();
    let client = fixture.build(builder.response_timeout(Duration::MAX)).await;
    let limiter = client.rate_limiter(fixture.name());
    limiter.set_rate(Rate::overall(2, HOUR)).await.unwrap();
    limiter.acquire(1).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}
