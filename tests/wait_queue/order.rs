//! First come, first served; a plain request does not wait and may overtake.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_rate_limiter::{Error, MemoryStore, Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::in_memory::{HOUR, SECOND, limiter, ms};

/// Who was served, and when.
#[derive(Clone)]
struct Log {
    start: Instant,
    served: Arc<Mutex<Vec<(&'static str, Duration)>>>,
}

impl Log {
    fn start() -> Self {
        Self {
            start: Instant::now(),
            served: Arc::default(),
        }
    }

    /// Makes `who` wait for permits from `at` on.
    fn wait(
        &self,
        tasks: &mut JoinSet<()>,
        limiter: &RateLimiter,
        who: &'static str,
        at: Duration,
        permits: u32,
    ) {
        let (log, limiter) = (self.clone(), limiter.clone());
        tasks.spawn(async move {
            sleep_until(log.start + at).await;
            limiter.acquire(permits).await.unwrap();
            log.served.lock().unwrap().push((who, log.start.elapsed()));
        });
    }

    fn served(&self) -> Vec<(&'static str, Duration)> {
        self.served.lock().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn one_permit_a_window_goes_to_waiters_in_the_order_of_their_arrival() {
    let limiter = limiter(1, ms(100)).await;
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    for (place, who) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        log.wait(&mut tasks, &limiter, who, ms(place as u64), 1);
    }
    tasks.join_all().await;
    // Each call is sent 3 ms after the permit has come back.
    let expected = [("a", 0), ("b", 103), ("c", 206), ("d", 309), ("e", 412)];
    assert_eq!(log.served(), expected.map(|(who, at)| (who, ms(at))));
}

#[tokio::test(start_paused = true)]
async fn waiters_of_the_same_instant_are_served_in_the_order_of_asking() {
    let limiter = limiter(2, ms(100)).await;
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    for who in ["a", "b", "c", "d", "e", "f"] {
        log.wait(&mut tasks, &limiter, who, ms(0), 1);
    }
    tasks.join_all().await;
    let expected = [
        ("a", 0),
        ("b", 0),
        ("c", 103),
        ("d", 103),
        ("e", 206),
        ("f", 206),
    ];
    assert_eq!(log.served(), expected.map(|(who, at)| (who, ms(at))));
}

#[tokio::test(start_paused = true)]
async fn a_large_request_at_the_head_is_not_starved_by_small_ones_behind_it() {
    let limiter = limiter(10, SECOND).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    sleep(ms(500)).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    log.wait(&mut tasks, &limiter, "large", ms(0), 10);
    for who in ["small 1", "small 2", "small 3"] {
        log.wait(&mut tasks, &limiter, who, ms(1), 1);
    }
    // At 500, 5 are available again: not enough for the head, and nobody is served before it.
    sleep(ms(998)).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 5);
    assert_eq!(log.served(), []);
    tasks.join_all().await;
    let served = log.served();
    // The call is sent 3 ms after the second 5 have come back, and so is the next one.
    let expected = [
        ("large", 1_003),
        ("small 1", 2_006),
        ("small 2", 2_006),
        ("small 3", 2_006),
    ];
    assert_eq!(served, expected.map(|(who, at)| (who, ms(at))));
}

#[tokio::test(start_paused = true)]
async fn a_small_request_behind_a_large_one_is_served_with_it_if_both_fit() {
    let limiter = limiter(10, SECOND).await;
    assert!(limiter.try_acquire(10).await.unwrap());
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    log.wait(&mut tasks, &limiter, "large", ms(1), 8);
    log.wait(&mut tasks, &limiter, "small", ms(2), 2);
    log.wait(&mut tasks, &limiter, "next", ms(3), 1);
    tasks.join_all().await;
    let expected = [("large", 1_003), ("small", 1_003), ("next", 2_006)];
    assert_eq!(log.served(), expected.map(|(who, at)| (who, ms(at))));
}

#[tokio::test(start_paused = true)]
async fn a_plain_request_may_overtake_those_who_wait() {
    let limiter = limiter(10, SECOND).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    sleep(ms(500)).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    log.wait(&mut tasks, &limiter, "large", ms(0), 10);
    sleep(ms(700)).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(!limiter.try_acquire(5).await.unwrap());
    assert!(limiter.try_acquire(4).await.unwrap());
    assert_eq!(log.served(), []);
    tasks.join_all().await;
    // It has to wait until the permits of the request that overtook it come back.
    assert_eq!(log.served(), [("large", ms(1_703))]);
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_rate_does_not_hold_up_those_behind_it() {
    let limiter = limiter(10, SECOND).await;
    assert!(limiter.try_acquire(10).await.unwrap());
    let large = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(8).await }
    });
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    log.wait(&mut tasks, &limiter, "small", ms(1), 2);
    sleep(ms(100)).await;
    // The rate is lowered below the request of the head.
    limiter.set_rate(Rate::overall(5, SECOND)).await.unwrap();
    tasks.join_all().await;
    let error = large.await.unwrap();
    assert!(
        matches!(
            error,
            Err(Error::ExceedsLimit {
                requested: 8,
                limit: 5,
                ..
            })
        ),
        "{error:?}"
    );
    assert_eq!(log.served().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn permits_that_this_process_gives_back_go_to_the_queue_at_once() {
    let limiter = limiter(1, HOUR).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    log.wait(&mut tasks, &limiter, "waiter", ms(0), 1);
    sleep(ms(10_300)).await;
    limiter.release(1).await.unwrap();
    tasks.join_all().await;
    assert_eq!(log.served(), [("waiter", ms(10_300))]);
}

#[tokio::test(start_paused = true)]
async fn permits_that_another_client_gives_back_are_noticed_at_once() {
    let store = MemoryStore::new();
    let client = || RedissonClient::builder().in_memory(&store);
    let limiter = client().rate_limiter("limiter");
    limiter.set_rate(Rate::overall(1, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let (log, mut tasks) = (Log::start(), JoinSet::new());
    log.wait(&mut tasks, &limiter, "waiter", ms(0), 1);
    sleep(ms(10_300)).await;
    let other = client().rate_limiter("limiter");
    other.release(1).await.unwrap();
    tasks.join_all().await;
    assert_eq!(log.served(), [("waiter", ms(10_300))]);
}
