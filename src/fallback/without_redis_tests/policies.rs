//! The other algorithms, keyed limiters and joint decisions.

use super::*;

#[tokio::test(start_paused = true)]
async fn policies_and_keys_have_their_shares() {
    let remote = Remote::new();
    let client = remote.client(one_of(4));
    let fixed = client.policy_limiter(FixedWindow::new(10, SECOND)).unwrap();
    let bucket = client
        .policy_limiter(TokenBucket::per_second(4).with_capacity(40))
        .unwrap();
    let small = client.policy_limiter(FixedWindow::new(3, SECOND)).unwrap();
    let keyed = client
        .keyed_rate_limiter("keyed:", Rate::overall(10, SECOND))
        .unwrap();
    remote.go_down();
    let limiters: [(&dyn Limiter, u64, usize); 4] = [
        (&fixed, 2, 2),
        (&bucket, 10, 10),
        (&small, 0, 0),
        (&keyed, 2, 2),
    ];
    for (number, (limiter, limit, expected)) in limiters.into_iter().enumerate() {
        let mut granted = 0;
        for _ in 0..20 {
            let decision = limiter.check(&format!("key{number}"), 1).await.unwrap();
            assert!(decision.is_by_failure_policy());
            granted += usize::from(decision.is_granted());
            if let Decision::Granted(Granted {
                grant, limit: of, ..
            }) = decision
            {
                assert_eq!((of, grant.permits()), (limit, 1));
            }
        }
        assert_eq!(granted, expected, "{limiter:?}");
    }
    keyed.acquire("key3", 1).await.unwrap(); // waits for its turn here
}

#[tokio::test(start_paused = true)]
async fn several_limiters_decide_together_without_redis() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let fixed = client.policy_limiter(FixedWindow::new(6, SECOND)).unwrap();
    let lenient = client.policy_limiter(TokenBucket::per_second(1)).unwrap();
    let lenient = lenient.with_options(LimiterOptions::new().failure_policy(FailurePolicy::Allow));
    remote.go_down();
    let ask = async || {
        let charges = [
            limiter.charge(1).unwrap(),
            fixed.charge("fixed", 1).unwrap(),
            lenient.charge("bucket", 1).unwrap(),
        ];
        client.check_all(charges).await.unwrap()
    };
    for expected in [true, true, true, false] {
        let decision = ask().await;
        assert!(decision.is_by_failure_policy());
        assert_eq!(decision.is_granted(), expected);
        assert_eq!(decision.decisions().len(), 3);
    }
    // The denied request charged nothing: 2 of 5 are left.
    assert_eq!(granted_now(&limiter).await, 2);
    for (policy, fails) in [
        (FailurePolicy::Error, true),
        (FailurePolicy::Wait, true),
        (FailurePolicy::Deny, false),
    ] {
        sleep(RESPONSE_TIMEOUT).await;
        let other = client.policy_limiter(FixedWindow::new(6, SECOND)).unwrap();
        let other = other.with_options(LimiterOptions::new().failure_policy(policy));
        let charges = [
            other.charge("other", 1).unwrap(),
            fixed.charge("fixed", 1).unwrap(),
        ];
        match client.check_all(charges).await {
            Ok(decision) => assert!(!fails && !decision.is_granted()),
            Err(_) => assert!(fails),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_joint_decision_that_is_denied_counts_toward_no_share() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let used_up = client.policy_limiter(FixedWindow::new(1, 100 * SECOND));
    let used_up = used_up.unwrap();
    assert!(used_up.check("key", 1).await.unwrap().is_granted());
    for _ in 0..5 {
        let charges = [
            limiter.charge(1).unwrap(),
            used_up.charge("key", 1).unwrap(),
        ];
        assert!(!client.check_all(charges).await.unwrap().is_granted());
    }
    remote.go_down();
    assert_eq!(granted_now(&limiter).await, 5);
}

#[tokio::test(start_paused = true)]
async fn less_than_one_that_is_left_of_a_share_is_not_available_now() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let fixed = client.policy_limiter(FixedWindow::new(3, 100 * SECOND));
    let fixed = fixed.unwrap();
    remote.go_down();
    let granted = fixed.check("key", 1).await.unwrap();
    assert!(granted.is_granted() && granted.is_by_failure_policy());
    assert_eq!(granted.remaining(), 0);
    assert!(!granted.reset().is_zero());
    assert_eq!(granted.available_in(), granted.reset());
}

