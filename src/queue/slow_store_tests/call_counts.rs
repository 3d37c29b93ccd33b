//! A thousand waiters on 100 permits a second: how many calls they share.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const RATE: u32 = 100;

/// The permits of a fresh limiter are there at once, or come back one by one. The limiter may have
/// other clients or not.
async fn calls_of_a_thousand(one_by_one: bool, may_have_peers: bool) -> usize {
    let store = SlowStore::new();
    store
        .may_have_peers
        .store(may_have_peers, Ordering::Relaxed);
    let queue = store.queue(Rate::overall(RATE.into(), SECOND)).await;
    if one_by_one {
        for _ in 0..RATE {
            assert!(queue.check(1, None).await.unwrap().is_granted());
            sleep(SECOND / RATE - 2 * TRAVEL).await;
        }
    }
    store.calls.store(0, Ordering::Relaxed);
    let mut waiting = JoinSet::new();
    for _ in 0..1_000 {
        let queue = Arc::clone(&queue);
        waiting.spawn(async move {
            let place = queue.take_place();
            queue
                .wait(place, 1, None, None, false, WhileAway::Fail)
                .await
        });
    }
    for waited in waiting.join_all().await {
        assert!(waited.unwrap().is_some());
    }
    store.calls.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_waiters_share_a_call_for_what_comes_back_together() {
    // The first waiter asks alone. So its permit comes back alone, in each of the ten intervals.
    assert_eq!(calls_of_a_thousand(false, false).await, 2 * 10);
    // Probes split what comes back together.
    let calls = calls_of_a_thousand(false, true).await;
    assert!(calls <= 40, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn permits_that_come_back_one_by_one_take_one_call_each() {
    // The first waiter has asked before that.
    assert_eq!(calls_of_a_thousand(true, false).await, 1 + 1_000);
    // What probes leave for a while is granted together.
    let calls = calls_of_a_thousand(true, true).await;
    assert!(calls <= 1_000, "{calls}");
}
