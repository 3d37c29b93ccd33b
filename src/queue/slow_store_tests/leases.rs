//! Permits that are leased from a slow store, and settled.

use super::*;
use crate::leases::{Ended, LeaseHold, settle};

/// Of 10 permits 8 are leased, and 3 of these were used.
async fn ended(back_in: Duration) -> (Arc<SlowStore>, Arc<LeasedQueue>, Ended) {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(10, HOUR)).await;
    let mut reserved = queue.reserve(8, 0, None).await.unwrap().unwrap();
    let lease = reserved.grant.clone();
    reserved.grant.permits = 0; // it gives nothing back itself
    let ended = Ended {
        lease,
        settlement: Settlement { used: 3, early: 0 },
        back_at: Instant::now() + back_in,
    };
    (store, queue, ended)
}

async fn ended_in_an_outage(back_in: Duration) -> Arc<SlowStore> {
    let (store, queue, ended) = ended(back_in).await;
    store.is_away.store(true, Ordering::Relaxed);
    settle(&queue.queue, ended, None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.available().await, 2);
    store.is_away.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    store
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_in_an_outage_is_settled_after_it() {
    assert_eq!(ended_in_an_outage(HOUR).await.available().await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_settled_once_its_permits_have_expired() {
    let back_in = Duration::from_secs(30);
    assert_eq!(ended_in_an_outage(back_in).await.available().await, 2);
}

/// Whether permits are leased within this many seconds in which requests come.
async fn is_leased_within(queue: &LeasedQueue, seconds: u32) -> bool {
    for _ in 0..seconds {
        assert!(queue.check(1, None).await.unwrap().is_granted());
        sleep(Duration::from_secs(1)).await;
        if queue.leased() > 0 {
            return true;
        }
    }
    false
}

#[tokio::test(start_paused = true)]
async fn nothing_is_leased_while_the_client_changes_the_limiter() {
    let store = SlowStore::with_response_timeout(Duration::from_secs(20));
    let queue = store.queue(Rate::overall(1_000_000, HOUR)).await;
    let _hold = queue.hold_lease(Duration::from_secs(60), 2).unwrap();
    assert!(is_leased_within(&queue, 5).await);
    let changing = queue.change_limiter();
    assert_eq!(queue.leased(), 0);
    assert!(!is_leased_within(&queue, 100).await);
    changing.done();
    assert!(is_leased_within(&queue, 5).await);
    // Without an answer, the call may still change the limiter until its deadline.
    for _ in 0..2 {
        drop(queue.change_limiter());
        assert!(!is_leased_within(&queue, 19).await);
        assert!(is_leased_within(&queue, 5).await);
    }
}

/// The lease comes by the connection of another runtime.
#[tokio::test(start_paused = true)]
async fn a_waiter_without_a_connection_gets_its_permits_as_a_lease_comes() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(1_000_000, HOUR)).await;
    let _hold = queue.hold_lease(Duration::from_secs(60), 2).unwrap();
    while !queue.is_leased() {
        assert!(queue.check(1, None).await.unwrap().is_granted());
    }
    let asked = Instant::now();
    let breaker = Breaker::new("a server".to_owned(), HOUR, Arc::default());
    breaker.disconnected(&Error::Indeterminate { source: None });
    store.breaker.set(breaker).unwrap();
    let place = queue.take_place();
    let waiting = queue.wait(place, 1, None, None, false, WhileAway::Stay);
    assert!(waiting.await.unwrap().is_some());
    assert_eq!(asked.elapsed(), 2 * TRAVEL);
}

const LEASE: Duration = Duration::from_secs(60);

/// A limiter of this many permits an hour after two requests, for which a lease was taken.
async fn leased(permits: u64) -> (Arc<SlowStore>, Arc<LeasedQueue>, LeaseHold) {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(permits, HOUR)).await;
    let hold = queue.hold_lease(LEASE, 2).unwrap();
    for _ in 0..2 {
        assert!(queue.check(1, None).await.unwrap().is_granted());
    }
    sleep(3 * TRAVEL).await;
    (store, queue, hold)
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_for_at_most_half_of_what_is_available() {
    for (permits, in_lease) in [(1_000, 10), (10, 4)] {
        let (store, queue, _hold) = leased(permits).await;
        assert_eq!(queue.leased(), in_lease);
        assert_eq!(store.available().await, permits as i64 - 2 - in_lease);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_uses_is_back_when_its_time_is_over() {
    let (store, _queue, _hold) = leased(1_000).await;
    sleep(LEASE - 3 * TRAVEL).await;
    assert_eq!(store.available().await, 1_000 - 12);
    // A smaller one follows it, and is the last one.
    sleep(2 * LEASE).await;
    assert_eq!(store.available().await, 1_000 - 2);
}

#[tokio::test(start_paused = true)]
async fn permits_that_are_owed_are_no_demand_for_leases() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(1_000, HOUR)).await;
    let _hold = queue.hold_lease(LEASE, 2).unwrap();
    assert!(queue.check(1, None).await.unwrap().is_granted());
    queue.owe(5, None).await.unwrap();
    sleep(3 * TRAVEL).await;
    assert!(!queue.is_leased());
    assert!(queue.check(1, None).await.unwrap().is_granted());
    sleep(3 * TRAVEL).await;
    assert_eq!(queue.leased(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_more_than_the_rate_ends_no_lease() {
    let (_store, queue, _hold) = leased(1_000).await;
    let refused = queue.check(1_001, None).await;
    assert!(matches!(refused, Err(Error::ExceedsLimit { .. })));
    assert_eq!(queue.leased(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_is_leased_until_an_attempt_to_settle_its_lease() {
    for (is_away, left) in [(false, 1_000 - 2), (true, 1_000 - 12)] {
        let (store, queue, _hold) = leased(1_000).await;
        store.is_away.store(is_away, Ordering::Relaxed);
        queue.end_leases();
        assert_eq!((queue.leased(), queue.is_leased()), (0, true));
        sleep(3 * TRAVEL).await;
        assert!(!queue.is_leased());
        assert_eq!(store.available().await, left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_asks_as_soon_as_permits_are_settled() {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(10, HOUR)).await;
    let reserved = queue.reserve(8, 0, None).await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move {
            let place = queue.take_place();
            let waiting = queue.wait(place, 5, None, None, false, WhileAway::Fail);
            waiting.await.unwrap().is_some()
        }
    });
    sleep(10 * TRAVEL).await;
    let dropped = Instant::now();
    drop(reserved);
    assert!(waiting.await.unwrap());
    assert_eq!(dropped.elapsed(), 4 * TRAVEL, "one call after another");
}

#[tokio::test(start_paused = true)]
async fn permits_that_cannot_be_settled_are_missing_until_they_expire() {
    for (has_bad_state, missing_for) in [(false, Duration::ZERO), (true, HOUR - TRAVEL)] {
        let (store, queue, ended) = ended(HOUR).await;
        store.has_bad_state.store(has_bad_state, Ordering::Relaxed);
        settle(&queue.queue, ended, None);
        sleep(3 * TRAVEL).await;
        assert_eq!(*store.missing_for.lock(), [missing_for]);
    }
}
