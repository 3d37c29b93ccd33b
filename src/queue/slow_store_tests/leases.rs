//! Permits that are leased of a slow store, and settled.

use super::*;
use crate::leases::{Ended, settle};

/// Of 10 permits 8 are leased, and 3 of these were used when the store goes away.
async fn ended_in_an_outage(back_in: Duration) -> Arc<SlowStore> {
    let store = SlowStore::new();
    let queue = store.queue(Rate::overall(10, HOUR)).await;
    let mut reserved = queue.reserve(8, 0, None).await.unwrap().unwrap();
    let lease = reserved.grant.clone();
    reserved.grant.permits = 0; // it gives nothing back itself
    store.is_away.store(true, Ordering::Relaxed);
    let ended = Ended {
        lease,
        settlement: Settlement { used: 3, early: 0 },
        back_at: Instant::now() + back_in,
    };
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
async fn a_lease_is_not_settled_when_its_permits_are_back_in_any_case() {
    let back_in = Duration::from_secs(30);
    assert_eq!(ended_in_an_outage(back_in).await.available().await, 2);
}

/// Whether permits are leased within so many seconds in which requests come.
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
    let changing = queue.stop_leases().unwrap();
    assert_eq!(queue.leased(), 0);
    assert!(!is_leased_within(&queue, 100).await);
    changing.over();
    assert!(is_leased_within(&queue, 5).await);
    // Without an answer, the call may still change the limiter until its deadline.
    for _ in 0..2 {
        drop(queue.stop_leases());
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
