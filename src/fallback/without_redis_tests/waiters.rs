//! Requests that wait, or are in flight, when Redis goes down.

use super::*;
use crate::grant::Origin;

#[tokio::test(start_paused = true)]
async fn the_local_limiter_and_then_redis_serve_waiters_in_order() {
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
    assert_eq!(served, [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn under_wait_and_deny_waiters_wait_for_redis_or_their_timeout() {
    for policy in [FailurePolicy::Wait, FailurePolicy::Deny] {
        let remote = Remote::new();
        let client = remote.client(policy.clone());
        let limiter = with_rate(&client, 10).await;
        remote.go_down();
        let start = Instant::now();
        assert!(!limiter.try_acquire_timeout(1, SECOND).await.unwrap());
        assert_eq!(start.elapsed(), SECOND);
        let waiting = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.acquire(1).await }
        });
        sleep(100 * SECOND).await;
        assert!(!waiting.is_finished());
        let plain = limiter.check(1).await;
        assert_eq!(plain.is_err(), policy == FailurePolicy::Wait);
        remote.come_back();
        timeout(SECOND, waiting).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn under_wait_a_plain_request_waits_for_redis_until_its_response_timeout() {
    let remote = Remote::new();
    let limiter = with_rate(&remote.client(FailurePolicy::Wait), 10).await;
    remote.go_down();
    let start = Instant::now();
    limiter.check(1).await.unwrap_err();
    assert_eq!(start.elapsed(), RESPONSE_TIMEOUT);
    limiter.check(1).await.unwrap_err(); // it has been down for so long
    assert_eq!(start.elapsed(), RESPONSE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn the_policy_decides_requests_in_flight_and_queued_as_the_breaker_opens() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 1_000).await;
        remote.set_loss(Loss::OfCalls);
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

/// Twelve waiters, some before an outage, some within it, and some after it, in the order in which
/// they are served.
async fn order_through_an_outage(policy: FailurePolicy) -> Vec<u32> {
    let remote = Remote::new();
    let client = remote.client(policy);
    let limiter = with_rate(&client, 2).await;
    assert_eq!(granted_now(&limiter).await, 2);
    let mut waiting = JoinSet::new();
    let mut join = async |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire(1).await.map(|()| number) });
            sleep(Duration::from_millis(1)).await;
        }
    };
    join(0..5).await;
    remote.go_down();
    sleep(Duration::from_millis(700)).await;
    join(5..8).await;
    sleep(11 * SECOND).await; // what was in use in Redis is back
    remote.come_back();
    join(8..12).await;
    let mut served = Vec::new();
    while let Some(number) = waiting.join_next().await {
        served.push(number.unwrap().unwrap());
    }
    served
}

#[tokio::test(start_paused = true)]
async fn waiters_keep_their_order_through_an_outage() {
    for policy in [
        FailurePolicy::Wait,
        FailurePolicy::Deny,
        one_of(1),
        one_of(2),
    ] {
        for _ in 0..12 {
            let served = order_through_an_outage(policy.clone()).await;
            assert_eq!(served, Vec::from_iter(0..12), "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_serves_a_waiter_after_an_unanswered_response_timeout() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 10).await;
        remote.set_loss(Loss::OfCalls);
        let start = Instant::now();
        limiter.acquire(1).await.unwrap();
        assert_eq!(start.elapsed(), RESPONSE_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_probe_holds_up_waiters_for_half_a_second() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 10).await;
        remote.go_down();
        remote.come_back_silent();
        let start = Instant::now();
        let (first, second) = tokio::join!(limiter.acquire(1), limiter.acquire(1));
        first.unwrap();
        second.unwrap();
        assert_eq!(start.elapsed(), Duration::from_millis(500));
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_more_than_the_share_does_not_hold_up_those_behind_it() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 4).await;
    remote.go_down();
    let large = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(3).await }
    });
    sleep(Duration::from_millis(1)).await;
    limiter.acquire(2).await.unwrap();
    assert!(!large.is_finished());
    remote.come_back();
    large.await.unwrap().unwrap();
}

