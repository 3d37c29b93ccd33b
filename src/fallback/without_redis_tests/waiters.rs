//! Requests that wait, or are in flight, when Redis goes down.

use super::*;

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order_by_the_local_limiter_and_then_by_redis_again() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 2).await;
    assert_eq!(granted_now(&limiter).await, 2);
    let mut waiting = JoinSet::new();
    for number in 0..6 {
        let limiter = limiter.clone();
        waiting.spawn(async move { limiter.acquire(1).await.map(|()| number) });
        sleep(Duration::from_millis(1)).await;
    }
    advance(20 * SECOND).await; // two each window: the first four, but for the times of asking
    let mut served = Vec::new();
    for _ in 0..2 {
        served.push(waiting.join_next().await.unwrap().unwrap().unwrap());
    }
    remote.go_down();
    for _ in 0..2 {
        served.push(waiting.join_next().await.unwrap().unwrap().unwrap());
    }
    remote.come_back();
    while let Some(next) = waiting.join_next().await {
        served.push(next.unwrap().unwrap());
    }
    // The first one to ask after Redis is back may overtake.
    served[4..].sort_unstable();
    assert_eq!(served, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn denied_waiters_wait_for_redis_or_their_timeout() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Deny);
    let limiter = with_rate(&client, 10).await;
    remote.go_down();
    let start = Instant::now();
    assert!(!limiter.try_acquire_timeout(1, SECOND).await.unwrap());
    assert_eq!(start.elapsed(), SECOND);
    let waiting = tokio::spawn(async move { limiter.acquire(1).await });
    sleep(100 * SECOND).await;
    assert!(!waiting.is_finished());
    remote.come_back();
    timeout(SECOND, waiting).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_and_in_the_queue_are_decided_by_the_policy_when_the_breaker_opens() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 1_000).await;
        remote.is_away.store(true, Ordering::Relaxed);
        let mut callers = JoinSet::new();
        for number in 0..100 {
            let limiter = limiter.clone();
            callers.spawn(async move {
                match number % 2 {
                    0 => limiter.try_acquire(1).await.unwrap(),
                    _ => limiter.try_acquire_timeout(1, 100 * SECOND).await.unwrap(),
                }
            });
        }
        let start = Instant::now();
        sleep(Duration::from_millis(10)).await;
        remote.go_down();
        while let Some(granted) = callers.join_next().await {
            assert!(granted.unwrap());
        }
        assert_eq!(start.elapsed(), Duration::from_millis(10));
    }
}