#[tokio::test(start_paused = true)]
async fn a_peek_says_what_the_failure_policy_decides_and_takes_nothing() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let fixed = client.policy_limiter(FixedWindow::new(6, SECOND)).unwrap();
    // What is only peeked at does not count toward the share.
    for _ in 0..9 {
        assert!(limiter.peek(1).await.unwrap().is_granted());
    }
    remote.go_down();
    for left in (0..5).rev() {
        let peeked = limiter.peek(1).await.unwrap();
        assert!(peeked.is_by_failure_policy());
        assert_eq!(peeked.remaining(), left);
        let grant = peeked.into_grant().unwrap();
        limiter.settle(grant.clone(), 5).await.unwrap();
        assert_eq!(limiter.refund(grant).await.unwrap(), 0);
        assert_eq!(limiter.check(1).await.unwrap().remaining(), left);
    }
    assert!(!limiter.peek(1).await.unwrap().is_granted());
    for expected in [true, true, true, false] {
        assert_eq!(fixed.peek("key", 1).await.unwrap().is_granted(), expected);
        assert_eq!(fixed.check("key", 1).await.unwrap().is_granted(), expected);
    }
    let under = |policy| {
        let options = LimiterOptions::new().failure_policy(policy);
        limiter.clone().with_options(options)
    };
    for policy in [FailurePolicy::Allow, FailurePolicy::Deny] {
        let limiter = under(policy);
        let peeked = limiter.peek(1).await.unwrap();
        assert_eq!(peeked, limiter.check(1).await.unwrap());
        assert_eq!((peeked.limit(), peeked.window()), (10, 10 * SECOND));
        let left = if peeked.is_granted() { 9 } else { 0 };
        assert_eq!(peeked.remaining(), left);
        for too_many in [limiter.peek(11).await, limiter.check(11).await] {
            let error = too_many.unwrap_err();
            assert!(matches!(error, Error::ExceedsLimit { limit: 10, .. }));
        }
    }
    for policy in [FailurePolicy::Error, FailurePolicy::Wait] {
        let failing = under(policy);
        assert!(failing.peek(1).await.unwrap_err().is_unavailable());
        let too_many = failing.peek(11).await.unwrap_err();
        assert!(matches!(too_many, Error::ExceedsLimit { limit: 10, .. }));
    }
    // No failure policy resets anything.
    assert!(limiter.reset().await.is_err());
    assert!(fixed.reset("key").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_reset_empties_the_share_of_a_target_and_lifts_its_penalty() {
    let remote = Remote::new();
    let client = remote.client(one_of(2));
    let limiter = with_rate(&client, 10).await;
    let fixed = client
        .policy_limiter(FixedWindow::new(6, 100 * SECOND))
        .unwrap();
    let fixed = fixed.with_penalty(100 * SECOND).unwrap();
    remote.go_down();
    assert!(limiter.check(5).await.unwrap().is_granted());
    for expected in [true, false] {
        assert_eq!(fixed.check("key", 3).await.unwrap().is_granted(), expected);
    }
    remote.come_back();
    sleep(RESPONSE_TIMEOUT).await;
    assert!(!limiter.reset().await.unwrap()); // in the store nothing is in use
    assert!(!fixed.reset("key").await.unwrap());
    remote.go_down();
    assert!(limiter.check(5).await.unwrap().is_granted());
    assert!(fixed.check("key", 3).await.unwrap().is_granted());
}

#[tokio::test(start_paused = true)]
async fn what_rules_release_without_redis_goes_to_the_share_of_their_limiter() {
    let remote = Remote::new();
    let client = remote.client(FailurePolicy::Error);
    let keyed = client.keyed_rate_limiter("keyed:", Rate::overall(2, 10 * SECOND));
    let keyed = keyed
        .unwrap()
        .with_options(LimiterOptions::new().failure_policy(one_of(1)));
    let rules = client
        .rules([Rule::new(keyed.clone()).by(["key"])])
        .unwrap();
    remote.go_down();
    for _ in 0..2 {
        assert!(keyed.try_acquire("key", 1).await.unwrap());
    }
    assert!(!keyed.try_acquire("key", 1).await.unwrap());
    assert_eq!(rules.release(&[("key", "key")]).await.unwrap(), 1);
    assert!(keyed.try_acquire("key", 1).await.unwrap());
    assert!(!keyed.try_acquire("key", 1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_a_share_has_granted_is_not_given_back_to_redis() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let fixed = client.policy_limiter(FixedWindow::new(6, HOUR)).unwrap();
    assert_eq!(fixed.check("key", 4).await.unwrap().remaining(), 2);
    remote.go_down();
    let local = fixed.check("key", 2).await.unwrap();
    assert!(local.is_by_failure_policy());
    remote.come_back();
    sleep(SECOND).await;
    let grant = local.into_grant().unwrap();
    assert_eq!(fixed.refund("key", grant).await.unwrap(), 0);
    assert_eq!(fixed.check("key", 1).await.unwrap().remaining(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_without_a_known_share_denies_what_several_decide() {
    let remote = Remote::new();
    let client = remote.client(one_of(1));
    let fixed = client.policy_limiter(FixedWindow::new(6, SECOND)).unwrap();
    let unknown = client.rate_limiter("unknown");
    remote.go_down();
    let charges = [unknown.charge(1).unwrap(), fixed.charge("key", 1).unwrap()];
    let decision = client.check_all(charges).await.unwrap();
    assert!(!decision.is_granted());
    assert_eq!(decision.decisions().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_one_call_are_decided_by_the_newest_policy() {
    let remote = Remote::new();
    remote.set_round_trip(SECOND);
    let client = remote.client(FailurePolicy::Error);
    let fixed = client.policy_limiter(FixedWindow::new(10, HOUR)).unwrap();
    let mut earlier = Vec::new();
    // The third one waits for the next call.
    for _ in 0..3 {
        let fixed = fixed.clone();
        let asking = tokio::spawn(async move { fixed.check("key", 1).await.unwrap() });
        earlier.push(asking);
        sleep(SECOND / 10).await;
    }
    fixed.set_policy(FixedWindow::new(3, HOUR)).unwrap();
    remote.take_calls();
    let last = fixed.check("key", 1).await.unwrap();
    assert_eq!(remote.take_calls(), 1);
    for earlier in earlier {
        assert!(earlier.await.unwrap().is_granted());
    }
    assert!(!last.is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_penalty_shares_no_call_with_those_without() {
    let remote = Remote::new();
    remote.set_round_trip(SECOND);
    let client = remote.client(FailurePolicy::Error);
    let mild = client.policy_limiter(FixedWindow::new(1, HOUR)).unwrap();
    let strict = mild.clone().with_penalty(9 * HOUR).unwrap();
    // The later ones of one limiter wait for its next call.
    let earlier = [(); 2].map(|()| {
        let mild = mild.clone();
        tokio::spawn(async move { mild.check("key", 1).await.unwrap() })
    });
    sleep(SECOND / 10).await;
    let last = async {
        sleep(SECOND / 10).await;
        mild.check("key", 1).await.unwrap()
    };
    let (locked_out, last) = tokio::join!(strict.check("key", 1), last);
    assert_eq!(locked_out.unwrap().retry_after(), Some(9 * HOUR));
    assert!(last.retry_after().unwrap() <= HOUR);
    let [first, second] = earlier;
    assert!(first.await.unwrap().is_granted());
    assert!(!second.await.unwrap().is_granted());
}
