//! What a limiter in this process grants in place of Redis.

use tokio::task::yield_now;

use super::*;

#[tokio::test(start_paused = true)]
async fn clients_without_redis_grant_at_most_the_rate_in_any_window_together() {
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
    let asked_first = Instant::now();
    assert_eq!(granted_now(&limiter).await, 100);
    let start = Instant::now();
    remote.go_down();
    // What Redis granted counts, for at most a part of the window longer than in Redis.
    while granted_now(&limiter).await == 0 {
        advance(Duration::from_millis(1)).await;
    }
    assert!(asked_first.elapsed() > 10 * SECOND);
    assert!(start.elapsed() <= 10 * SECOND);
    assert_eq!(granted_now(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_window_with_an_outage_holds_the_rate_and_shares_of_unused_clients() {
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
async fn a_rate_that_could_not_be_set_is_not_the_limiters() {
    let remote = Remote::new();
    let limiter = remote.client(one_of(1)).rate_limiter("limiter");
    let rate = Rate::overall(100, 10 * SECOND);
    let update = limiter.update_rate(rate, PermitsInUse::Keep);
    assert!(!update.await.unwrap());
    remote.go_down();
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_another_client_set_is_known_from_the_first_request() {
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
    let lenient = limiter
        .clone()
        .with_options(LimiterOptions::new().failure_policy(FailurePolicy::Allow));
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

/// By which way a client is granted permits.
#[derive(Debug, Clone, Copy)]
enum Way {
    AtOnce,
    Waiting,
    Joint,
    WithARateOfItsOwn,
    JointWithARateOfItsOwn,
    UnderAnotherPolicy,
}

const WAYS: [Way; 6] = [
    Way::AtOnce,
    Way::Waiting,
    Way::Joint,
    Way::WithARateOfItsOwn,
    Way::JointWithARateOfItsOwn,
    Way::UnderAnotherPolicy,
];

async fn is_granted(way: Way, client: &RedissonClient, limiter: &RateLimiter, rate: Rate) -> bool {
    let own = || limiter.clone().with_rate(rate).unwrap();
    let together = async |limiter: &RateLimiter| {
        let charges = [limiter.charge(1).unwrap()];
        client.check_all(charges).await.unwrap().is_granted()
    };
    match way {
        Way::AtOnce => limiter.try_acquire(1).await.unwrap(),
        Way::Waiting => limiter.try_acquire_timeout(1, SECOND).await.unwrap(),
        Way::Joint => together(limiter).await,
        Way::WithARateOfItsOwn => own().try_acquire(1).await.unwrap(),
        Way::JointWithARateOfItsOwn => together(&own()).await,
        Way::UnderAnotherPolicy => {
            let other = limiter
                .clone()
                .with_options(LimiterOptions::new().failure_policy(FailurePolicy::Error));
            other.try_acquire(1).await.unwrap()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_redis_granted_by_whatever_way_counts_toward_the_share_of_each_way() {
    let rate = Rate::overall(5, 100 * SECOND);
    for before in WAYS {
        for after in WAYS {
            if matches!(after, Way::UnderAnotherPolicy) {
                continue; // it fails without Redis
            }
            let remote = Remote::new();
            let client = remote.client(one_of(1));
            let limiter = client.rate_limiter("limiter");
            limiter.set_rate(rate).await.unwrap();
            // From here on the client uses a share.
            assert!(limiter.try_acquire(1).await.unwrap());
            for _ in 1..4 {
                assert!(is_granted(before, &client, &limiter, rate).await);
            }
            remote.go_down();
            let granted = is_granted(after, &client, &limiter, rate).await;
            assert!(granted, "{before:?}, {after:?}: one of five is left");
            for again in WAYS {
                if !matches!(again, Way::UnderAnotherPolicy) {
                    let granted = is_granted(again, &client, &limiter, rate).await;
                    assert!(!granted, "{before:?}, {after:?}, {again:?}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_redis_granted_to_a_key_counts_toward_its_share() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let keyed = client
        .keyed_rate_limiter("keyed:", Rate::overall(5, 100 * SECOND))
        .unwrap();
    assert!(keyed.try_acquire("key", 1).await.unwrap());
    keyed.acquire("key", 1).await.unwrap();
    let charge = || [keyed.charge("key", 1).unwrap()];
    assert!(client.check_all(charge()).await.unwrap().is_granted());
    remote.go_down();
    assert!(client.check_all(charge()).await.unwrap().is_granted());
    assert!(keyed.try_acquire("key", 1).await.unwrap());
    assert!(!keyed.try_acquire("key", 1).await.unwrap());
    assert!(!keyed.try_acquire_timeout("key", 1, SECOND).await.unwrap());
    assert!(!client.check_all(charge()).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn what_redis_granted_counts_though_its_caller_has_not_read_the_answer() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let limiter = with_rate(&client, 2).await;
    assert_eq!(granted_now(&limiter).await, 2);
    let mut waiting = Box::pin(limiter.acquire(1));
    assert!(timeout(SECOND, &mut waiting).await.is_err());
    sleep(15 * SECOND).await; // it is granted, and not polled
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 1);
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn grants_of_redis_count_though_the_rate_becomes_known_later() {
    let remote = Remote::new();
    with_rate(&remote.client(FailurePolicy::Error), 5).await;
    let client = remote.client(one_of(1));
    let limiter = client.rate_limiter("limiter");
    for _ in 0..4 {
        let charges = [limiter.charge(1).unwrap()];
        assert!(client.check_all(charges).await.unwrap().is_granted());
    }
    limiter.config().await.unwrap();
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_joint_decision_counts_while_its_caller_is_not_polled() {
    for (is_gone, left) in [(false, 2), (true, 5)] {
        let remote = Remote::new();
        let client = remote.client(one_of(1));
        let limiter = with_rate(&client, 5).await;
        let mut deciding = Some(Box::pin(client.check_all([limiter.charge(3).unwrap()])));
        let polled = timeout(Duration::ZERO, deciding.as_mut().unwrap()).await;
        assert!(polled.is_err());
        yield_now().await; // it is sent
        deciding.take_if(|_| is_gone);
        sleep(Duration::from_millis(2)).await;
        let available = limiter.available_permits().await.unwrap();
        assert_eq!(available, left);
        remote.go_down();
        // What went back still counts toward the share.
        assert_eq!(granted_now(&limiter).await, 2);
        if let Some(deciding) = deciding {
            assert!(deciding.await.unwrap().is_granted());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn grants_made_while_the_rate_is_unknown_count_for_an_interval_each() {
    let remote = Remote::new();
    with_rate(&remote.client(FailurePolicy::Error), 50).await;
    let client = remote.client(FailurePolicy::Error);
    let other = client
        .rate_limiter("other")
        .with_options(LimiterOptions::new().failure_policy(one_of(1)));
    other.set_rate(Rate::overall(1, SECOND)).await.unwrap();
    assert!(other.try_acquire(1).await.unwrap()); // the client uses a share
    let limiter = client.rate_limiter("limiter");
    assert!(limiter.try_acquire(50).await.unwrap());
    sleep(11 * SECOND).await;
    for _ in 0..40 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    sleep(8 * SECOND).await;
    let limiter = limiter.with_options(LimiterOptions::new().failure_policy(one_of(1)));
    assert!(limiter.try_acquire(1).await.unwrap()); // which reads the rate
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 9);
    sleep(3 * SECOND).await;
    assert_eq!(granted_now(&limiter).await, 40);
}

#[tokio::test(start_paused = true)]
async fn the_shares_of_keys_take_no_memory_once_their_grants_have_expired() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let keyed = client
        .keyed_rate_limiter("keyed:", Rate::overall(5, SECOND))
        .unwrap();
    let fixed = client.policy_limiter(FixedWindow::new(5, SECOND)).unwrap();
    assert!(keyed.try_acquire("before", 1).await.unwrap());
    remote.go_down();
    for key in 0..10_000 {
        assert!(keyed.try_acquire(&key.to_string(), 1).await.unwrap());
        let decision = fixed.check(&key.to_string(), 1).await.unwrap();
        assert!(decision.is_granted());
    }
    assert!(client.local_store().held() >= 20_000);
    remote.come_back();
    sleep(30 * SECOND).await; // without any request
    assert_eq!(client.local_store().held(), 0);
    // The next outage is no different.
    remote.go_down();
    assert!(keyed.try_acquire("after", 1).await.unwrap());
    sleep(30 * SECOND).await;
    assert_eq!(client.local_store().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn reading_the_rate_takes_no_time_from_the_request_that_needs_it() {
    let ms = Duration::from_millis;
    let remote = Remote::new();
    let rate = Rate::overall(10, 10 * SECOND);
    let setting = remote.client(FailurePolicy::Error);
    setting
        .rate_limiter("limiter")
        .set_rate(rate)
        .await
        .unwrap();
    // One round trip fits in the time of a request.
    remote.set_round_trip(ms(2_900));
    let limiter = remote.client(one_of(2)).rate_limiter("limiter");
    let start = Instant::now();
    let decision = limiter.check(1).await.unwrap();
    assert!(decision.is_granted() && !decision.is_by_failure_policy());
    assert_eq!(start.elapsed(), ms(2_900));
    // The rate is known, and the grant counts.
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_rate_cannot_be_read_takes_no_longer_than_any_other() {
    let ms = Duration::from_millis;
    let remote = Remote::new();
    remote.set_loss(Loss::OfCalls); // nobody has noticed
    let limiter = remote.client(one_of(2)).rate_limiter("limiter");
    let start = Instant::now();
    assert!(!limiter.try_acquire_timeout(1, ms(50)).await.unwrap());
    assert_eq!(start.elapsed(), ms(50));
    let start = Instant::now();
    let decision = limiter.check(1).await.unwrap();
    assert!(!decision.is_granted() && decision.is_by_failure_policy());
    assert!(start.elapsed() <= RESPONSE_TIMEOUT, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_a_request_was_dropped_for_is_read_by_the_next_one() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    advance(11 * SECOND).await; // it is read again
    let other = remote.client(FailurePolicy::Error).rate_limiter("limiter");
    other.set_rate(Rate::overall(4, 10 * SECOND)).await.unwrap();
    let dropped = timeout(Duration::ZERO, limiter.try_acquire(1)).await;
    assert!(dropped.is_err());
    assert!(!limiter.try_acquire(5).await.is_ok_and(|granted| granted));
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_lease_holds_counts_until_an_interval_after_its_end() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let limiter = with_rate(&client, 100).await;
    let limiter = limiter.leased(Lease::up_to(5 * SECOND));
    for _ in 0..2 {
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    sleep(4 * SECOND).await;
    remote.go_down();
    let mut leased = 0;
    while !limiter.check(1).await.unwrap().is_by_failure_policy() {
        leased += 1;
    }
    assert!(leased > 0);
    sleep(7 * SECOND).await; // of what Redis granted, the lease is all that counts
    assert_eq!(leased + 1 + granted_now(&limiter).await, 100);
    sleep(5 * SECOND).await;
    assert_eq!(granted_now(&limiter).await, leased + 1);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_counts_toward_the_share_though_it_is_the_first_request() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let limiter = with_rate(&client, 100).await;
    let reservation = limiter.reserve(60, Duration::ZERO).await.unwrap().unwrap();
    reservation.ready().await.unwrap();
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 40);
}