/// What Redis granted to requests that it did not answer in time: a waiter and a plain one.
async fn taken_without_an_answer(policy: FailurePolicy) -> u64 {
    let remote = Remote::new();
    let client = remote.client(policy);
    let limiter = with_rate(&client, 10).await;
    remote.set_loss(Loss::OfAnswers);
    let mut requests = JoinSet::new();
    let waiting = limiter.clone();
    requests.spawn(async move { waiting.acquire(1).await });
    let plain = limiter.clone();
    requests.spawn(async move { plain.try_acquire(2).await.map(drop) });
    sleep(Duration::from_millis(10)).await;
    remote.set_loss(Loss::None);
    while let Some(ended) = requests.join_next().await {
        ended.unwrap().unwrap();
    }
    sleep(Duration::from_millis(10)).await;
    10 - limiter.available_permits().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn permits_taken_without_an_answer_go_back_before_another_decision() {
    // The waiter is granted by its second call.
    assert_eq!(taken_without_an_answer(FailurePolicy::Deny).await, 1);
    for policy in [FailurePolicy::Allow, one_of(1)] {
        assert_eq!(
            taken_without_an_answer(policy.clone()).await,
            0,
            "{policy:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_with_a_substitute_wait_half_a_second_at_most_for_a_call() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(FailurePolicy::Error);
        let failing = with_rate(&client, 2).await;
        assert_eq!(granted_now(&failing).await, 2);
        let fails = failing.clone();
        let fails = tokio::spawn(async move { fails.acquire(1).await });
        sleep(SECOND / 2).await;
        remote.go_down();
        sleep(SECOND / 2).await; // it asks again after 850 ms
        assert!(!fails.is_finished());
        let start = Instant::now();
        let limiter = failing
            .clone()
            .with_options(LimiterOptions::new().failure_policy(policy.clone()));
        limiter.acquire(1).await.unwrap();
        assert!(
            start.elapsed() <= SECOND / 2,
            "{policy:?}: {:?}",
            start.elapsed()
        );
        fails.await.unwrap().unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn the_policy_serves_a_waiter_that_would_fail_fast_while_redis_is_away() {
    for policy in [FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy.clone());
        let limiter = with_rate(&client, 3)
            .await
            .with_options(LimiterOptions::new().fail_fast(true));
        let elsewhere = remote.at_once().rate_limiter("limiter");
        assert!(elsewhere.try_acquire(3).await.unwrap());
        assert!(!limiter.try_acquire_timeout(1, SECOND).await.unwrap());
        remote.go_down();
        assert!(
            limiter.try_acquire_timeout(1, SECOND).await.unwrap(),
            "{policy:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn once_redis_has_answered_after_an_outage_nobody_is_served_in_its_place() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let limiter = with_rate(&client, 4).await;
    let wait = || limiter.wait_for_anyone(1, None);
    let down = async {
        sleep(Duration::ZERO).await;
        remote.go_down();
    };
    let (waited, ()) = tokio::join!(wait(), down);
    assert_eq!(waited.unwrap(), Some(Origin::Local));
    remote.come_back();
    assert!(limiter.try_acquire(1).await.unwrap());
    sleep(20 * SECOND).await;
    // The second one waits behind the request of the first.
    let waited = tokio::join!(wait(), wait());
    assert_eq!(waited.0.unwrap(), Some(Origin::Store));
    assert_eq!(waited.1.unwrap(), Some(Origin::Store));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_request_is_lost_is_still_served_before_later_ones() {
    for late in [1, 450, 600, 2_000] {
        let remote = Remote::new();
        let client = remote.client(FailurePolicy::Deny);
        let limiter = with_rate(&client, 1).await;
        remote.set_loss(Loss::OfCalls);
        let mut waiting = JoinSet::new();
        for number in 0..3 {
            let limiter = limiter.clone();
            waiting.spawn(async move { limiter.acquire(1).await.map(|()| number) });
            sleep(Duration::from_millis(late)).await;
            remote.set_loss(Loss::None);
        }
        let mut served = Vec::new();
        while let Some(number) = waiting.join_next().await {
            served.push(number.unwrap().unwrap());
        }
        assert_eq!(served, [0, 1, 2], "{late} ms");
    }
}
