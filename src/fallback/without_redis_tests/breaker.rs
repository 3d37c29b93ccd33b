//! What the circuit breaker lets through.

use super::*;
use crate::error::Refused;

#[tokio::test(start_paused = true)]
async fn a_half_open_breaker_lets_one_call_out_and_the_policy_decides_the_rest() {
    for policy in [FailurePolicy::Deny, FailurePolicy::Allow, one_of(1)] {
        let remote = Remote::new();
        let client = remote.client(policy);
        let limiter = with_rate(&client, 1_000).await;
        let keyed = client
            .policy_limiter(FixedWindow::new(100, SECOND))
            .unwrap();
        remote.go_down();
        let _ = limiter.check(1).await.unwrap();
        let _ = keyed.check("key", 1).await.unwrap();
        assert_eq!(remote.take_calls(), 2); // the rate was set and read
        remote.come_back_silent();
        let mut callers = JoinSet::new();
        for number in 0..100 {
            let (limiter, keyed) = (limiter.clone(), keyed.clone());
            callers.spawn(async move {
                let decision = match number % 2 {
                    0 => limiter.check(1).await,
                    _ => keyed.check(&number.to_string(), 1).await,
                };
                assert!(decision.unwrap().is_by_failure_policy());
            });
        }
        let start = Instant::now();
        for _ in 0..99 {
            callers.join_next().await.unwrap().unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        // The probe ends with its response timeout, and the policy decides it.
        callers.join_next().await.unwrap().unwrap();
        assert!(start.elapsed() >= RESPONSE_TIMEOUT);
        assert_eq!(remote.take_calls(), 1);
        let _ = limiter.check(1).await.unwrap();
        assert_eq!(remote.take_calls(), 0); // open again
        remote.set_loss(Loss::None);
        sleep(SECOND).await;
        assert!(!limiter.check(1).await.unwrap().is_by_failure_policy());
        assert!(!keyed.check("key", 1).await.unwrap().is_by_failure_policy());
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_leaves_its_place_to_the_next_request() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Deny);
    let limiter = with_rate(&client, 10).await;
    remote.go_down();
    remote.come_back_silent();
    let impatient = timeout(SECOND, limiter.try_acquire(1)).await;
    assert!(impatient.is_err());
    remote.set_loss(Loss::None);
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn errors_come_at_once_after_redis_was_away_for_the_response_timeout() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let limiter = with_rate(&client, 10).await;
    remote.go_down();
    remote.take_calls();
    let start = Instant::now();
    assert!(limiter.try_acquire(1).await.is_err());
    assert!(start.elapsed() >= RESPONSE_TIMEOUT);
    assert_eq!(remote.take_calls(), 1);
    let start = Instant::now();
    let policy = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(10))
        .unwrap();
    let errors = [
        limiter.try_acquire(1).await.map(drop),
        limiter.acquire(1).await,
        policy.check("key", 1).await.map(drop),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::StoreUnavailable { .. })));
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(remote.take_calls(), 0);
    remote.come_back();
    assert!(limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn three_calls_in_a_row_without_an_answer_open_the_breaker() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Allow);
    let limiter = with_rate(&client, 10).await;
    remote.set_loss(Loss::OfCalls);
    remote.take_calls();
    for _ in 0..10 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    assert_eq!(remote.take_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_one_call_is_there_for_others() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Deny);
    let limiter = with_rate(&client, 10).await;
    remote.set_loss(Loss::Refused(Refused::Call));
    remote.take_calls();
    for _ in 0..10 {
        assert!(limiter.check(1).await.unwrap().is_by_failure_policy());
    }
    assert_eq!(remote.take_calls(), 10);
    remote.set_loss(Loss::None);
    assert!(!limiter.check(1).await.unwrap().is_by_failure_policy());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_all_calls_costs_no_timeout_for_each_request() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Allow);
    let limiter = with_rate(&client, 10).await;
    remote.set_loss(Loss::Refused(Refused::AllCalls));
    remote.take_calls();
    for _ in 0..10 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    assert_eq!(remote.take_calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_the_server_refuses_for_its_own_reasons_ends_the_outage() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Deny);
    let limiter = with_rate(&client, 10).await;
    remote.go_down();
    remote.come_back();
    remote.set_loss(Loss::Refused(Refused::Call));
    assert!(limiter.check(1).await.unwrap().is_by_failure_policy());
    assert!(remote.breaker().is_healthy());
}

#[cfg(feature = "redis")] // the setting is of clients of Redis
#[tokio::test(start_paused = true)]
async fn a_call_may_have_all_the_time_there_is() {
    use crate::store::memory::{Faults, MemoryStore};

    let builder = RedissonClient::builder().response_timeout(Duration::MAX);
    let client = builder.in_memory_with_faults(&MemoryStore::new(), &Faults::default());
    let limiter = with_rate(&client, 10).await;
    assert!(limiter.check(1).await.unwrap().is_granted());
}
