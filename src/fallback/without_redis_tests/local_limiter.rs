//! What a limiter in this process grants in place of Redis.

use super::*;

#[tokio::test(start_paused = true)]
async fn all_clients_together_grant_no_more_than_the_rate_in_any_window_without_redis() {
    let remote = Remote::new();
    let clients = [(); 4].map(|()| remote.client(one_of(4)));
    let mut limiters = Vec::new();
    for client in &clients {
        limiters.push(with_rate(client, 100).await);
    }
    remote.go_down();
    let mut windows = Vec::new();
    for _ in 0..5 {
        let mut granted = 0;
        for limiter in &limiters {
            granted += granted_now(limiter).await;
        }
        windows.push(granted);
        advance(10 * SECOND).await;
    }
    assert_eq!(windows, [100; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_single_client_exceeds_the_rate_in_no_window_in_which_redis_goes_down() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let limiter = with_rate(&client, 100).await;
    assert_eq!(granted_now(&limiter).await, 100);
    let start = Instant::now();
    remote.go_down();
    // What Redis granted counts, for at most a part of the window longer than in Redis.
    while granted_now(&limiter).await == 0 {
        advance(Duration::from_millis(1)).await;
    }
    let waited = start.elapsed();
    assert!(waited >= 9 * SECOND && waited <= 10 * SECOND, "{waited:?}");
    assert_eq!(granted_now(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_window_in_which_redis_goes_down_holds_the_rate_and_the_shares_of_the_clients_without_grants()
 {
    let remote = Remote::new();
    let clients = [(); 4].map(|()| remote.client(one_of(4)));
    let mut limiters = Vec::new();
    for client in &clients {
        limiters.push(with_rate(client, 100).await);
    }
    assert_eq!(granted_now(&limiters[0]).await, 100);
    remote.go_down();
    let mut granted = Vec::new();
    for limiter in &limiters {
        granted.push(granted_now(limiter).await);
    }
    assert_eq!(granted, [0, 25, 25, 25]); // 100 * (2 - 1/4) with those of Redis
}

#[tokio::test(start_paused = true)]
async fn a_rate_below_the_number_of_clients_becomes_a_longer_interval() {
    let remote = Remote::new();
    let client = remote.client(one_of(4));
    let limiter = with_rate(&client, 1).await;
    remote.go_down();
    let start = Instant::now();
    assert!(limiter.try_acquire(1).await.unwrap());
    while !limiter.try_acquire(1).await.unwrap() {
        advance(Duration::from_millis(1)).await;
    }
    assert_eq!(start.elapsed(), 40 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_whose_rate_is_unknown_here_denies() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    remote.go_down();
    let decision = client.rate_limiter("limiter").check(1).await.unwrap();
    assert!(!decision.is_granted() && decision.is_by_failure_policy());
}

#[tokio::test(start_paused = true)]
async fn a_limiter_whose_rate_another_client_set_is_known_from_the_first_request() {
    let remote = Remote::new();
    with_rate(&remote.client(FailurePolicy::Error), 100).await;
    let limiter = remote.client(one_of(4)).rate_limiter("limiter");
    assert!(limiter.try_acquire(5).await.unwrap());
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 20);
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_another_client_changes_is_known_from_the_second_request() {
    let remote = Remote::new();
    let other = with_rate(&remote.client(FailurePolicy::Error), 100).await;
    let limiter = remote.client(one_of(4)).rate_limiter("limiter");
    assert!(limiter.try_acquire(1).await.unwrap());
    other.set_rate(Rate::overall(40, SECOND)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    assert!(limiter.try_acquire(1).await.unwrap());
    remote.go_down();
    advance(2 * SECOND).await;
    assert_eq!(granted_now(&limiter).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_refund_goes_where_the_grant_was_made() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let grant = |decision| match decision {
        Decision::Granted(Granted { grant, .. }) => grant,
        denied => panic!("{denied:?}"),
    };
    let of_redis = grant(limiter.check(1).await.unwrap());
    remote.go_down();
    advance(20 * SECOND).await;
    let local = grant(limiter.check(5).await.unwrap());
    assert_eq!(granted_now(&limiter).await, 0);
    assert_eq!(limiter.refund(local).await.unwrap(), 5);
    let of_local = grant(limiter.check(5).await.unwrap());
    let lenient = limiter.clone().with_failure_policy(FailurePolicy::Allow);
    let of_nobody = grant(lenient.check(5).await.unwrap());
    remote.come_back();
    assert_eq!(limiter.refund(of_local).await.unwrap(), 5);
    assert_eq!(limiter.refund(of_nobody).await.unwrap(), 0);
    assert_eq!(limiter.refund(of_redis).await.unwrap(), 0); // its window has passed
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_release_without_redis_goes_to_the_local_limiter() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 5);
    limiter.release(3).await.unwrap();
    assert_eq!(granted_now(&limiter).await, 3);
}
